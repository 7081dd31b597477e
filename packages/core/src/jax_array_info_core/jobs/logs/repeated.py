"""Warnings of XLA that repeat and that no kind explains."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...base.text import cut, printable
from ...facts.reports.logs import LogEvent
from ...xla.logs.lines import read_line
from ...xla.logs.scanner import Scanner
from .events import LONGEST, NO_EVENT, NOT_INTERPRETED, kind_of

_NAME = re.compile(r'"[^"]{1,80}"')


def repeated_warnings(scanner: Scanner, rank: str | None) -> Iterator[LogEvent]:
    """Yield each line of XLA's source that warned more than once, with its warning and what it names.

    Args:
        scanner: What read the log.
        rank: Rank of the whole log; None if its lines have ranks, or none has.
    """
    for (source, _), warned in scanner.warnings.items():
        texts = [read_line(line).text for line in warned.lines]
        if warned.count == 1 or NO_EVENT.search(texts[0]) or kind_of(texts[0])[0]:
            continue
        names = dict.fromkeys(name[0] for name in map(_NAME.search, texts) if name)
        text = _NAME.sub(lambda _, names=names: ", ".join(names), texts[0], count=1)  # type: ignore[misc]
        yield LogEvent(
            kind=NOT_INTERPRETED,
            role="warning",
            category="log warning",
            text=printable(cut(text, LONGEST)),
            line=warned.number,
            rank=rank,
            ranks=() if rank is None else (rank,),
            count=warned.count,
            numbers={"source": printable(source.decode())},
            cause="No kind explains this warning of XLA, which repeats.",
            remedy="Read it.",
        )
