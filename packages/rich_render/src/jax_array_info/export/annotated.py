"""Reports with notes in the margin of the user's source."""

from __future__ import annotations

import hashlib
import html
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from jax_array_info_core import to_json
from jax_array_info_core.reports import ProgramReport, PropagationReport

from ..svg import FONT, lines_html
from .source_html import source_html
from .source_lines import LeafLine, MarkedLine
from .source_text import source_text


@dataclass(frozen=True, slots=True)
class Annotated:
    """A part of a document: a summary, the user's source with marked lines, then the details."""

    report: ProgramReport | PropagationReport

    lines: Sequence[MarkedLine]
    """The marked lines, the costliest first."""

    title: Text
    """Title of the source."""

    heads: Sequence[str]
    """Heads of the bytes of the lines."""

    summary: Callable[[int], RenderableType]
    """Function that returns what is above the source at a width."""

    details: Callable[[int], RenderableType]
    """Function that returns what is below the source at a width."""

    max_rows: int | None = 20
    """Maximum number of lines with notes in text."""

    leaves: Sequence[LeafLine] = ()
    """Arguments and outputs that notes refer to."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.summary(options.max_width)
        yield source_text(self.lines, self.title, leaves=self.leaves, max_rows=self.max_rows)
        yield self.details(options.max_width)


class Prefixes:
    """The begins of the ids of the reports on a page: a hash, and a number if a report is there again."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def of(self, report: ProgramReport | PropagationReport) -> str:
        """Return the begin of the ids of the next copy of a report."""
        name = f"jai-{hashlib.sha256(to_json(report).encode()).hexdigest()[:12]}"
        self._counts[name] += 1
        count = self._counts[name]
        return name if count == 1 else f"{name}-copy{count}"


def annotated_html(part: Annotated, width: int = 80, prefixes: Prefixes | None = None) -> str:
    """Return a report as an HTML fragment: its summary, its source with marked lines, then its tables.

    Links lead from the costliest lines to their source, and from notes to what they refer to. Their ids begin
    with a hash of the report, so fragments of different reports can be in one page. The fragment has no
    scripts and no style sheets, and the colors of the page around it.

    Args:
        part: The report.
        width: Characters per line of the tables.
        prefixes: Begins of the ids that the page has already.
    """
    source = ""
    if part.lines:
        prefix = (prefixes or Prefixes()).of(part.report)
        looks = f"font-family:{FONT};font-size:13px;line-height:1.4;color:inherit;margin:1em 0"
        content = source_html(part.lines, part.title.plain, part.heads, prefix, part.leaves)
        source = f'<div style="{html.escape(looks)}">{content}</div>'
    return f"{lines_html(part.summary(width), width)}{source}{lines_html(part.details(width), width)}"
