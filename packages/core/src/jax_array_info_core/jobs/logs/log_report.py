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
from ...base.text import plain_text
from ...facts.reports.codes import known_codes
from ...facts.reports.compiler_messages import OutOfMemory
from ...facts.reports.logs import LogReport
from ...geometry.layouts.spec import MeshAxes, mesh_sizes
from ...programs.compiler_log import CompilerLog
from ...xla.hlo.oom_logs import Refusal
from ...xla.logs.scanner import Candidate, Progress, Scanner
from . import LOG_SUFFIXES
from .events import WORDS, Found, found_in
from .failures import equal_once, explained, failures_of, with_stalls
from .ranks import OneRank, rank_logs, root_of

_CHUNK = 1 << 20
_MOST_EVENTS = 200
"""Number of different events that are listed."""
_MOST_EXPLAINED = 50
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bzip2"}
_NAMES = tuple(
    re.compile(rf"(?:^|[^a-zA-Z])(?:{words})[-_.]?(\d{{1,6}})(?!\d)")
    for words in ("rank|r", "worker|proc|process|task", "host|node|pod")
)
"""Ranks in names of files, the plainest word first."""
_LAST = re.compile(r"[-_.](\d{1,6})$")


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
    with open(source, "rb") as file:
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

    >>> [rank_in(name) for name in ("job.r0.log", "worker-3.out", "train_0.err", "train.log.12", "main.log")]
    ['0', '3', '0', '12', 'main']
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
    from ...arrays.plans.plan import planned_axes, spec_problems  # most calls have no mesh
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
        yield data


def _require_text(head: bytes) -> None:
    """Raise FileFormatError if a file is not text in UTF-8 or a similar encoding."""
    for magic, name in _COMPRESSED.items():
        if head.startswith(magic):
            raise FileFormatError(f"compressed with {name}, not text: decompress it first")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FileFormatError("text in UTF-16: convert it to UTF-8 first")
    if head[: 1 << 16].count(b"\0") > len(head[: 1 << 16]) // 100:
        raise FileFormatError("a binary file, not a log")


def _report(
    sources: Iterable[_Source], name: str | None, mesh: MeshAxes | None, codes: tuple[str, ...]
) -> LogReport:
    """Return the report on logs."""
    compiler, lines = CompilerLog(), UserLines()
    ranks: list[OneRank] = []
    line_count = dropped = 0
    for source in sources:
        scanner = Scanner(WORDS, compiler.readers)
        for piece in source.pieces:
            scanner.feed(piece)
        candidates = scanner.end()
        ranks += _ranks_of(scanner, candidates, compiler.end_log(), source.rank, lines)
        line_count += scanner.line_count
        dropped += scanner.dropped_count
    ranks = [with_stalls(rank) for rank in _each_once(ranks)]
    root = root_of(ranks)
    rows, places = compiler.rows(mesh)

    def order(failure: Found) -> tuple[bool, bool, bool]:
        event = failure.event
        return event.role == "warning", not event.is_fatal, event.rank not in root.ranks

    failures = (failure for rank in ranks for failure in rank.found)
    every = sorted((_with_row(failure, rows["out_of_memory"], places) for failure in failures), key=order)
    events = equal_once(
        explained(failure) if place < _MOST_EXPLAINED else failure.event
        for place, failure in enumerate(every)
        if not failure.survived
    )
    rows["unlisted_count"] += dropped + max(0, len(events) - _MOST_EVENTS)
    return LogReport(
        name=name,
        mesh=mesh,
        line_count=line_count,
        headline=root.headline,
        events=tuple(events[:_MOST_EVENTS]),
        survived_count=sum(found.survived for found in every),
        ranks=rank_logs(ranks),
        ignored_codes=codes,
        **rows,
    )


def _with_row(failure: Found, rows: Sequence[OutOfMemory], places: Mapping[Refusal, int]) -> Found:
    """Return a failure of memory with the place of the row that has its table."""
    is_memory = failure.event.category in ("program memory", "other memory")
    place = places.get(failure.refusal) if is_memory and failure.refusal is not None else None
    if place is None or not rows[place].buffers:
        return failure
    return failure._replace(event=replace(failure.event, row=place))


def _ranks_of(
    scanner: Scanner,
    candidates: Iterable[Candidate],
    refusals: Mapping[int, Refusal],
    rank: str | None,
    lines: UserLines,
) -> list[OneRank]:
    """Return the ranks in a log: those in the prefixes of most lines, or that of its name."""
    prefixed: dict[str | None, Progress] = {
        name: progress for name, progress in scanner.ranks.items() if name is not None
    }
    count = sum(progress.line_count for progress in prefixed.values())
    # The numbers of steps before each line are no ranks.
    is_repeated = any(progress.line_count > 1 for progress in prefixed.values())
    has_ranks = rank is None and len(prefixed) > 1 and is_repeated and 2 * count >= scanner.line_count
    every = list(scanner.ranks.values()) or [Progress()]
    # Lines without a prefix are the launcher's.
    launcher: dict[str | None, Progress] = {None: scanner.ranks.get(None, Progress())}
    ranks = prefixed | launcher if has_ranks else {rank: _joined(every, scanner.line_count)}
    failures: dict[str | None, list[Found]] = {name: [] for name in ranks}
    for candidate in candidates:
        name = candidate.rank if has_ranks else rank
        if name in ranks and (failure := found_in(candidate, ranks[name], name, lines)):
            failures[name].append(failure._replace(refusal=refusals.get(candidate.number)))
    return [OneRank(name, failures_of(failures[name]), progress) for name, progress in ranks.items()]


def _each_once(ranks: Iterable[OneRank]) -> Iterator[OneRank]:
    """Yield each rank once: its output and its errors may be in two files."""
    by_rank: dict[str | None, list[OneRank]] = {}
    for rank in ranks:
        by_rank.setdefault(rank.rank, []).append(rank)
    for name, files in by_rank.items():
        every = [file.progress for file in files]
        progress = _joined(every, sum(part.line_count for part in every))
        yield OneRank(name, [failure for file in files for failure in file.found], progress)


def _joined(every: Sequence[Progress], line_count: int) -> Progress:
    """Return the progress of logs or of prefixes that are not ranks."""
    joined = max(every, key=lambda part: part.steps)
    joined.line_count = line_count
    joined.last = max(part.last for part in every)
    joined.done = max(part.done for part in every)
    return joined
