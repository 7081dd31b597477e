"""The IPython extension: reports of the arrays and trees of arrays that cells end in."""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .notebook import Bundle, bundle_of, shows_html

if TYPE_CHECKING:
    from jax_array_info_core import Report

_log = logging.getLogger("jax_array_info")

_ON_DEVICES = ("array", "abstract", "tracer")
"""Kinds of leaves that make a container a tree of arrays. NumPy arrays alone do not: a tuple of them, which
many functions of other libraries return, is worth more with its values."""


def load_ipython_extension(shell: Any) -> None:
    """Show reports of JAX arrays and of trees of JAX arrays as the output of cells.

    IPython calls it for ``%load_ext jax_array_info``.

    Args:
        shell: The IPython shell.
    """
    formatter = getattr(shell, "display_formatter", None)
    if formatter is not None and _loaded_format(formatter) is None:
        formatter.format = _Format(formatter)
        _loaded[formatter] = weakref.ref(formatter.format)


def unload_ipython_extension(shell: Any) -> None:
    """Show arrays and trees as before. IPython calls it for ``%unload_ext jax_array_info``.

    Args:
        shell: The IPython shell.
    """
    formatter = getattr(shell, "display_formatter", None)
    loaded = None if formatter is None else _loaded_format(formatter)
    if loaded is not None:
        loaded.end(formatter)
        del _loaded[formatter]


class _Format:
    """The ``format`` method of a shell's display formatter while the extension is loaded.

    A formatter for single types would not do: any class can be a tree, and IPython prefers its own text for
    dicts, lists and tuples.
    """

    def __init__(self, formatter: Any) -> None:
        self._before: Callable[..., tuple[dict[str, Any], dict[str, Any]]] = formatter.format
        self._was_set = "format" in vars(formatter)
        self._is_active = True

    def __call__(self, value: Any, include: Any = None, exclude: Any = None) -> Any:
        """Return the representations of a value by MIME type, and their metadata."""
        bundle = _bundle(value) if self._is_active else None
        shown = {
            mime: text
            for mime, text in (bundle or {}).items()
            if (not include or mime in include) and not (exclude and mime in exclude)
        }
        return (shown, {}) if shown else self._before(value, include=include, exclude=exclude)

    def end(self, formatter: Any) -> None:
        """Restore the method of before, unless another extension has replaced it since."""
        self._is_active = False
        if vars(formatter).get("format") is not self:
            return
        if self._was_set:
            formatter.format = self._before
        else:
            del formatter.format


_loaded: weakref.WeakKeyDictionary[Any, weakref.ref[_Format]] = weakref.WeakKeyDictionary()
"""Methods by display formatter, for the shells that have loaded the extension."""


def _loaded_format(formatter: Any) -> _Format | None:
    """Return the method that the extension has set; None if it is not loaded."""
    found = _loaded.get(formatter)
    return None if found is None else found()


def _bundle(value: Any) -> Bundle | None:
    """Return the bundle of the report of an array or a tree; None for any other value, and after an error."""
    if "jax" not in sys.modules:
        return None
    try:
        report = None if hasattr(type(value), "_ipython_display_") else _report(value)
        return None if report is None else _bundle_of_report(report)
    except Exception:
        # The value of a cell can be anything, and the cell must show something.
        _log.exception("could not display the report of a %s", type(value).__name__)
        return None


def _report(value: Any) -> Report | None:
    """Return the report of an array or a tree of arrays; None for any other value."""
    import jax

    from jax_array_info_core import Report, array_report, tree_report
    from jax_array_info_core.arrays.boxes import content_of
    from jax_array_info_core.compat import values
    from jax_array_info_core.trees.leaves import is_tree

    if isinstance(value, Report) or type(value) in (int, float, str, bytes, bool, type(None)):
        return None
    if _has_only_plain_entries(value):
        return None
    content = content_of(value)
    if values.is_array(content) or issubclass(type(content), jax.ShapeDtypeStruct):
        return array_report(content)
    if not is_tree(value):
        return None
    report = tree_report(value)
    return report if any(row.kind in _ON_DEVICES for row in report.rows) else None


def _has_only_plain_entries(value: Any) -> bool:
    """Return whether a list or tuple has only numbers and texts, as millions of them are quick to check."""
    plain = {int, float, str, bytes, bool, complex, type(None)}
    return type(value) in (list, tuple) and plain.issuperset(map(type, value))


def _bundle_of_report(report: Report) -> Bundle:
    from ..console import terminal_console
    from ..render import render
    from .document import parts_of

    width = 80 if shows_html() else terminal_console().width
    return bundle_of(render(report, width=width), lambda: parts_of([report]), width)
