"""Names and bit widths of the dtypes of arrays on devices."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base.quantities import LARGEST
from ...base.text import plain_text

_SHORT_NAMES = {"pred": "bool", "bf16": "bfloat16", "c64": "complex64", "c128": "complex128"}
_KEY_BITS = {"key<fry>": 64, "key<rbg>": 128, "key<urbg>": 128}
"""Bits of the PRNG keys of JAX: two or four numbers of 32 bits."""
_SHORT_FAMILIES = {"f": "float", "s": "int", "i": "int", "u": "uint"}


def packed_nbytes(shape: Sequence[int | str], bits: int | None) -> int | None:
    """Return the bytes of an array, ``ceil(elements * bits / 8)``.

    None if the shape is symbolic, the size of the dtype is not known, or the result is more than
    2^63 - 1.
    """
    lengths = [dim for dim in shape if isinstance(dim, int)]
    if bits is None or len(lengths) < len(shape):
        return None
    nbytes = -(-math.prod(lengths) * bits // 8)
    return nbytes if nbytes <= LARGEST else None


def dtype_name(dtype: Any) -> str:
    """Return the name of a dtype. That of JAX's float0, a record of no bytes, is ``float0``."""
    return "float0" if getattr(dtype, "names", None) == ("float0",) else str(dtype)


def bits_per_element(dtype: Any) -> int | None:
    """Return the bits per element on a device: 4 for int4, which XLA packs.

    None for a dtype without ``itemsize``.
    """
    itemsize: int | None = getattr(dtype, "itemsize", None)
    if itemsize == 1:
        import ml_dtypes

        # numpy stores sub-byte types in a full byte; ml_dtypes knows their true width.
        for info in (ml_dtypes.iinfo, ml_dtypes.finfo):
            with contextlib.suppress(ValueError, TypeError):
                return int(info(dtype).bits)
    return None if itemsize is None else 8 * itemsize


_PYTHON = {bool: "bool", int: "int32", float: "float32", complex: "complex64"}
"""The dtypes of Python's classes in JAX without 64-bit numbers."""


def name_of(dtype: Any) -> str:
    """Return the full name of a dtype that is given as JAX takes it: as a name, a class or a dtype.

    Names can also be short ones, of NumPy or of XLA: ``f4`` and ``f32`` are ``float32``. A name of no dtype
    is returned as it is.

    Raises:
        TypeError: If it is not a dtype.
    """
    if isinstance(dtype, type) and dtype in _PYTHON:
        return _PYTHON[dtype]
    if isinstance(dtype, str):
        name = plain_text(dtype)
        name = next((full for kind, full in _PYTHON.items() if kind.__name__ == name), name)
        with contextlib.suppress(SyntaxError, TypeError, ValueError):
            return str(named_dtype(name))
        return named_in_full(name) or name
    if not (isinstance(dtype, type | np.dtype) or hasattr(dtype, "dtype")):
        if (name := plain_text(dtype)) in _KEY_BITS:
            return name
        raise TypeError(f"{plain_text(dtype, repr)} is not a dtype")
    return dtype_name(np.dtype(dtype))


def named_dtype(name: str) -> np.dtype[Any]:
    """Return the dtype with a name, without JAX.

    Raises:
        TypeError: If no array on a device can have a dtype of this name. numpy may also raise other errors.
    """
    name = plain_text(name)
    extended = None
    if name not in np.sctypeDict:
        import ml_dtypes

        extended = getattr(ml_dtypes, name, None)
    # numpy accepts much more, such as None, byte orders and lists of fields.
    dtype = np.dtype((extended if isinstance(extended, type) else name) if name.isidentifier() else object)
    numeric = dtype.kind in "biufc" and dtype.char not in "gG" and dtype.subdtype is None
    if not numeric and dtype.type.__module__ != "ml_dtypes":
        raise TypeError(f"{name!r} is not a dtype of arrays on devices")
    return dtype


def named_in_full(name: str) -> str | None:
    """Return the full name of a dtype by its short name in XLA or in a jaxpr; None if there is none.

    >>> named_in_full("f32"), named_in_full("pred"), named_in_full("f8e4m3fn"), named_in_full("float32")
    ('float32', 'bool', 'float8_e4m3fn', None)
    """
    full = _SHORT_NAMES.get(name)
    if full is None:
        family, digits = name[:1], name[1:]
        if digits.isdecimal():
            full = _SHORT_FAMILIES.get(family, "") + digits
        elif family == "f" and digits[:1] in tuple("468"):
            full = f"float{digits[:1]}_{digits[1:]}"
    return None if bits_of_name(full) is None else full


def bits_of_name(name: str | None) -> int | None:
    """Return the bits per element for the name of a dtype, or of JAX's PRNG keys; None if it has none.

    >>> bits_of_name("int4"), bits_of_name("key<fry>"), bits_of_name("key<mine>")
    (4, 64, None)
    """
    if name in _KEY_BITS:
        return _KEY_BITS[name]
    with contextlib.suppress(SyntaxError, TypeError, ValueError):
        return bits_per_element(named_dtype(name or ""))
    return None


def is_full_name(name: str) -> bool:
    """Return whether a dtype of arrays on devices has this name: NumPy also accepts ``f4`` and ``double``."""
    with contextlib.suppress(SyntaxError, TypeError, ValueError):
        return str(named_dtype(name)) == name
    return False


def type_text(dtype: Any, shape: Sequence[Any]) -> str:
    """Return dtype and shape, such as ``float32[4,4]``."""
    return f"{dtype}[{','.join(map(str, shape))}]"
