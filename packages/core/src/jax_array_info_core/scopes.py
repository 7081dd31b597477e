"""Where names begin: the variables of modules and of functions that run, and whose they are."""

from __future__ import annotations

import enum
import inspect
import os
import sys
import threading
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from .callers import frames, stacks_of_other_threads
from .config import config
from .frame_locals import copied_items
from .links import Link, frame_links
from .origins import HIDDEN_MODULES

_MACHINERY = ("jax", "jaxlib", "jax_plugins", "jax_array_info", "jax_array_info_core", "jax_array_info_cli")


# A module of a class of its own may answer with something else when asked itself.
_names_of = vars(ModuleType)["__dict__"].__get__


class Owner(enum.IntEnum):
    """Whose a name is, the one first of whom a user wants to hear first."""

    USER = 0
    LIBRARY = 1
    """The standard library, or one of the hidden modules."""
    MACHINERY = 2
    """JAX or this package: what they hold is held by nobody whom the user could name."""


def owner_of(module: object) -> Owner:
    """Return whose a module is, by its name; the user's where it has none."""
    if type(module) is not str:
        return Owner.USER
    top = module.partition(".")[0]
    if top in _MACHINERY:
        return Owner.MACHINERY
    hidden = (*HIDDEN_MODULES, *config.hidden_modules)
    if module != "__main__" and top in sys.stdlib_module_names:
        return Owner.LIBRARY
    return Owner.LIBRARY if f"{module}.".startswith(tuple(f"{name}." for name in hidden)) else Owner.USER


class Namespace(NamedTuple):
    """The variables of a module, or of code that was given to ``exec``."""

    names: dict[Any, Any]
    """They themselves."""

    label: str
    """How it is called: ``train`` for the script ``train.py``, empty in a session that has no file."""

    owner: Owner
    """Whose it is."""

    def links(self) -> Iterator[Link]:
        """Yield what it holds."""
        for name, value in copied_items(self.names):
            text = name if type(name) is str else "?"
            yield Link(f"{self.label}.{text}" if self.label else text, value, "scope")


class Scopes:
    """The namespaces by their id, and what the variables of running functions hold."""

    def __init__(self) -> None:
        self.namespaces: dict[int, Namespace] = {}
        self.variables: list[tuple[Owner, Link]] = []
        for name, module in list(sys.modules.items()):
            if issubclass(type(module), ModuleType):
                self._add(_names_of(module), name)

    def _add(self, names: Any, module: object) -> None:
        if isinstance(names, dict) and id(names) not in self.namespaces:
            self.namespaces[id(names)] = Namespace(names, _label(names, module), owner_of(module))

    def add_frame(self, frame: FrameType, before: str) -> None:
        """Add the variables of a function that runs, or of a module that does."""
        module = frame.f_globals.get("__name__")
        self._add(frame.f_globals, module)
        if not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            self._add(frame.f_locals, module)
        elif (owner := owner_of(module)) != Owner.MACHINERY:
            self.variables += ((owner, link) for link in frame_links(frame, before))


def running_scopes() -> Scopes:
    """Return the scopes of all that runs, in all threads."""
    scopes = Scopes()
    for frame in frames():
        scopes.add_frame(frame, "")
    threads = {thread.ident: thread for thread in threading.enumerate()}
    for ident, stack in stacks_of_other_threads():
        thread = threads.get(ident)
        before = "" if thread is threading.main_thread() else f"thread {thread.name if thread else ident}: "
        for frame in stack:
            scopes.add_frame(frame, before)
    return scopes


def _label(names: dict[Any, Any], module: object) -> str:
    if module != "__main__":
        return module if type(module) is str else ""
    file = names.get("__file__")
    stem = os.path.splitext(os.path.basename(file))[0] if type(file) is str else ""
    return str(names.get("__package__") or stem) if stem == "__main__" else stem
