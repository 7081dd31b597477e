"""Reports on the logs of finished runs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

from ..compat.shardings import mesh_axes
from ..compat.values import is_mesh
from ..errors import FileFormatError, SpecError, require
from ..hlo.messages import ArrayShape
from ..hlo.oom_logs import Refusal
from ..hlo.warnings import DonationWarning, LogFinding, LogScanner, RematerializationWarning
from ..layouts.spec import MeshAxes, mesh_sizes
from ..origins.origins import UserLines
from ..plans.plan import planned_axes, spec_problems
from ..reports.compiles import LogReport, UnusableDonation
from ..reports.findings import known_codes
from ..text import plain_text
from .compiled import logged_errors
from .full_replication import ranked, rematerialization

_CHUNK = 1 << 20
_MOST = 10_000
"""Number of different warnings of each kind that are listed, so that the memory is bounded."""
_MOST_ERRORS = 100
_MOST_UNREAD = 100
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bzip2"}
_TRIED = "fake_parameter"
"""Beginning of the names of values on which XLA only tries a partitioning, to compare costs."""

_K = TypeVar("_K", RematerializationWarning, ArrayShape, Refusal, str)


def log_report(source: Any, *, mesh: Any = None, ignore_codes: str | Iterable[str] = ()) -> LogReport:
    """Return the findings in the log of a run: out of memory, full replication, unused donations.

    If a program does not fit the memory of a device, the error has the bytes that it needs, those that a
    device has, and a table of its largest buffers. If an allocation fails later, the error has the requested
    bytes and, on TPU, the free ones. XLA warns of an "Involuntary full rematerialization" if it has no direct
    way from one sharding to another: each device then holds the whole array for a while. JAX warns of donated
    buffers that no output can use. Equal errors and warnings are one row with its count. Prefixes of lines,
    colors and invalid bytes do not matter. Logs of any size are read in bounded memory.

    Args:
        source: Path of the log, an open file, or an iterable of lines.
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
        return _report(_pieces(source), _name(source), axes, codes)
    with open(source, "rb") as file:
        return _report(_pieces(file), plain_text(os.fsdecode(source)), axes, codes)


def _axes(mesh: Any) -> MeshAxes | None:
    """Return the axes of a mesh."""
    if mesh is None or isinstance(mesh, MeshAxes):
        return mesh
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
    if b"\0" in head[: 1 << 16]:
        raise FileFormatError("a binary file, not a log")


def _rank(one: UnusableDonation) -> tuple[bool, int, int]:
    """Return a key that sorts by bytes, the most first, and unknown ones last."""
    return one.nbytes is None, -(one.nbytes or 0), -one.count


class _Counts:
    """Numbers of equal warnings and errors, for a limited number of different ones."""

    def __init__(self) -> None:
        self.rematerializations: Counter[RematerializationWarning] = Counter()
        self.buffers: Counter[ArrayShape] = Counter()
        self.errors: Counter[Refusal] = Counter()
        self.unread: Counter[str] = Counter()
        self.unlisted_count = 0

    def add(self, warning: LogFinding) -> None:
        """Count a warning or an error."""
        if isinstance(warning, Refusal):
            self._count(self.errors, warning, _MOST_ERRORS)
        elif isinstance(warning, RematerializationWarning):
            if (warning.name or "").startswith(_TRIED):
                return
            # The numbers of instructions differ between programs.
            name = None if warning.op_name else warning.name
            self._count(self.rematerializations, warning._replace(name=name), _MOST)
        elif isinstance(warning, DonationWarning):
            for buffer in warning.buffers:
                self._count(self.buffers, buffer, _MOST)
            if warning.unread:
                self._count(self.unread, warning.unread, _MOST_UNREAD)
        else:
            self._count(self.unread, warning.text, _MOST_UNREAD)

    def _count(self, counts: Counter[_K], key: _K, most: int) -> None:
        if key in counts or len(counts) < most:
            counts[key] += 1
        else:
            self.unlisted_count += 1


def _report(
    pieces: Iterable[bytes], name: str | None, mesh: MeshAxes | None, codes: tuple[str, ...]
) -> LogReport:
    """Return the report on the pieces of a log."""
    scanner, counts = LogScanner(), _Counts()
    found = chain.from_iterable(map(scanner.feed, pieces))
    for warning in chain(found, scanner.end()):
        counts.add(warning)
    sizes = mesh.shape if mesh else None
    lines = UserLines()
    rows = (
        replace(rematerialization(warning, sizes, lines.origin(warning.frames)), count=count)
        for warning, count in counts.rematerializations.items()
    )
    donations = [
        UnusableDonation(
            shape=buffer.dims,
            dtype=buffer.dtype,
            nbytes=None if buffer.nbytes < 0 else buffer.nbytes,
            count=count,
        )
        for buffer, count in counts.buffers.items()
    ]
    return LogReport(
        name=name,
        mesh=mesh,
        line_count=scanner.line_count,
        rematerializations=ranked(rows),
        donations=tuple(sorted(donations, key=_rank)),
        out_of_memory=logged_errors(counts.errors, lines),
        unread=tuple(counts.unread),
        unlisted_count=counts.unlisted_count + scanner.unlisted_count,
        ignored_codes=codes,
    )
