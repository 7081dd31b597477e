"""Reports on lists, tuples, dicts, dataclasses and other pytrees, with the path of each leaf."""

from __future__ import annotations

import functools
from typing import Any

from ..compat import values
from ..layouts import dtypes
from ..reports.array import ArrayReport, Leaf
from .objects import object_text
from .paths import KeystrNotation
from .walk import PLAIN, Entries, Walk


def container_report(value: Any, name: str | None) -> ArrayReport | None:
    """Return the report of a container; None if the value is not a container.

    Containers are pytrees. Sets, dataclasses, subclasses of dict, list and tuple that are not registered
    with JAX, and dicts with keys that cannot be sorted are containers too. A box is replaced by its content.
    The leaves are in JAX's order, and ``None`` is a leaf. The report of a set, or of a list without arrays,
    has no leaves.
    """
    walk = _LeafTexts()
    if not walk.start(value):
        return None
    cls = type(value)
    has_leaves = not issubclass(cls, (set, frozenset)) and (walk.has_arrays or not issubclass(cls, list))
    return ArrayReport(
        name=name,
        kind="container",
        type_name=values.type_name(value),
        length=walk.length,
        leaves=tuple(walk.leaves) if has_leaves else (),
    )


class _LeafTexts(Walk):
    """Collects the path and the type of each leaf."""

    def __init__(self) -> None:
        super().__init__(KeystrNotation(), opens_boxes=True)
        self.leaves: list[Leaf] = []
        self.has_arrays = False
        self.length = 0
        self._array_text = functools.cache(dtypes.type_text)

    def enter(self, path: str, value: Any, entries: Entries) -> None:
        if not path:
            self.length = self.length or len(entries)

    def add_array(self, path: str, array: Any) -> None:
        self.has_arrays = True
        self.leaves.append(Leaf(path=path, type=self._array_text(array.dtype, array.shape)))

    def add_other(self, path: str, value: Any) -> None:
        if value is None:
            text = "None"
        else:
            text = (type(value) not in PLAIN and object_text(value)) or values.type_name(value)
        self.leaves.append(Leaf(path=path, type=text))
