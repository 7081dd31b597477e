"""XLA's notation of types, attributes and strings, as in logs and error messages."""

from __future__ import annotations

import re

from ..layouts.dtypes import bits_of_name, packed_nbytes
from .shapes import WITHOUT_DATA, ArrayShape, dtype_of
from .strings import unescaped

STRING = r'"(?:[^"\\]++|\\(?s:.))*+"'
"""Pattern of a quoted string."""

# A part of the groups of a collective looks like an attribute: mesh['x'=8], device_ids=([8]) {'x'}.
_TOKEN = re.compile(rf'{STRING}|\{{(?:[^{{}}"]++|{STRING})*+\}}|[{{}}"]|, (?!device_ids=)([\w-]++)=')
_FIELD = re.compile(rf"\b(\w++)=(?:({STRING})|(\S+))(?:\s|$)")


def read_attributes(text: str) -> dict[str, str]:
    """Return the attributes by name, each with its text, as far as they can be read.

    An attribute ends where its quotes and braces end. The time is linear in the length of the text.
    """
    found: dict[str, str] = {}
    name, start, depth = "", 0, 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark == "{":
            depth += 1
        elif mark == "}":
            depth -= 1
        elif not depth and mark[0] == ",":
            if name:
                found[name] = text[start : token.start()]
            elif token.start():
                break
            name, start = token[1], token.end()
        if mark == '"' or depth < 0 or not name:
            return found
    if name and not depth:
        found[name] = text[start:]
    return found


def read_fields(text: str) -> dict[str, str]:
    """Return the fields of ``{file_name_id=1 line=97}``, or of metadata, by name, strings without quotes."""
    fields = _FIELD.findall(text.strip("{}"))
    return {name: unescaped(string[1:-1]) if string else bare for name, string, bare in fields}


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
