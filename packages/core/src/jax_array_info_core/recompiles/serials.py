"""Numbers of objects that keep none of them alive."""

from __future__ import annotations

import itertools
import weakref
from typing import Any


class Serials:
    """A number for each object, never given twice, unlike ``id``."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._known: dict[int, tuple[weakref.ReferenceType[Any], int]] = {}

    def of(self, value: Any) -> int:
        """Return the number of an object: by its id, below 0, if it takes no weak references."""
        known = self._known.get(id(value))
        if known is not None and known[0]() is value:
            return known[1]
        number = next(self._numbers)
        try:
            reference = weakref.ref(value)
        except TypeError:
            return -id(value)
        if len(self._known) > 4096:
            self._known = {key: one for key, one in list(self._known.items()) if one[0]() is not None}
        self._known[id(value)] = reference, number
        return number
