"""Reports in notebooks: below a cell, as its output, and as the output of arrays and trees."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from jax_array_info_core.base.notebooks import Bundle, Displayed

if TYPE_CHECKING:
    import logging

    from rich.console import RenderableType

    from jax_array_info_core.reports import Report

    from .document import Part

_ON_DEVICES = ("array", "abstract", "tracer")
"""Kinds of leaves that make a container a tree of arrays. NumPy arrays alone do not: a tuple of them, which
many functions of other libraries return, is worth more with its values."""

_PLAIN = frozenset({int, float, complex, str, bytes, bool, type(None)})


def _log() -> logging.Logger:
    import logging  # only failures need it; the command starts faster without

    return logging.getLogger("jax_array_info")


def reports_bundle(reports: Sequence[Any], width: int = 80) -> Bundle:
    """Return reports as one document, from top to bottom: text, HTML, and SVG if one is drawn."""
    try:
        from rich.console import Group

        from ..engine.render import render

        return bundle_of(Group(*(render(report, width=width) for report in reports)), reports, width)
    except Exception:
        # A failed picture must not break the cell.
        _log().exception("could not display %s", ", ".join(type(report).__name__ for report in reports))
        return {"text/plain": "\n".join(map(repr, reports))}


def bundle_of(
    renderable: RenderableType, shown: Sequence[Report] | Callable[[], Sequence[Part]], width: int = 80
) -> Bundle:
    """Return the bundle of a renderable and its drawings.

    Args:
        renderable: The text of a terminal.
        shown: The reports, or a function that returns the parts of a page. An error in it is logged, and the
            bundle has only text.
        width: Characters per line.
    """
    from ..engine.render import text_of

    bundle = {"text/plain": text_of(renderable, width=width)}
    if not shows_html():
        return bundle
    try:
        from ..svg import Figure
        from .document import columns_svg, parts_html, parts_of, shown_in_notebook

        parts = shown() if callable(shown) else parts_of(shown)
        bundle["text/html"] = parts_html(parts, width, shown_in_notebook())
        if any(isinstance(part, Figure) for part in parts):
            # nbconvert uses it for PDF output.
            bundle["image/svg+xml"] = columns_svg([parts], width=width)
    except Exception:
        # A failed picture must never end a run.
        _log().exception("could not draw the picture; only the text is shown")
    return bundle


def display(bundle: Bundle) -> None:
    """Display a bundle below the notebook cell that is running."""
    from IPython.display import display as show

    show(bundle, raw=True)


def shows_html() -> bool:
    """Return whether the frontend shows HTML, as all do except IPython in a terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()  # None outside of IPython
    types = getattr(getattr(shell, "display_formatter", None), "active_types", None)
    return types is None or "text/html" in types


def value_bundle(value: Any) -> Bundle | None:
    """Return the bundle of the reports of a value; None without a report, and after an error."""
    try:
        reports = () if hasattr(type(value), "_ipython_display_") else _reports(value)
        if not reports:
            return None
        from ..style import terminal_console

        return reports_bundle(reports, 80 if shows_html() else terminal_console().width)
    except Exception:
        # The value of a cell can be anything, and the cell must show something.
        _log().exception("could not display the report of a %s", type(value).__name__)
        return None


def _reports(value: Any) -> Sequence[Any]:
    """Return the reports in a list or tuple, or the report of an array or a tree of arrays."""
    if type(value) in (list, tuple) and all(isinstance(entry, Displayed) for entry in value):
        return tuple(value)
    entries = value.values() if type(value) is dict else value
    if type(value) in (list, tuple, dict) and _PLAIN.issuperset(map(type, entries)):
        return ()  # most containers, quickly
    if type(value) in _PLAIN or isinstance(value, Displayed) or "jax" not in sys.modules:
        return ()
    import jax

    from jax_array_info_core import array_report, tree_report
    from jax_array_info_core.arrays.boxes import content_of
    from jax_array_info_core.compat import values
    from jax_array_info_core.trees.leaves import is_tree

    content = content_of(value)
    if values.is_array(content) or issubclass(type(content), jax.ShapeDtypeStruct):
        return (array_report(content),)
    report = tree_report(value) if is_tree(value) else None
    return (report,) if report and any(row.kind in _ON_DEVICES for row in report.rows) else ()
