"""The user's source as a part of a document."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult

from jax_array_info_core.pages.blocks import Source
from jax_array_info_core.reports import ProgramReport, PropagationReport, Report

from .program_lines import program_margin
from .propagation_lines import propagation_margin
from .source_lines import Margin
from .source_text import source_text


@dataclass(frozen=True, slots=True)
class SourcePart:
    """The source around the lines that a report is about, with notes: as text, unless it becomes HTML."""

    report: Report
    margin: Margin
    max_rows: int | None
    """Maximum number of lines with notes in text."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield source_text(self.margin, max_rows=self.max_rows)


def source_part(block: Source, max_rows: int | None) -> SourcePart:
    """Return the source of a page.

    Args:
        block: The block of the page.
        max_rows: Maximum number of lines with notes in text.

    Raises:
        TypeError: If the report has no lines to mark.
    """
    match block.of:
        case ProgramReport():
            margin = program_margin(block.of)
        case PropagationReport():
            margin = propagation_margin(block.of)
        case _:
            raise TypeError(f"a {type(block.of).__name__} marks no lines of source")
    return SourcePart(block.of, margin, max_rows)
