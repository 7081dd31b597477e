"""Reports on logs of finished runs: what killed the job, in which rank, and the compiler's warnings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from ...base import quantities
from ...base.notebooks import Displayed
from ...base.quantities import counted, grouped
from ...base.text import printable
from ...geometry.layouts.spec import MeshAxes
from .array import ArrayType
from .codes import CODES, Code
from .compiler_messages import OutOfMemory, Rematerialization, full_replication, refusal, unread_lines
from .findings import Finding, FindingLeaf, findings_words, reported

_COUNTED = {"full replication": "rematerializations", "unused donation": "donations"}
"""Field of the report that has the rows of a category."""

LogRole = Literal["root", "consequence", "warning", "stall"]
"""Role of a line in the end of a job. A ``consequence`` is never the root if another rank has one."""

LogCategory = Literal[
    "program memory",
    "other memory",
    "unused donation",
    "full replication",
    "unread lines",
    "fatal error",
    "consequence",
    "stall",
    "not interpreted",
    "log warning",
]
"""Category of a finding in a log. ``CODES`` has its code."""

RankEnd = Literal["failed", "in consequence", "no error", "ended", "stalled"]
"""End of a rank, as far as its log tells: with a root error, in consequence of another rank's, without an
error, with a message that it is done, or standing still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusableDonation(ArrayType):
    """Donated buffers that JAX could not use, from its warning "Some donated buffers were not usable"."""

    shape: tuple[quantities.Size, ...]
    """Shape in the warning: that of one device."""

    nbytes: quantities.Size | None
    """Bytes of one buffer; None if the dtype is unknown."""

    count: quantities.Count = 1
    """Number of buffers of this type in all warnings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """A line of a log that a kind of failure or warning explains, or a fatal one that none does."""

    kind: str
    """Name of the kind; ``not interpreted`` if none explains the line."""

    role: LogRole
    """Role of the line."""

    category: LogCategory
    """Category of its finding."""

    text: str
    """The line, without its prefix."""

    line: quantities.Count
    """Number of the line in its file."""

    rank: str | None = None
    """Rank that wrote it; None if the log has no ranks."""

    ranks: tuple[str, ...] = ()
    """All ranks that wrote an equal line."""

    count: quantities.Count = 1
    """Number of equal lines."""

    is_fatal: bool = False
    """Whether the run did not survive it."""

    place: str = ""
    """Line of the user's code in the traceback, such as ``train.py:88``; empty without one."""

    chain: str = ""
    """Exceptions before it, as in ``, because KeyError: 'w3' (train.py:40)``; empty without one."""

    numbers: dict[str, int | str] = field(default_factory=dict)
    """Numbers and names in the line, by name. Those whose names end in ``nbytes`` are bytes."""

    words: str = ""
    """What the numbers say, such as ``does not fit: needs 20.0 GiB, has 15.8 GiB per device``."""

    cause: str = ""
    """Cause of this kind, as one sentence."""

    remedy: str = ""
    """What to do first."""

    row: quantities.Size | None = None
    """Place in ``out_of_memory`` of the row with its table of buffers; None without a table."""

    @property
    def summary(self) -> str:
        """The words or the line, with the place and the exceptions before it."""
        return f"{self.words or self.text}{f' ({self.place})' if self.place else ''}{self.chain}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLog:
    """The log of one rank."""

    rank: str
    """Rank, as prefixes or the name of the file give it."""

    end: RankEnd
    """End of the rank, as far as its log tells."""

    line_count: quantities.Size
    """Number of its lines."""

    step: quantities.Size | None = None
    """Last step, epoch or iteration that it printed."""

    time: str = ""
    """Last time of day in its log, such as ``12:18:30``; empty if it has none."""

    text: str = ""
    """Its first fatal line; of one in consequence, the kind of the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFinding(Finding):
    """A finding in a log."""

    kind: str  # type: ignore[assignment]
    """Name of the kind of line."""

    category: LogCategory = "fatal error"
    """Category, which has the code."""

    role: LogRole = "root"
    """Role in the end of the job."""

    rank: str | None = None
    """Rank that wrote the line; None if the log has no ranks."""

    line: quantities.Count | None = None
    """Number of the line; None for a finding on many."""

    numbers: dict[str, int | str] = field(default_factory=dict)
    """Numbers and names in the line."""

    @property
    def full_code(self) -> Code:
        """Code of the category."""
        return CODES[self.category]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport(Displayed):
    """Failures, stalls and warnings in the logs of a job. Returned by ``log_report``."""

    name: str | None
    """Path of the log or of the folder; ``-`` for standard input."""

    mesh: MeshAxes | None = None
    """Mesh that the shardings are translated to; None if none was given."""

    line_count: quantities.Size = 0
    """Number of lines."""

    headline: str = ""
    """What ended the job: the rank that failed first and its error; empty if nothing fatal was found."""

    attempt: quantities.Count = 1
    """Number of the attempt that is reported: a log may have those before a restart, too."""

    root_ranks: tuple[str, ...] = ()
    """Ranks that the logs give as the first to fail; empty if they have no evidence of who it was."""

    events: tuple[LogEvent, ...] = ()
    """Lines that ended the job, then warnings; the root first. Equal lines are one event."""

    survived_count: quantities.Size = 0
    """Number of errors after which the same rank made progress."""

    ranks: tuple[RankLog, ...] = ()
    """The ranks, in order; empty if the log has none."""

    rematerializations: tuple[Rematerialization, ...] = ()
    """Values that XLA replicates and shards again, each once with its count, the most bytes first."""

    donations: tuple[UnusableDonation, ...] = ()
    """Donated buffers that JAX could not use, the most bytes first."""

    unread: tuple[str, ...] = ()
    """Warnings of these kinds in a wording that could not be read, at most 100 different ones."""

    unlisted_count: quantities.Size = 0
    """Number of further warnings and errors that are in no row: 10,000 different warnings of a kind and 100
    different errors are listed, and a few million characters of different ones are read."""

    out_of_memory: tuple[OutOfMemory, ...] = ()
    """Programs that do not fit the memory of a device, and allocations that failed, each once with its count,
    in the order of the log. Of errors that differ only in the free bytes, the first is listed."""

    ignored_codes: tuple[str, ...] = ()
    """Codes of findings to leave out."""

    findings: tuple[LogFinding, ...] = ()
    """Findings, computed from the other fields."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "findings", _log_findings(self))

    @property
    def is_fatal(self) -> bool:
        """Whether the job ended with an error, or stood still."""
        return bool(self.headline)

    @property
    def answer(self) -> str:
        """What ended the job, errors that it survived, and the codes of the findings."""
        lines = f"{grouped(self.line_count)} {'line' if self.line_count == 1 else 'lines'}"
        survived = f"survived: {self.survived_count}" if self.survived_count else ""
        codes = findings_words(self.findings) if self.findings else ""
        attempt = f"attempt {self.attempt} ended well" if self.attempt > 1 and not self.headline else ""
        parts = self.headline or f"nothing fatal in {lines}", attempt, survived, codes
        return "; ".join(filter(None, parts))


def _log_findings(report: LogReport) -> tuple[LogFinding, ...]:
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
