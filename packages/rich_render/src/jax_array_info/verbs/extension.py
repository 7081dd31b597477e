"""The IPython extension: reports as the output of cells, and explanations of their errors."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

from ..export.notebook import value_bundle


def load(shell: Any) -> None:
    """Replace the methods of a shell that show the values and the errors of cells."""
    for owner, method in _methods(shell):
        if _loaded_method(owner) is None:
            replaced = method(owner)
            setattr(owner, method.name, replaced)
            _loaded[owner] = weakref.ref(replaced)


def unload(shell: Any) -> None:
    """Restore the methods of a shell, if they were replaced."""
    for owner, _ in _methods(shell):
        loaded = _loaded_method(owner)
        if loaded is not None:
            loaded.end(owner)
            del _loaded[owner]


class _Replaced:
    """A method of an object while the extension is loaded."""

    name: str

    def __init__(self, owner: Any) -> None:
        self._before: Callable[..., Any] = getattr(owner, self.name)
        self._was_set = self.name in vars(owner)
        self._is_active = True

    def end(self, owner: Any) -> None:
        """Restore the method of before, unless another extension has replaced it since."""
        self._is_active = False
        if vars(owner).get(self.name) is not self:
            return
        if self._was_set:
            setattr(owner, self.name, self._before)
        else:
            delattr(owner, self.name)


class _Format(_Replaced):
    """The ``format`` method of a shell's display formatter.

    A formatter for single types would not do: any class can be a tree, and IPython prefers its own text for
    dicts, lists and tuples.
    """

    name = "format"

    def __call__(self, value: Any, include: Any = None, exclude: Any = None) -> Any:
        """Return the representations of a value by MIME type, and their metadata."""
        bundle = value_bundle(value) if self._is_active else None
        shown = {
            mime: text
            for mime, text in (bundle or {}).items()
            if (not include or mime in include) and not (exclude and mime in exclude)
        }
        return (shown, {}) if shown else self._before(value, include=include, exclude=exclude)


class _ShowTraceback(_Replaced):
    """The ``showtraceback`` method of a shell, which it calls for an error of a cell."""

    name = "showtraceback"

    def __call__(self, exc_tuple: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Print the explanation of an error before its traceback."""
        error = sys.exception() if exc_tuple is None else exc_tuple[1]
        if self._is_active and error is not None:
            from .explain import tell_if_explained

            tell_if_explained(error)
        return self._before(exc_tuple, *args, **kwargs)


_loaded: weakref.WeakKeyDictionary[Any, weakref.ref[_Replaced]] = weakref.WeakKeyDictionary()
"""Methods by display formatter and by shell, for the shells that have loaded the extension."""


def _methods(shell: Any) -> list[tuple[Any, type[_Replaced]]]:
    """Return the objects of a shell with a method that the extension replaces."""
    owners = [(getattr(shell, "display_formatter", None), _Format), (shell, _ShowTraceback)]
    return [(owner, method) for owner, method in owners if hasattr(owner, method.name)]


def _loaded_method(owner: Any) -> _Replaced | None:
    """Return the method that the extension has set; None if it is not loaded."""
    method = _loaded.get(owner)
    return None if method is None else method()
