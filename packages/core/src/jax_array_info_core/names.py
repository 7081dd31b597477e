"""Public names of the packages: imported at first use, with the places and names of before."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

_ROOMS = ("errors", "layouts", "reports")
"""Documented submodules. Their names were once at the top as well, and are still found there."""

_RENAMED = {
    "assert_sharded": "assert_tree",
    "assert_sharding": "assert_program_sharding",
    "mesh_plan": "planned_mesh_report",
    "program_diff": "program_diff_report",
    "tree_diff": "tree_diff_report",
}
"""New names of functions, by the names of before, which still work."""


def import_on_demand(
    package: str, places: Mapping[str, str], rooms: Sequence[str] = _ROOMS
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a package that imports names at first use.

    Exceptions are found but not listed: ``help()`` would begin with them. They are listed in their room.

    Args:
        package: Name of the package.
        places: The public names by the module that has them, with spaces between names. Type checkers read
            the imports under ``TYPE_CHECKING`` instead; a test compares the two.
        rooms: Submodules with names that were once in the package itself.
    """
    known = vars(sys.modules[package])
    place_of = {name: place for place, names in places.items() for name in names.split()}
    for name in [*place_of, *_RENAMED]:  # a reloaded module still has the names of the first load
        known.pop(name, None)

    def get(name: str) -> Any:
        if sys.is_finalizing() and name in place_of:
            # Imports fail while the interpreter shuts down, and nothing is printed then.
            return lambda *args, **options: None
        if name in place_of:
            known[name] = getattr(import_module(place_of[name], package), name)
            return known[name]
        if name in _RENAMED:
            return get(_RENAMED[name])
        if not name.startswith("_"):
            if find_spec(f"{package}.{name}") is not None:
                return import_module(f"{package}.{name}")
            for room in rooms:
                module = import_module(f"{package}.{room}")
                if name in module.__all__:
                    return getattr(module, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted([*listed, *rooms, *(name for name in known if name.startswith("__"))])

    listed = sorted(name for name in place_of if not name.endswith("Error"))
    return listed, get, names


def with_former_keywords(**new_names: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator that also accepts keywords of before: new names by the former ones."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            __tracebackhide__ = True  # pytest shows the line of the test
            for former, name in new_names.items():
                if former in kwargs:
                    if name in kwargs:
                        raise TypeError(f"{former}= is the former name of {name}=: pass one of them")
                    kwargs[name] = kwargs.pop(former)
            return function(*args, **kwargs)

        return run

    return decorate
