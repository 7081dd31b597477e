"""The line of the user's code that made something: the innermost frame that is nobody else's."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from . import compat
from .config import config
from .memory_model import Origin

HIDDEN_MODULES = (
    "jax",
    "jaxlib",
    "jax_plugins",
    "flax",
    "optax",
    "equinox",
    "jax_array_info",
    "jax_array_info_core",
    "jax_array_info_cli",
)
"""Modules whose frames are never the origin; ``config.hidden_modules`` are more."""

_STANDARD_LIBRARY = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib"))
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>")


def array_origins() -> Callable[[Any], Origin | None]:
    """Return a function from an array to the line that made it, None where that is not known.

    It remembers what it has read: arrays made by one call of one line have the same traceback.
    """
    is_hidden = hidden_files()
    known: dict[Any, Origin | None] = {}

    def origin(array: Any) -> Origin | None:
        traceback = compat.traceback_of(array)
        if traceback is None:
            return None
        if traceback not in known:
            known[traceback] = innermost(compat.traceback_lines(traceback), is_hidden)
        return known[traceback]

    return origin


def innermost(lines: Iterable[tuple[str, int, str]], is_hidden: Callable[[str], bool]) -> Origin | None:
    """Return the first line that is the user's, None where there is none.

    Args:
        lines: File, line and function of each frame, the innermost first.
        is_hidden: Whether a file is not the user's.
    """
    rest = iter(lines)
    for file, line, function in rest:
        if not is_hidden(file):
            # Some versions of jax name functions with what they are in.
            name = function.rpartition(".")[2]
            while name in _COMPREHENSIONS:
                # Up to Python 3.11 they are functions of their own, called where they stand.
                name = next(rest)[2].rpartition(".")[2]
            return Origin(file, line, name)
    return None


def hidden_files() -> Callable[[str], bool]:
    """Return a function that says whether a file is of a hidden module or the standard library."""
    folders: list[str] = []
    files: set[str] = set()
    for name in (*HIDDEN_MODULES, *config.hidden_modules):
        module = sys.modules.get(name)
        if module is not None:
            folders += [os.path.join(path, "") for path in _folders(module)]
            files.add(getattr(module, "__file__", None) or "")

    @functools.cache
    def is_hidden(file: str) -> bool:
        if file.startswith("<frozen ") or file in files or file.startswith(tuple(folders)):
            return True
        return file.startswith(_STANDARD_LIBRARY) and not any(name in file for name in _INSTALLED)

    return is_hidden


def _folders(module: ModuleType) -> list[str]:
    return list(getattr(module, "__path__", ()))
