"""Display of reports in notebooks, by the renderer that is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Bundle = dict[str, str]
"""Representations by MIME type; a notebook shows the richest one that it supports."""


class Displayed:
    """Base of all reports, which a notebook shows as the output of a cell."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None, **options: Any) -> Bundle:
        """Return the report as text and HTML, and as SVG if it is drawn; in a terminal as text only.

        Jupyter, Colab and IPython call it. Without a renderer, the text is the ``repr``.
        """
        return _show(self)


def _as_repr(report: Any) -> Bundle:
    return {"text/plain": repr(report)}


_show: Callable[[Any], Bundle] = _as_repr


def show_reports_with(renderer: Callable[[Any], Bundle]) -> None:
    """Register the function that returns the representations of a report."""
    global _show
    _show = renderer
