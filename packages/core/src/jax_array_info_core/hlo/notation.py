"""XLA's notation of types and metadata, as in logs and error messages."""

from __future__ import annotations

import re

from ..layouts.dtypes import bits_of_name, packed_nbytes
from .locations import unescaped
from .shapes import WITHOUT_DATA, ArrayShape, dtype_of
from .stacks import Frame

_OP_NAME = re.compile(r'\bop_name="((?:[^"\\]|\\.)*+)"')
_SOURCE = re.compile(r'\bsource_file="((?:[^"\\]|\\.)*+)" source_line=(\d{1,9})')


def read_metadata(text: str) -> tuple[str | None, tuple[Frame, ...]]:
    """Return the ``op_name`` of an instruction and its source line, as far as its metadata has them."""
    op, source = _OP_NAME.search(text), _SOURCE.search(text)
    frames = (Frame(unescaped(source[1]), int(source[2]), ""),) if source else ()
    return (unescaped(op[1]) or None if op else None), frames


MOST_AXES = 64
"""More than any array in JAX has."""
_ARRAY = re.compile(r"(?P<tuple>\()?([a-z]\w*)\[([\d,<= ]*)\](?:\{([^{}]*)\})?(?(tuple)\))")
"""The type of an array, also of one alone in a tuple."""
_DIM = re.compile(r" *(?:<=)?(\d{1,18}) *")
_MEMORY_SPACE = re.compile(r"[:)]S\((\d{1,9})\)")


def read_array(text: str) -> ArrayShape | None:
    """Return the type of an array; None for several arrays, and for a dtype or a shape that is not known."""
    found = _ARRAY.fullmatch(text.strip())
    if found is None:
        return None
    _, name, dims_text, layout = found.groups()
    dtype = dtype_of(name)
    parts = dims_text.split(",") if dims_text else []
    lengths = [_DIM.fullmatch(part) for part in parts]
    if dtype is None or len(parts) > MOST_AXES or None in lengths:
        return None
    # A bounded dimension is printed as <=8, and takes the memory of 8.
    dims = tuple(int(one[1]) for one in lengths if one)
    space = _MEMORY_SPACE.search(layout or "")
    nbytes = 0 if dtype in WITHOUT_DATA else packed_nbytes(dims, bits_of_name(dtype))
    if nbytes is None:
        return None
    return ArrayShape(dtype, dims, nbytes, int(space[1]) if space else 0)
