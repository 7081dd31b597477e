"""Reports in notebooks: pictures where the page can show them, text in a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, get_args

from rich.console import RenderableType

from jax_array_info_core import Report

from .render import render, text_of

if TYPE_CHECKING:
    from .drawing.pictures import Part

_log = logging.getLogger("jax_array_info")

Bundle = dict[str, str]
"""The same by MIME types, of which a notebook takes the one that it shows best."""


def show_reports_in_notebooks() -> None:
    """Give every class of report the method that Jupyter, Colab and IPython ask for what to show."""
    for report in get_args(Report):
        report._repr_mimebundle_ = _repr_mimebundle_


def _repr_mimebundle_(self: Report, include: Any = None, exclude: Any = None, **options: Any) -> Bundle:
    """Return the report as text and HTML, and as SVG where it is drawn; in a terminal as text alone."""

    def parts() -> Sequence[Part]:
        from .drawing.pictures import parts_of

        return parts_of(self)

    try:
        return bundle_of(render(self), parts)
    except Exception:
        # A picture must not break what it shows.
        _log.exception("a %s could not be shown", type(self).__name__)
        return {"text/plain": repr(self)}


def bundle_of(renderable: RenderableType, parts: Callable[[], Sequence[Part]], width: int = 80) -> Bundle:
    """Return what a notebook shows.

    Args:
        renderable: What a terminal shows.
        parts: Returns what a page shows. Where that fails, it is logged, and there is text alone.
        width: Number of characters a line may have.
    """
    bundle = {"text/plain": text_of(renderable, width=width)}
    if not _shows_html():
        return bundle
    try:
        from .drawing.figures import Figure, svg
        from .drawing.pictures import figure_of, parts_html

        shown = parts()
        bundle["text/html"] = parts_html(shown, width)
        if any(isinstance(part, Figure) for part in shown):
            # For what makes papers of notebooks.
            bundle["image/svg+xml"] = svg(figure_of(shown, width))
    except Exception:
        # As in a traced program: whatever is wrong with a picture is no reason to end a run.
        _log.exception("a picture could not be made")
    return bundle


def display(bundle: Bundle) -> None:
    """Show something under the cell of a notebook that runs."""
    from IPython.display import display as show

    show(bundle, raw=True)


def _shows_html() -> bool:
    """Return whether HTML is shown: wherever it is asked for, but in the terminal of IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    types = getattr(getattr(shell, "display_formatter", None), "active_types", None)
    return types is None or "text/html" in types
