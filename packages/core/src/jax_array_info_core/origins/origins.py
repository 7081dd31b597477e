"""Origins: the line of the user's code that made something, its innermost frame outside libraries."""

from __future__ import annotations

import functools
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from types import CodeType
from typing import Any

from .. import compat
from ..config import config
from ..reports.origin import Origin

JAX_MODULES = ("jax", "jaxlib", "jax_plugins")
"""Those of JAX itself."""

OUR_MODULES = ("jax_array_info", "jax_array_info_core", "jax_array_info_cli")
"""Those of this package."""

HIDDEN_MODULES = (*JAX_MODULES, "flax", "optax", "equinox", *OUR_MODULES)
"""Modules whose frames are never the origin; ``config.hidden_modules`` are more."""

_STANDARD_LIBRARY = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib"))
_ANY_STANDARD_LIBRARY = re.compile(r"^/.*/lib(?:64)?/python3\.\d+t?/|^[A-Za-z]:\\.*\\Python3\d+\\Lib\\")
"""Where it usually is, on any machine."""
_INSTALLED = tuple(f"{sep}{name}{sep}" for name in ("site-packages", "dist-packages") for sep in "/\\")
_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>")


def array_origins() -> Callable[[Any], Origin | None]:
    """Return a function from an array to the line that made it, None where that is not known.

    It remembers what it has read: arrays made by one call of one line have the same traceback.
    """
    is_hidden = hidden_files()

    @functools.cache
    def made_at(traceback: Any) -> Origin | None:
        return innermost(compat.traceback_lines(traceback), is_hidden)

    def origin(array: Any) -> Origin | None:
        traceback = compat.traceback_of(array)
        return None if traceback is None else made_at(traceback)

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
            # Up to Python 3.11 comprehensions are functions of their own, called where they stand.
            while name in _COMPREHENSIONS and (outer := next(rest, None)):
                name = outer[2].rpartition(".")[2]
            return Origin(file=file, line=line, function=name)
    return None


def code_origin(code: CodeType) -> Origin:
    """Return where a function is defined."""
    return Origin(file=code.co_filename, line=code.co_firstlineno, function=code.co_name)


def hidden_files() -> Callable[[str], bool]:
    """Return a function that says whether a file is of a hidden module or the standard library.

    Files of other machines, of which a profile tells, are known by the names of their folders.
    """
    is_of_module = files_of((*HIDDEN_MODULES, *config.hidden_modules))

    @functools.cache
    def is_hidden(file: str) -> bool:
        if file.startswith("<frozen ") or is_of_module(file):
            return True
        is_standard = file.startswith(_STANDARD_LIBRARY) or _ANY_STANDARD_LIBRARY.search(file) is not None
        return is_standard and not any(name in file for name in _INSTALLED)

    return is_hidden


def files_of(modules: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that says whether a file is of one of some modules, or of what is in them."""
    folders: list[str] = []
    files: set[str] = set()
    for name in modules:
        module = sys.modules.get(name)
        if module is not None:
            folders += (os.path.join(path, "") for path in getattr(module, "__path__", ()))
            files.add(getattr(module, "__file__", None) or "")
    names = "|".join(re.escape(name).replace(r"\.", "/") for name in modules)
    elsewhere = re.compile(rf"/(?:site|dist)-packages/(?:{names})(?:/|\.py$)")

    def is_of_module(file: str) -> bool:
        if file in files or file.startswith(tuple(folders)):
            return True
        return elsewhere.search(file.replace("\\", "/")) is not None

    return is_of_module
