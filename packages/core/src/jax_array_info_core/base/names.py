"""Public names of the packages: imported at first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

_ROOMS = ("errors", "layouts", "reports")
"""Documented submodules."""


def import_on_demand(
    package: str, places: Mapping[str, str], rooms: Sequence[str] = _ROOMS
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package that imports names at first use.

    Exceptions are found but not listed: ``help()`` would begin with them. They are listed in their room.

    Args:
        package: Name of the package.
        places: The public names by the module that has them, with spaces between names. Type checkers read
            the imports under ``TYPE_CHECKING`` instead; a test compares the two.
        rooms: Submodules that are listed, too.
    """
    known = vars(sys.modules[package])
    place_of = {name: place for place, names in places.items() for name in names.split()}
    for name in place_of:  # a reloaded module still has the names of the first load
        known.pop(name, None)

    def get(name: str) -> Any:
        if sys.is_finalizing() and name in place_of:
            # Imports fail while the interpreter shuts down, and nothing is printed then.
            return lambda *args, **options: None
        if name in place_of:
            known[name] = getattr(import_module(place_of[name], package), name)
            return known[name]
        if name.isidentifier() and not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted([*listed, *rooms, *(name for name in known if name.startswith("__"))])

    listed = sorted(name for name in place_of if not name.endswith("Error"))
    return listed, get, names
