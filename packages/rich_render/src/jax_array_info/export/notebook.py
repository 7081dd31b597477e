"""Reports in notebooks: pictures where the page can show them, text in a terminal."""

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
"""The same by MIME types, of which a notebook takes the one that it shows best."""


def show_reports_in_notebooks() -> None:
    """Give every class of report the method that Jupyter, Colab and IPython ask for what to show.

    Lists and tuples have no such method: of these, a running IPython is told.
    """
    for report in get_args(Report):
        report._repr_mimebundle_ = _repr_mimebundle_
    formatter = getattr(getattr(_shell(), "display_formatter", None), "mimebundle_formatter", None)
    if formatter is not None:
        for sequence in (list, tuple):
            formatter.for_type(sequence, functools.partial(_sequence_bundle, formatter.for_type(sequence)))


def _sequence_bundle(before: Callable[[Any], Any] | None, values: Sequence[Any]) -> Any:
    """Return the reports of a list or tuple, each under the one before; for other lists what IPython shows.

    Args:
        before: What showed lists until now.
        values: The list.
    """
    if type(values) in (list, tuple) and values and all(isinstance(value, Report) for value in values):
        return _reports_bundle(values)
    if before is not None:
        return before(values)
    # A class of lists may say itself how it is shown.
    method = getattr(type(values), "_repr_mimebundle_", None)
    return None if method is None else method(values, include=None, exclude=None)


def _repr_mimebundle_(self: Report, include: Any = None, exclude: Any = None, **options: Any) -> Bundle:
    """Return the report as text and HTML, and as SVG where it is drawn; in a terminal as text alone."""
    return _reports_bundle([self])


def _reports_bundle(reports: Sequence[Report]) -> Bundle:
    """Return reports as one document, each under the one before."""
    from rich.console import Group

    from ..render import render

    def parts() -> Sequence[Part]:
        from .document import parts_of

        return parts_of(reports)

    try:
        return bundle_of(Group(*map(render, reports)), parts)
    except Exception:
        # A picture must not break what it shows.
        _log.exception("could not display %s", ", ".join(type(report).__name__ for report in reports))
        return {"text/plain": "\n".join(map(repr, reports))}


def bundle_of(renderable: RenderableType, parts: Callable[[], Sequence[Part]], width: int = 80) -> Bundle:
    """Return what a notebook shows.

    Args:
        renderable: What a terminal shows.
        parts: Returns what a page shows. Where that fails, it is logged, and there is text alone.
        width: Number of characters a line may have.
    """
    from ..render import text_of

    bundle = {"text/plain": text_of(renderable, width=width)}
    if not _shows_html():
        return bundle
    try:
        from ..svg.figure import Figure
        from .document import columns_svg, parts_html

        shown = parts()
        bundle["text/html"] = parts_html(shown, width)
        if any(isinstance(part, Figure) for part in shown):
            # For what makes papers of notebooks.
            bundle["image/svg+xml"] = columns_svg([shown], width=width)
    except Exception:
        # As in a traced program: whatever is wrong with a picture is no reason to end a run.
        _log.exception("could not draw the picture; only the text is shown")
    return bundle


def display(bundle: Bundle) -> None:
    """Show something under the cell of a notebook that runs."""
    from IPython.display import display as show

    show(bundle, raw=True)


def _shows_html() -> bool:
    """Return whether HTML is shown: wherever it is asked for, but in the terminal of IPython."""
    types = getattr(getattr(_shell(), "display_formatter", None), "active_types", None)
    return types is None or "text/html" in types


def _shell() -> Any:
    """Return the IPython that runs, in a notebook or in a terminal; None where none does."""
    ipython = sys.modules.get("IPython")
    return getattr(ipython, "get_ipython", lambda: None)()
