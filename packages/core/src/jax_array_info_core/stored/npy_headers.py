"""Headers of arrays in NumPy's format, read without evaluating what they contain."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from ..errors import FileFormatError
from ..layouts.dtypes import bits_of_name, is_full_name
from ..text import printable

_MAGIC = b"\x93NUMPY"
_WIDTHS = {1: 2, 2: 4, 3: 4}
"""Bytes of the header's length in each version of the format."""
_LENGTH = rb"(?:0|[1-9]\d{0,18})L?"
_HEADER = re.compile(
    rb"\{\s*'descr':\s*'([^']*)',\s*'fortran_order':\s*(?:True|False),\s*"
    rb"'shape':\s*\(((?:" + _LENGTH + rb", ?)+(?:" + _LENGTH + rb",?)?|)\),?\s*\}\s*"
)
"""A header as NumPy writes it; Python 2 wrote long integers with an L."""
_NUMBERS = (
    ("int", (1, 2, 4, 8)),
    ("uint", (1, 2, 4, 8)),
    ("float", (2, 4, 8, 16)),
    ("complex", (8, 16, 32)),
)
_NAMES = {"b1": "bool", "f1": "float8_e5m2"} | {
    f"{family[0]}{size}": f"{family}{8 * size}" for family, sizes in _NUMBERS for size in sizes
}
_OTHER = re.compile(r"([SU])(\d{1,9})|[mM]8(?:\[\d{0,9}[a-zA-Zμ]{1,3}\])?")
"""Bytes, text, durations and dates."""


class Dtype(NamedTuple):
    """A dtype in a file."""

    name: str | None
    """Its name; None if its elements are text or dates."""
    bits: int
    """Bits of an element in the file."""


class Header(NamedTuple):
    """The header of an array."""

    shape: tuple[int, ...]
    dtype: Dtype
    nbytes: int
    """Bytes of the header itself."""


def npy_header(data: bytes) -> Header:
    """Return the header of an array.

    Args:
        data: Start of a file.

    Raises:
        FileFormatError: If it is not a header that NumPy writes, or that of records or Python objects.
    """
    width = _WIDTHS.get(data[6], 0) if data[:6] == _MAGIC and data[7:8] == b"\0" else 0
    nbytes = 8 + width + int.from_bytes(data[8 : 8 + width], "little")
    found = _HEADER.fullmatch(data, 8 + width, nbytes) if width > 0 and nbytes <= len(data) else None
    if found is None:
        raise FileFormatError("not an array of numpy, or one of records")
    shape = tuple(int(number) for number in re.findall(rb"\d+", found[2]))
    return Header(shape, dtype_of_code(found[1].decode("latin-1")), nbytes)


@functools.lru_cache(maxsize=256)
def dtype_of_code(code: str) -> Dtype:
    """Return the dtype with a code of NumPy such as ``<f4``, or with a name.

    Raises:
        FileFormatError: If there is none, or it is that of Python objects.
    """
    if is_full_name(code):
        return Dtype(code, bits_of_name(code) or 0)
    plain = code[1:] if code[:1] in tuple("<>|=") else code
    if plain == "O":
        raise FileFormatError("an array of Python objects: save it with a numeric dtype")
    if other := _OTHER.fullmatch(plain):
        return Dtype(None, {"S": 8, "U": 32}[other[1]] * int(other[2]) if other[1] else 64)
    # NumPy stores bfloat16 and the like as V2: bytes without a type.
    name = plain if re.fullmatch(r"V\d{1,9}", plain, re.ASCII) else _NAMES.get(plain)
    if name is None:
        raise FileFormatError(printable(f"the dtype {code!r} is not known"))
    return Dtype(name, 8 * int(plain[1:]))
