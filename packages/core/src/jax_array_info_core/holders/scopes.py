"""Roots of reference paths: variables of modules and running functions, and the owner of each."""

from __future__ import annotations

import enum
import os
import sys
import threading
from collections.abc import Collection, Iterator
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from ..compat.jax_stack import frames, stacks_of_other_threads
from ..compat.jitted import module_names
from ..config import config
from ..origins.origins import HIDDEN_MODULES, JAX_MODULES, OUR_MODULES
from .links import (
    Link,
    Reader,
    copied_items,
    frame_locals,
    frame_names,
    is_module_body,
    is_traced,
    name_in,
    word,
)

_NOTEBOOKS = ("IPython", "ipykernel")
"""Modules that run the cells of a notebook."""


class Owner(enum.IntEnum):
    """The owner of a variable. Reference paths are searched in this order."""

    USER = 0
    LIBRARY = 1
    """The standard library, the modules that run a notebook, or a hidden module."""
    MACHINERY = 2
    """JAX or this package. They do not count as referrers."""


def owner_of(module: str | None) -> Owner:
    """Return the owner of a module by its name; ``USER`` for a module without a name."""
    if module is None or module == "__main__":
        return Owner.USER
    top = module.partition(".")[0]
    if top in (*JAX_MODULES, *OUR_MODULES):
        return Owner.MACHINERY
    hidden = (*HIDDEN_MODULES, *_NOTEBOOKS, *config.hidden_modules)
    if top in sys.stdlib_module_names or f"{module}.".startswith(tuple(f"{name}." for name in hidden)):
        return Owner.LIBRARY
    return Owner.USER


class Namespace(NamedTuple):
    """The variables of a module, or of code run by ``exec``."""

    names: dict[Any, Any]
    """The variables by name: the dict itself."""

    label: str
    """The first part of a reference path: ``train`` for the script ``train.py``, empty in a session without
    a file."""

    owner: Owner
    """The owner of the module."""

    def links(self, among: Collection[int]) -> Iterator[Link]:
        """Yield the links to the objects with the given ids."""
        before = f"{self.label}." if self.label else ""
        for name, value in copied_items(self.names):
            if id(value) in among:
                yield Link(f"{before}{word(name)}", value, True)


class Scopes:
    """The namespaces by id, and the variables of the running functions of all threads."""

    def __init__(self) -> None:
        self.namespaces: dict[int, Namespace] = {}
        self.variables: list[tuple[Owner, Link]] = []
        self.is_complete = True
        """Whether the variables of all running functions could be read."""
        for name, module in list(sys.modules.items()):
            if issubclass(type(module), ModuleType):
                self._add(module_names(module), word(name), word(name))
        self._add_stack(frames(), "", is_of_this_thread=True)
        names = _thread_names()
        for ident, stack in stacks_of_other_threads():
            self._add_stack(stack, names.get(ident, f"thread {ident}: "), is_of_this_thread=False)

    def _add(self, names: Any, label: str, module: str | None) -> None:
        if issubclass(type(names), dict) and id(names) not in self.namespaces:
            self.namespaces[id(names)] = Namespace(names, _label(names, label), owner_of(module))

    def _add_stack(self, stack: Iterator[FrameType], prefix: str, *, is_of_this_thread: bool) -> None:
        """Add the variables of a thread's running functions, with a prefix before each name.

        Args:
            stack: The frames of the thread, the innermost first.
            prefix: The text before their names, such as ``thread loader: ``.
            is_of_this_thread: Whether it is the current thread.
        """
        is_watched = False
        for frame in stack:
            module, is_of_module = name_in(frame.f_globals), id(frame.f_globals) in self.namespaces
            # Code run by exec may set any __name__, so its label does not use it.
            self._add(frame.f_globals, "__main__", module)
            is_body, owner = is_module_body(frame), owner_of(module)
            # The dict that exec works on may be the f_locals of the calling function.
            is_exec = frame.f_code.co_name == "<module>" and not (is_body and is_of_module)
            is_watched = is_watched or is_exec or is_traced(frame, is_of_this_thread=is_of_this_thread)
            if is_body or owner == Owner.MACHINERY:
                continue
            variables = frame_locals(frame, is_watched=is_watched)
            self.is_complete = self.is_complete and variables is not None
            for name, value in frame_names(frame, variables):
                self.variables.append((owner, Link(f"{prefix}{name}", value, True)))


def _thread_names() -> dict[Any, str]:
    """Return the prefix of the variables of each thread's functions, by the thread's ident."""
    reader, names = Reader(), dict[Any, str]()
    for thread in threading.enumerate():
        # A Thread subclass may override properties with user code.
        kept = {word(name): value for name, value in reader.attributes(thread)}
        is_main = thread is threading.main_thread()
        names[kept.get("_ident")] = "" if is_main else f"thread {word(kept.get('_name'))}: "
    return names


def _label(names: dict[Any, Any], module: str) -> str:
    if module != "__main__":
        return module
    file = dict.get(names, "__file__")
    stem = os.path.splitext(os.path.basename(word(file)))[0] if type(file) is str else ""
    return word(dict.get(names, "__package__") or stem) if stem == "__main__" else stem
