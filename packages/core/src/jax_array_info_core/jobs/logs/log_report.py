"""Report on the logs of a job: what ended it, in which rank, and the compiler's warnings."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ...arrays.origins.origins import UserLines
from ...base.errors import FileFormatError, SpecError, require
from ...base.files import open_without_waiting
from ...base.quantities import format_bytes, format_number, grouped
from ...base.text import plain_text, printable
from ...facts.reports.codes import known_codes
from ...facts.reports.compiler_messages import OutOfMemory
from ...facts.reports.logs import LogEvent, LogReport
from ...geometry.layouts.spec import MeshAxes, mesh_sizes
from ...programs.compiler_log import CompilerLog
from ...xla.hlo.oom_logs import Refusal
from ...xla.logs.lines import POD_HASH, YEAR
from ...xla.logs.scanner import Scanner
from ..logs import LOG_SUFFIXES
from .attempts import MEMORY, each_once, is_ended, ranks_of
from .events import WORDS, Found, OneRank
from .ranks import clock, fatal_of, rank_logs, root_of, shape_of
from .repeated import repeated_warnings
from .verdicts import EXTERNAL, with_verdicts, without_external

ABOUT_SHARDINGS = re.compile(
    r"[Ss]hard|mesh|[Ss]pec|\btypes?\b|unreduced|reshape|replicat|batch dimensions|non-linear"
    r"|not implemented|P\("
)
"""Words of the errors on shardings that JAX raises."""


def explained(found: Found) -> LogEvent:
    """Return an event; that of an error which JAX raised on shardings, with the rule that was broken."""
    event = found.event
    if event.role != "root" or event.words or not ABOUT_SHARDINGS.search(found.record):
        return event
    from ...programs.raised.explain import explanation_of_text  # many rules, which few logs need

    known = explanation_of_text(found.record)
    if known is None:
        return event
    types = ", ".join(filter(None, (operand.type for operand in known.operands)))
    operands = f" Operands: {types}." if types else ""
    return replace(event, cause=printable(f"{known.rule.rstrip('.')}.{operands}"))


def equal_once(events: Iterable[LogEvent]) -> list[LogEvent]:
    """Return events, equal ones of all ranks and lines once."""
    once: dict[object, list[LogEvent]] = {}
    for event in events:
        sizes = event.numbers.get("requested_nbytes"), event.numbers.get("needed_nbytes")
        key: object = (event.kind, "" if event.words else shape_of(event), event.is_fatal, sizes)
        if event.role in ("consequence", "warning"):
            key = event.kind, event.is_fatal, event.numbers.get("source")
        alike = once.setdefault(key, [])
        rows = [known.row for known in alike]
        # Without a table, it may be that of any.
        place = next(
            (place for place, row in enumerate(rows) if None in (row, event.row) or row == event.row), None
        )
        if place is None:
            alike.append(event)
            continue
        known = alike[place]
        alike[place] = replace(
            known,
            count=known.count + event.count,
            ranks=tuple(dict.fromkeys((*known.ranks, *event.ranks))),
            numbers={**event.numbers, **known.numbers},
            row=event.row if known.row is None else known.row,
        )
    return [event for alike in once.values() for event in alike]


def with_stalls(rank: OneRank) -> OneRank:
    """Return a rank with the times at which it stood still, from its third step on."""
    progress, bound = rank.progress, rank.progress.bound
    stalls = [
        _stall(rank, gap.seconds, gap.step, gap.number, is_fatal=False)
        for gap in progress.gaps
        if bound < gap.seconds < YEAR and gap.number <= progress.last
    ]
    fatal = fatal_of(rank)
    ends = [failure for failure in fatal if failure.event.kind in EXTERNAL]
    times = progress.seconds, progress.time
    if progress.steps > 2 and None not in times and len(fatal) == len(ends) and progress.done < progress.last:
        seconds = (progress.time or 0) - (progress.seconds or 0)
        # Between a time with a date and one without, nothing is known.
        if bound < seconds < YEAR:
            stalls.append(_stall(rank, seconds, progress.step, progress.last, is_fatal=True, ends=ends))
    return rank._replace(found=[*rank.found, *stalls])


def _stall(
    rank: OneRank,
    seconds: int,
    step: int | None,
    number: int,
    *,
    is_fatal: bool,
    ends: Sequence[Found] = (),
) -> Found:
    """Return the event of a time without progress."""
    after = "" if step is None else f" after step {format_number(step)}"
    if is_fatal and rank.progress.seconds is not None:
        after += f" at {clock(rank.progress.seconds)}"
    event = LogEvent(
        kind="silent stall",
        role="stall",
        category="stall" if is_fatal else "log warning",
        text=f"stalled: no progress for {grouped(seconds)} seconds{after}"
        f"{'' if is_fatal else ', then it went on'}{f', until the {ends[0].event.kind}' if ends else ''}",
        line=max(1, number),
        rank=rank.rank,
        ranks=() if rank.rank is None else (rank.rank,),
        is_fatal=is_fatal,
        numbers={"seconds": seconds} if step is None else {"seconds": seconds, "step": step},
        cause="The process waits in a collective, for input or output, or in a loop of the host.",
        remedy="Record the next run with jai-cli run --record and call recorder.step() in each step: the "
        "record has the stacks of a stall.",
    )
    return Found(event, None, (), survived=False, is_weak=True, seconds=None)


_CHUNK = 1 << 20
_MOST_EVENTS = 200
"""Number of different events that are listed."""
_MOST_EXPLAINED = 50
_NULS = re.compile(rb"\0{2,}")
_CONTROL = bytes({*range(32), 127} - {*b"\t\n\r\b\f\x1b"})
_MOST_OTHERS = 0.3
"""Part of control characters and undecodable bytes above which a file is not text."""
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bzip2"}
_NAMES = tuple(
    re.compile(rf"(?:^|[^a-zA-Z])(?:{words})[-_.]?(\d{{1,6}})(?!\d)")
    for words in ("rank|r", "worker|proc|process|task", "host|node|pod")
)
"""Ranks in names of files, the plainest word first."""
_LAST = re.compile(rf"[-_.](\d{{1,6}}){POD_HASH}$")


class _Source(NamedTuple):
    """One log."""

    rank: str | None
    """Rank in its name."""
    pieces: Iterable[bytes]
    """Its content."""


def log_report(source: Any, *, mesh: Any = None, ignore_codes: str | Iterable[str] = ()) -> LogReport:
    """Return what ended a job, from its logs: the error, the rank that failed first, and the warnings.

    ``headline`` says what ended the job, ``events`` are the lines about it, the root first, and ``ranks`` are
    the ends of the ranks. An error of a rank that follows from that of another one has the role
    ``consequence``. An error after which the same rank makes progress counts as survived. A fatal line that
    no known kind explains is ``not interpreted``. The page "Kinds of lines in logs" lists the kinds.

    If a program does not fit the memory of a device, the error has the bytes that it needs, those that a
    device has, and a table of its largest buffers. If an allocation fails later, the error has the requested
    bytes and, on TPU, the free ones. XLA warns of an "Involuntary full rematerialization" if it has no direct
    way from one sharding to another: each device then holds the whole array for a while. JAX warns of donated
    buffers that no output can use. Equal errors and warnings are one row with its count. Prefixes of
    schedulers, loggers and ranks, colors and invalid bytes do not matter. Logs of any size are read in
    bounded memory.

    Args:
        source: Path of the log or of a folder with a log per rank, an open file, or an iterable of lines. In
            a folder, files that end in .log, .txt, .out, .err or a number are logs. A number in the name is
            the rank, as in ``rank0.log``, ``worker-3.out`` and ``train.log.12``.
        mesh: Mesh of the run, for specs: a Mesh, an AbstractMesh, or the size of each mesh axis by name.
        ignore_codes: Codes of findings to leave out, such as ``"JAI206"``.

    Raises:
        FileFormatError: (a ValueError) If the file is not text.
        OSError: If the file cannot be read.
        SpecError: (a ValueError) If the mesh has an invalid size.
        UnsupportedValueError: (a ValueError) If ``mesh`` is not a mesh, or ``source`` is neither a path nor
            lines.

    >>> line = (
    ...     "[SPMD] Involuntary full rematerialization. The compiler cannot go from sharding"
    ...     " {devices=[2,1,4]<=[4,2]T(1,0)} to {devices=[1,8,1]<=[8]} efficiently for HLO operation"
    ...     " %copy.1 = f32[8,16,4]{2,1,0} copy(%sin.2)."
    ... )
    >>> [row] = log_report([line, line], mesh={"x": 4, "y": 2}).rematerializations
    >>> print(row.before, row.after, row.op, row.nbytes, row.count)
    P('y', None, 'x') P(None, ('x', 'y')) %copy.1 16384 2
    """
    axes, codes = _axes(mesh), known_codes(ignore_codes)
    if not isinstance(source, str | bytes | os.PathLike):
        if not hasattr(source, "read"):
            require(source, Iterable, "the path of a log, an open file or lines")
        return _report([_Source(None, _pieces(source))], _name(source), axes, codes)
    name = plain_text(os.fsdecode(source))
    if os.path.isdir(source):
        return _report(_sources_in(Path(os.fsdecode(source))), name, axes, codes)
    with open_without_waiting(source) as file:
        return _report([_Source(None, _pieces(file))], name, axes, codes)


def _sources_in(folder: Path) -> Iterator[_Source]:
    """Yield the logs in a folder, by name."""
    paths = sorted(path for path in folder.iterdir() if is_log(path.name) and path.is_file())
    if not paths:
        raise FileFormatError(f"a folder without logs ({', '.join(LOG_SUFFIXES)})")
    names = [rank_in(path.name) for path in paths]
    has_ranks = sum(map(str.isdecimal, names)) > 1
    for path, rank in zip(paths, names, strict=True):
        is_rank = len(paths) > 1 and (rank.isdecimal() or not has_ranks)
        with path.open("rb") as file:
            try:
                yield _Source(rank if is_rank else None, _pieces(file))
            except FileFormatError as error:
                raise FileFormatError(f"{plain_text(path.name)}: {error}") from error


def is_log(name: str) -> bool:
    """Return whether a file in a folder is a log, by its name."""
    ending = os.path.splitext(name)[1]
    return ending in LOG_SUFFIXES or ending[1:].isdecimal()


def rank_in(name: str) -> str:
    """Return the rank in the name of a file; without a number, the name.

    >>> [rank_in(name) for name in ("job.r0.log", "worker-3.out", "train.log.12", "a-4-x7k2p.log", "a.log")]
    ['0', '3', '12', '4', 'a']
    """
    stem = name
    for suffix in LOG_SUFFIXES:
        stem = stem.removesuffix(suffix)
    number = next(filter(None, (name.search(stem) for name in (*_NAMES, _LAST))), None)
    return str(int(number[1])) if number else plain_text(stem)


def _axes(mesh: Any) -> MeshAxes | None:
    """Return the axes of a mesh."""
    if mesh is None or isinstance(mesh, MeshAxes):
        return mesh
    from ...arrays.plans import planned_axes, spec_problems  # most calls have no mesh
    from ...compat.shardings import mesh_axes
    from ...compat.values import is_mesh

    if is_mesh(mesh):
        return mesh_axes(mesh)
    if problems := spec_problems((), mesh_sizes(mesh), ()):
        raise SpecError(problems)
    return planned_axes(mesh)


def _name(source: Any) -> str | None:
    """Return the name of an open file, ``-`` for standard input; None for lines."""
    name = getattr(source, "name", None)
    if name in (0, "<stdin>"):
        return "-"
    return plain_text(os.fsdecode(name)) if isinstance(name, str | bytes) else None


def _pieces(source: Any) -> Iterator[bytes]:
    """Yield the content of a file, or lines with their line breaks."""
    if not hasattr(source, "read"):
        for line in source:
            data = line if isinstance(line, bytes) else str(line).encode("utf-8", "surrogatepass")
            yield data if data.endswith(b"\n") else data + b"\n"
        return
    is_first = True
    while piece := source.read(_CHUNK):
        data = piece if isinstance(piece, bytes) else piece.encode("utf-8", "surrogatepass")
        if is_first:
            _require_text(data)
            is_first = False
        yield data.replace(b"\0", b"")


def _require_text(head: bytes) -> None:
    """Raise FileFormatError if a file is not text in UTF-8 or a similar encoding."""
    for magic, name in _COMPRESSED.items():
        if head.startswith(magic):
            raise FileFormatError(f"compressed with {name}, not text: decompress it first")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileFormatError("text in UTF-16: convert it to UTF-8 first")
    written = _NULS.sub(b"", head) or head  # a log that was cut while it is written begins with many
    text = written.decode("utf-8", "ignore").encode().translate(None, _CONTROL)
    others = 1 - len(text) / len(written)
    if others > _MOST_OTHERS:
        part = f"{others:.0%} of its first {format_bytes(len(head))} are other bytes"
        raise FileFormatError(f"no text in UTF-8: {part}. Decompress or convert it first")


def _report(
    sources: Iterable[_Source], name: str | None, mesh: MeshAxes | None, codes: tuple[str, ...]
) -> LogReport:
    """Return the report on logs."""
    compiler, lines = CompilerLog(), UserLines()
    ranks: list[OneRank] = []
    warnings: list[LogEvent] = []
    line_count = dropped = 0
    for source in sources:
        scanner = Scanner(WORDS, compiler.readers)
        for piece in source.pieces:
            scanner.feed(piece)
        ranks += ranks_of(scanner, scanner.end(), compiler.end_log(), source.rank, lines)
        warnings += repeated_warnings(scanner, source.rank)
        line_count += scanner.line_count
        dropped += scanner.dropped_count
    ranks = [*each_once(ranks)]
    attempt = max((rank.attempt for rank in ranks), default=1)
    before = with_verdicts([rank._replace(found=rank.earlier) for rank in ranks])
    ranks = [with_stalls(rank) for rank in with_verdicts(ranks)]
    root = root_of(ranks)
    if attempt > 1 and root.headline:
        root = root._replace(headline=f"attempt {attempt}: {root.headline}")
    elif attempt > 1 and not is_ended(ranks):
        root, ranks = root_of(before), before
        words = f"attempt {attempt} has neither an error nor an end; attempt {attempt - 1}: {root.headline}"
        root = root._replace(headline=words)
    ranks = without_external(ranks)
    rows, places = compiler.rows(mesh)

    def order(failure: Found) -> tuple[bool, bool, bool]:
        event = failure.event
        return event.role == "warning", not event.is_fatal, event.rank not in root.ranks

    failures = (failure for rank in ranks for failure in rank.found)
    every = sorted((_with_row(failure, rows["out_of_memory"], places) for failure in failures), key=order)
    lasting = (
        explained(failure) if place < _MOST_EXPLAINED else failure.event
        for place, failure in enumerate(every)
        if not failure.survived
    )
    events = equal_once((*lasting, *warnings))
    rows["unlisted_count"] += dropped + max(0, len(events) - _MOST_EVENTS)
    return LogReport(
        name=name,
        mesh=mesh,
        line_count=line_count,
        headline=root.headline,
        attempt=attempt,
        root_ranks=tuple(rank for rank in root.ranks if rank is not None),
        events=tuple(events[:_MOST_EVENTS]),
        survived_count=sum(found.survived for found in every),
        ranks=rank_logs(ranks),
        ignored_codes=codes,
        **rows,
    )


def _with_row(failure: Found, rows: Sequence[OutOfMemory], places: Mapping[Refusal, int]) -> Found:
    """Return a failure of memory with the place of the row that has its table."""
    is_memory = failure.event.category in MEMORY
    place = places.get(failure.refusal) if is_memory and failure.refusal is not None else None
    if place is None or not rows[place].buffers:
        return failure
    return failure._replace(event=replace(failure.event, row=place))
