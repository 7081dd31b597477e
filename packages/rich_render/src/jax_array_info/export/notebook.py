"""Rich display of reports in notebooks; text in a terminal."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, get_args

from jax_array_info_core import Report

if TYPE_CHECKING:
    from rich.console import RenderableType

    from .document import Part

_log = logging.getLogger("jax_array_info")

Bundle = dict[str, str]
"""Representations by MIME type; a notebook shows the richest one that it supports."""


def show_reports_in_notebooks() -> None:
    """Add ``_repr_mimebundle_``, which Jupyter, Colab and IPython call, to every report class.

    Lists and tuples cannot have such a method, so a formatter for them is registered with a running IPython.
    """
    for report in get_args(Report):
        report._repr_mimebundle_ = _repr_mimebundle_
    formatter = getattr(getattr(_shell(), "display_formatter", None), "mimebundle_formatter", None)
    if formatter is not None:
        for sequence in (list, tuple):
            formatter.for_type(sequence, functools.partial(_sequence_bundle, formatter.for_type(sequence)))


def _sequence_bundle(before: Callable[[Any], Any] | None, values: Sequence[Any]) -> Any:
    """Return the bundle of a list or tuple of reports; for other sequences, IPython's own.

    Args:
        before: The formatter that was registered before.
        values: The list or tuple.
    """
    if type(values) in (list, tuple) and values and all(isinstance(value, Report) for value in values):
        return _reports_bundle(values)
    if before is not None:
        return before(values)
    # A subclass of list may define its own bundle.
    method = getattr(type(values), "_repr_mimebundle_", None)
    return None if method is None else method(values, include=None, exclude=None)


def _repr_mimebundle_(self: Report, include: Any = None, exclude: Any = None, **options: Any) -> Bundle:
    """Return the report as text and HTML, and as SVG if it is drawn; in a terminal as text only."""
    return _reports_bundle([self])


def _reports_bundle(reports: Sequence[Report]) -> Bundle:
    """Return the bundle of reports as one document, from top to bottom."""
    from rich.console import Group

    from ..render import render

    def parts() -> Sequence[Part]:
        from .document import parts_of

        return parts_of(reports)

    try:
        return bundle_of(Group(*map(render, reports)), parts)
    except Exception:
        # A failed picture must not break the cell.
        _log.exception("could not display %s", ", ".join(type(report).__name__ for report in reports))
        return {"text/plain": "\n".join(map(repr, reports))}


def bundle_of(renderable: RenderableType, parts: Callable[[], Sequence[Part]], width: int = 80) -> Bundle:
    """Return the bundle of a renderable and its drawings.

    Args:
        renderable: The text of a terminal.
        parts: Returns the parts of a page. An error in it is logged, and the bundle has only text.
        width: Characters per line.
    """
    from ..render import text_of

    bundle = {"text/plain": text_of(renderable, width=width)}
    if not shows_html():
        return bundle
    try:
        from ..svg import Figure
        from .document import columns_svg, parts_html

        shown = parts()
        bundle["text/html"] = parts_html(shown, width)
        if any(isinstance(part, Figure) for part in shown):
            # nbconvert uses it for PDF output.
            bundle["image/svg+xml"] = columns_svg([shown], width=width)
    except Exception:
        # A failed picture must never end a run.
        _log.exception("could not draw the picture; only the text is shown")
    return bundle


def display(bundle: Bundle) -> None:
    """Display a bundle below the notebook cell that is running."""
    from IPython.display import display as show

    show(bundle, raw=True)


def shows_html() -> bool:
    """Return whether the frontend shows HTML, as all do except IPython in a terminal."""
    types = getattr(getattr(_shell(), "display_formatter", None), "active_types", None)
    return types is None or "text/html" in types


def _shell() -> Any:
    """Return the running IPython shell of a notebook or terminal, None without one."""
    ipython = sys.modules.get("IPython")
    return getattr(ipython, "get_ipython", lambda: None)()
