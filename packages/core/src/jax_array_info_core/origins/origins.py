"""Allocation sites: the innermost frame of the user's code, outside JAX and other libraries."""

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
"""Modules of JAX itself."""

OUR_MODULES = ("jax_array_info", "jax_array_info_core", "jax_array_info_cli")
"""Modules of this project."""

HIDDEN_MODULES = (*JAX_MODULES, "flax", "optax", "equinox", *OUR_MODULES)
"""Modules whose frames are skipped; ``config.hidden_modules`` adds more."""

_STANDARD_LIBRARY = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib"))
_ANY_STANDARD_LIBRARY = re.compile(r"^/.*/lib(?:64)?/python3\.\d+t?/|^[A-Za-z]:\\.*\\Python3\d+\\Lib\\")
"""Usual folders of the standard library, for profiles from other machines."""
_INSTALLED = tuple(f"{sep}{name}{sep}" for name in ("site-packages", "dist-packages") for sep in "/\\")
_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>")


def array_origins() -> Callable[[Any], Origin | None]:
    """Return a function from an array to its allocation site, None where JAX recorded none.

    The function caches its results, since arrays from one call of one line have the same traceback.
    """
    is_hidden = hidden_files()

    @functools.cache
    def site_of(traceback: Any) -> Origin | None:
        return innermost(compat.traceback_lines(traceback), is_hidden)

    def origin(array: Any) -> Origin | None:
        traceback = compat.traceback_of(array)
        return None if traceback is None else site_of(traceback)

    return origin


def innermost(lines: Iterable[tuple[str, int, str]], is_hidden: Callable[[str], bool]) -> Origin | None:
    """Return the innermost frame of the user's code; None if there is none.

    Args:
        lines: File, line and function of each frame, innermost first.
        is_hidden: A function that returns whether to skip the frames of a file.
    """
    rest = iter(lines)
    for file, line, function in rest:
        if not is_hidden(file):
            # Some versions of JAX record qualified names.
            name = function.rpartition(".")[2]
            # Up to Python 3.11, a comprehension is a function with its own frame.
            while name in _COMPREHENSIONS and (outer := next(rest, None)):
                name = outer[2].rpartition(".")[2]
            return Origin(file=file, line=line, function=name)
    return None


def code_origin(code: CodeType) -> Origin:
    """Return the file, the first line and the name of a function."""
    return Origin(file=code.co_filename, line=code.co_firstlineno, function=code.co_name)


def hidden_files() -> Callable[[str], bool]:
    """Return a function that checks whether a file belongs to a hidden module or the standard library.

    Files of other machines, as in a profile, are recognized by the names of their folders.
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
    """Return a function that checks whether a file belongs to one of some modules or packages."""
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
