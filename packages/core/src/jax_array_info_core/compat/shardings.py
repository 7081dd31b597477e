"""Shardings in XLA's form, on each version of jax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def device_assignment(sharding: Any, shape: Sequence[int]) -> list[Any]:
    """Return a sharding's devices in the order in which XLA numbers them."""
    devices = getattr(sharding, "_device_assignment", None)
    if devices is None:
        devices = sharding.devices_indices_map(tuple(shape))
    return list(devices)


def xla_text(sharding: Any, ndim: int) -> str | None:
    """Return a sharding as XLA writes it, such as ``{devices=[8,1]<=[8]}``, where it has that form."""
    try:
        return str(sharding._to_xla_hlo_sharding(ndim))
    except (AttributeError, NotImplementedError):
        return None
