"""References from one Python object to others, as the garbage collector sees them."""

from __future__ import annotations

import gc
import operator
from collections.abc import Iterator, Sequence
from itertools import repeat
from types import ModuleType
from typing import Any

module_names = vars(ModuleType)["__dict__"].__get__
"""Returns the dict of a module's variables, also where the module's class overrides ``__dict__``."""


def referents(*things: Any) -> list[Any]:
    """Return the objects that some objects refer to, as ``gc.get_referents`` does.

    Of a module these are its names only, not what its C code keeps. In CPython 3.12.0 to 3.12.5, ``_asyncio``
    keeps a list of freed objects: ``gc.get_referents`` revives them, and the next collection never ends
    (gh-122695).
    """
    if not _have_modules(things):
        return gc.get_referents(*things)
    modules = [thing for thing in things if type(thing) is ModuleType]
    others = [thing for thing in things if type(thing) is not ModuleType]
    return [*map(module_names, modules), *gc.get_referents(*others)]


def referents_of_each(things: Sequence[Any]) -> Iterator[list[Any]]:
    """Return the same for each object by itself."""
    return map(referents if _have_modules(things) else gc.get_referents, things)


def attribute_dicts(*things: Any) -> list[dict[str, Any]]:
    """Return the dicts that some objects refer to, which are no modules, such as that of their attributes.

    Unlike ``vars``, this creates no dict for an object that has none.
    """
    return [part for part in gc.get_referents(*things) if type(part) is dict]


def _have_modules(things: Sequence[Any]) -> bool:
    return any(map(operator.is_, map(type, things), repeat(ModuleType)))
