"""Dtypes of arrays on devices: their names and their bits."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..quantities import LARGEST
from ..text import plain_text


def packed_nbytes(shape: Sequence[int | str], bits: int | None) -> int | None:
    """Return ``ceil(elements * bits / 8)``.

    None where the shape is symbolic, the dtype has no size, or the number has more than 300 digits.
    """
    lengths = [dim for dim in shape if isinstance(dim, int)]
    if bits is None or len(lengths) < len(shape):
        return None
    nbytes = -(-math.prod(lengths) * bits // 8)
    return nbytes if abs(nbytes) < LARGEST else None


def bits_per_element(dtype: Any) -> int | None:
    """Return the bits that an element takes on a device: 4 for int4, which XLA packs.

    None for a dtype that does not tell its size.
    """
    import ml_dtypes

    itemsize: int | None = getattr(dtype, "itemsize", None)
    if itemsize == 1:
        # Of the types that numpy keeps in a byte, these two know the ones that are smaller.
        for info in (ml_dtypes.iinfo, ml_dtypes.finfo):
            with contextlib.suppress(ValueError, TypeError):
                return int(info(dtype).bits)
    return None if itemsize is None else 8 * itemsize


def named_dtype(name: str) -> np.dtype[Any]:
    """Return the dtype of a name, without jax.

    Raises:
        TypeError: arrays on devices have no dtype of this name. (numpy itself raises other errors, too.)
    """
    import ml_dtypes

    # numpy has a dtype for nearly any text and any object, None and byte orders included.
    name = plain_text(name)
    known = getattr(ml_dtypes, name, None)
    dtype = np.dtype((known if isinstance(known, type) else name) if name.isidentifier() else object)
    numeric = dtype.kind in "biufc" and dtype.char not in "gG" and dtype.subdtype is None
    if not numeric and dtype.type.__module__ != ml_dtypes.__name__:
        raise TypeError(f"{name!r} is not a dtype of arrays on devices")
    return dtype


def bits_of_name(name: str | None) -> int | None:
    """Return the bits that an element takes by the name of its dtype.

    None where that is not known: PRNG keys have a dtype that only jax knows.
    """
    with contextlib.suppress(SyntaxError, TypeError, ValueError):
        return bits_per_element(named_dtype(name or ""))
    return None


def type_text(dtype: Any, shape: Sequence[Any]) -> str:
    """Return dtype and shape as ``float32[4,4]``."""
    return f"{dtype}[{','.join(map(str, shape))}]"
