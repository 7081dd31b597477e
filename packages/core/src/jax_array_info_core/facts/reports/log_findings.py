"""Findings in the logs of a job, from the facts of their report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from ...base.quantities import counted
from ...base.text import printable
from .findings import Finding, FindingLeaf, reported
from .logs import LogEvent, LogFinding, LogReport
from .program_findings import full_replication, refusal, unread_lines
from .program_memory import OutOfMemory

_COUNTED = {"full replication": "rematerializations", "unused donation": "donations"}
"""Field of the report that has the rows of a category."""


def log_findings(report: LogReport) -> tuple[LogFinding, ...]:
    """Return the findings in a log that are not in its ``ignored_codes``."""
    findings = (
        *(
            _of_event(event, report)
            for event in report.events
            if not (event.category in _COUNTED and _is_counted(event, report))
        ),
        *(_of_rows(finding, report) for finding in _counted(report)),
    )
    return reported(findings, report.ignored_codes)  # type: ignore[return-value]


def _is_counted(event: LogEvent, report: LogReport) -> bool:
    """Return whether another finding has the warning of an event."""
    rows = getattr(report, _COUNTED[event.category])
    lines, text = map(printable, report.unread), event.text.rstrip("…")
    return bool(rows) or any(line in text or text in line for line in lines)


def _counted(report: LogReport) -> Iterator[Finding]:
    """Yield the findings on warnings that are counted."""
    yield from full_replication(report.rematerializations, report.mesh, is_log=True)
    leaves = tuple(
        FindingLeaf(
            path="donated buffer",
            shape=donation.shape,
            dtype=donation.dtype,
            nbytes=donation.nbytes,
            count=donation.count,
        )
        for donation in report.donations
    )
    if leaves:
        buffers = counted(sum(leaf.count for leaf in leaves), "donated buffer", "donated buffers")
        known = [leaf.nbytes * leaf.count for leaf in leaves if leaf.nbytes is not None]
        yield Finding(
            kind="unused donation",
            problem=f"JAX could not use {buffers}: no output has the type and the sharding.",
            remedy="Do not donate these arguments, or return outputs of the same shape, dtype and sharding.",
            nbytes=sum(known) if len(known) == len(leaves) else None,
            leaves=leaves,
        )
    yield from unread_lines(
        report.unread,
        "It is a warning of one of these kinds, in another wording.",
        "They are warnings of these kinds, in another wording.",
    )


def _of_rows(finding: Finding, report: LogReport) -> LogFinding:
    """Return a finding on counted warnings as one of the log, with the place of the first of them."""
    event = next((event for event in report.events if event.category == finding.kind), None)
    parts: dict[str, Any] = {
        part.name: getattr(finding, part.name)
        for part in fields(finding)
        if part.name not in ("code", "page")
    }
    parts["kind"] = finding.kind if event is None else event.kind
    if event is not None:
        parts |= {"rank": event.rank, "line": event.line, "numbers": event.numbers}
    return LogFinding(**parts, category=finding.kind, role="warning")  # type: ignore[arg-type]


def _of_event(event: LogEvent, report: LogReport) -> LogFinding:
    """Return the finding on an event."""
    tables = dict[int | None, OutOfMemory](enumerate(report.out_of_memory))
    listed = next(refusal(tables.get(event.row)), None)
    nbytes = None
    needed = event.numbers.get("requested_nbytes", event.numbers.get("needed_nbytes"))
    has = event.numbers.get("free_nbytes" if "requested_nbytes" in event.numbers else "available_nbytes")
    if isinstance(needed, int) and isinstance(has, int):
        nbytes = max(0, needed - has)
    message = event.summary if not event.words else f"{event.summary}. {event.text}"
    times = "" if event.count == 1 else f" and {counted(event.count - 1, 'more', 'more')}"
    times += f" in {len(event.ranks)} ranks" if len(event.ranks) > 1 else ""
    who = f"rank {event.rank}, " if event.rank is not None else ""
    return LogFinding(
        kind=event.kind,
        category=event.category,
        role=event.role,
        rank=event.rank,
        line=event.line,
        numbers=event.numbers,
        problem=f"{who}line {event.line}{times}: {message}",
        remedy=listed.remedy
        if listed and listed.leaves
        else " ".join(filter(None, (event.cause, event.remedy))),
        nbytes=nbytes if event.category == "program memory" else None,
        leaves=listed.leaves if listed else (),
    )
