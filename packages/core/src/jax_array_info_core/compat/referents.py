"""References between Python objects, from the garbage collector."""

from __future__ import annotations

import gc
import operator
from collections.abc import Iterator, Sequence
from itertools import repeat
from types import ModuleType
from typing import Any

module_names = vars(ModuleType)["__dict__"].__get__
"""Returns the dict of a module's variables, even if the module's class overrides ``__dict__``."""


def referents(*things: Any) -> list[Any]:
    """Return the objects to which some objects refer, as ``gc.get_referents`` does.

    For a module, only its dict of variables is returned, not the references in its C state. In CPython
    3.12.0 to 3.12.5, the C state of ``_asyncio`` lists freed objects: ``gc.get_referents`` revives them, and
    the next collection never ends (gh-122695).
    """
    if not _have_modules(things):
        return gc.get_referents(*things)
    modules = [thing for thing in things if type(thing) is ModuleType]
    others = [thing for thing in things if type(thing) is not ModuleType]
    return [*map(module_names, modules), *gc.get_referents(*others)]


def referents_of_each(things: Sequence[Any]) -> Iterator[list[Any]]:
    """Return an iterator over the referents of each object."""
    return map(referents if _have_modules(things) else gc.get_referents, things)


def attribute_dicts(*things: Any) -> list[dict[str, Any]]:
    """Return the dicts to which some objects refer, such as their ``__dict__``. Modules are not supported.

    Unlike ``vars``, this does not create a ``__dict__``.
    """
    return [part for part in gc.get_referents(*things) if type(part) is dict]


def _have_modules(things: Sequence[Any]) -> bool:
    return any(map(operator.is_, map(type, things), repeat(ModuleType)))
