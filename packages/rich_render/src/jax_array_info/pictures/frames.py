"""Frames round the devices of a host and of a slice: the weight of each line of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jax_array_info_core.layouts import Grids
from jax_array_info_core.layouts.layout import Processes

Weights = NDArray[np.int8]
"""Weights of lines: 0 between devices of one host, 1 round a host, 2 round a slice."""


class Frames:
    """The weights of the lines between the cells of grids, and of their outlines."""

    def __init__(self, grids: Grids, hosts: Processes, slices: Processes = ()) -> None:
        ids = grids.device_ids
        owners = [_owners(ids, found) for found in (hosts, slices) if found]
        self._most = (2 if slices else 1) if owners else 0
        self._across = self._weights(owners, axis=2, shape=ids.shape[:-1])
        self._down = self._weights(owners, axis=1, shape=ids.shape[:-1])

    def _weights(self, owners: Sequence[NDArray[Any]], axis: int, shape: tuple[int, ...]) -> Weights:
        """Return the weights of the lines before each cell along an axis, and of the line after the last."""
        long = list(shape)
        long[axis] += 1
        weights = np.full(long, self._most, np.int8)
        inner = np.moveaxis(weights, axis, -1)[..., 1:-1]
        inner[...] = 0
        for weight, found in enumerate(owners, 1 + self._most - len(owners)):
            inner[np.diff(np.moveaxis(found, axis, -1)) != 0] = weight
        return weights

    def across(self, facet: int, row: int) -> list[int]:
        """Return the weights of the vertical lines of a row: before each cell, and after the last."""
        found: list[int] = self._across[facet, row].tolist()
        return found

    def down(self, facet: int, line: int) -> list[int]:
        """Return the weights of the horizontal line above a row, or below the last, at each cell."""
        found: list[int] = self._down[facet, line].tolist()
        return found

    def is_framed(self, facets: Sequence[int], line: int) -> bool:
        """Return whether a horizontal line is part of a frame in any of some grids."""
        return bool(self._down[list(facets), line].any())


def _owners(ids: NDArray[Any], owners: Processes) -> NDArray[np.int64]:
    """Return a number for the set of owners of each cell's devices."""
    known = np.array([device for _, devices in owners for device in devices])
    numbers = np.repeat(np.arange(len(owners)), [len(devices) for _, devices in owners])
    order = np.argsort(known)
    at = np.minimum(np.searchsorted(known, ids, sorter=order), len(known) - 1)
    found = np.sort(numbers[order[at]], axis=-1)
    # A set: repetitions are moved to the end.
    found[..., 1:][np.diff(found) == 0] = len(owners)
    sets = np.sort(found, axis=-1).reshape(-1, ids.shape[-1])
    return np.unique(sets, axis=0, return_inverse=True)[1].reshape(ids.shape[:-1])
