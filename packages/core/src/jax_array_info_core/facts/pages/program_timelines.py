"""The page of a program's memory along its schedule: the peak, the areas, and the sources of the figures."""

from __future__ import annotations

from collections.abc import Iterator

from ...base.quantities import format_bytes
from ..reports import ProgramTimelineReport
from .blocks import Block, Picture, Sentence, said, that_apply
from .program_words import name_words, platform_words
from .words import origin_words

_SOURCES = {
    "peak": "the peak, arguments and outputs are XLA's figures",
    "sum": "arguments and outputs are XLA's figures",
    "unknown": "the backend reports no bytes of arguments and outputs",
}


def program_timeline_page(report: ProgramTimelineReport) -> Iterator[Block]:
    """Yield the peak and the program, then the live bytes along the schedule and the sources of the figures.

    Args:
        report: The timeline. One without points has no picture.
    """
    if report.out_of_memory is not None:
        yield Sentence(report.out_of_memory.answer, "alarm")
    if report.peak is not None:
        facts = filter(None, (report.operations[report.peak], origin_words(report.peak_origin)))
        yield Sentence(f"{report.peak_words}: {', '.join(facts)}", "answer")
    title = filter(None, (name_words(report), report.topology or platform_words(report.platform)))
    yield Sentence(f"{', '.join(title)}: live bytes per device along the schedule")
    if not report.points:
        return
    yield Picture(report)
    estimated = "Estimated from the schedule, which has the body of a loop once"
    notes = that_apply(
        (True, f"{estimated}; {_SOURCES[report.needed_source]}."),
        (report.excess_nbytes, f"The estimate is {format_bytes(report.excess_nbytes)} more than XLA needs."),
    )
    yield from said(notes, "aside")
    if report.host_nbytes:
        yield Sentence(f"not shown: {format_bytes(report.host_nbytes)} in host memory")
