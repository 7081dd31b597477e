"""Chains of exceptions: the one that counts, with those before it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ...base.text import cut
from ...xla.logs.lines import TRACEBACK, read_line
from ...xla.logs.scanner import Candidate
from .events import HANDLED, LINKS, NOT_INTERPRETED, Found

_LONGEST = 400
"""Characters of the exceptions before one."""


def link_of(line: bytes) -> str:
    """Return the words of a line after which the exception that follows belongs to the last one."""
    return next((words for words in LINKS if words.encode() in line), "")


def unfolded(candidate: Candidate) -> Iterator[Candidate]:
    """Yield the lines of the last chain of exceptions in a line of JSON; else the line itself."""
    lines = read_line(candidate.line).text.split("\n")
    starts = [place for place, line in enumerate(lines) if TRACEBACK in line] if lines[1:] else []
    data = [line.encode("utf-8", "replace") for line in lines if starts]
    parts: list[int] = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=False):
        texts = [
            place for place in range(start + 1, end) if lines[place].strip() and not lines[place][0].isspace()
        ]
        is_linked = parts and link_of(data[parts[-1]])
        parts = (parts if is_linked or not texts else []) + texts[:1]
        parts += [place for place in texts[1:] if link_of(data[place])]
    for place in parts or [-1]:
        part = candidate._replace(before=tuple(data[:place]), after=tuple(data[place + 1 :]))
        yield part._replace(line=data[place]) if parts else candidate


def chained(before: Found, error: Found) -> Found | None:
    """Return two exceptions of a chain as one; None if the second only follows from the first.

    The second one is the error, and the first one its cause. If only the first one is of a known kind, its
    kind, its numbers and what to do count; it leads if the second one came up while it was handled.
    """
    first, later = before.event, error.event
    if later.role == "consequence" != first.role:
        return None
    is_known = first.kind != NOT_INTERPRETED == later.kind
    main = before if is_known else error
    if _said(first.text) == _said(later.text):
        event = replace(main.event, place=later.place or first.place)
    elif error.link != HANDLED:
        event = replace(
            main.event,
            text=later.text,
            words=later.words,
            place=later.place,
            line=later.line,
            chain=cut(f", because {first.summary}", _LONGEST),
        )
    elif is_known:
        event = replace(first, chain=cut(f", and {later.summary} while handling it", _LONGEST))
    else:
        event = replace(later, chain=cut(f", while handling {first.summary}", _LONGEST))
    return error._replace(
        event=replace(event, is_fatal=later.is_fatal),
        kind=main.kind,
        named=(*error.named, *before.named),
        is_weak=main.is_weak,
        refusal=error.refusal or before.refusal,
    )


def _said(text: str) -> str:
    """Return the message of an exception without its classes: JAX raises one again with another class."""
    return re.sub(r"^(?:[\w.]+: )+", "", text)
