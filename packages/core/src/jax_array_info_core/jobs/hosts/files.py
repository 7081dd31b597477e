"""Reports of processes in files: the summary in the first line, the report in the second."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ...base.errors import FileFormatError, ReportFormatError
from ...base.files import Progress, open_regular, size_of, write_whole
from ...base.text import cut
from ...facts.reports import Report
from ...facts.reports.hosts import HostsReport, HostSummary, UnreadHost
from ...facts.reports.json import from_json, is_summary, summary_from_json, summary_to_json, to_json
from ...facts.reports.tree import TreeRow
from ...trees.stored.reading import (
    Budget,
    decoded_parts,
    json_text,
    read_whole,
)
from .compare import MOST_DETAILS, Source, UnreadError, hosts_of
from .summaries import ArraySet, ComparedFields, HostReport, set_of_groups, set_of_rows, summary_of

LONGEST_SUMMARY = 4096
"""Maximum length of a summary, in bytes."""
_MOST_FILES = 2**17
_LONGEST_REASON = 200
_PROCESS = re.compile(r"process-([0-9]{1,7})\.json")
_TRUNCATED = "truncated: copy it again"


def save_report(report: HostReport, path: str | os.PathLike[str]) -> None:
    """Write a report of this process to a file, for ``jai-cli hosts``. ``load_report`` reads it.

    The first line is a summary of at most 4 KiB, with the memory of the devices of this process now. The
    second line is the report, as ``to_json`` writes it. The file is replaced completely or not at all.

    >>> import tempfile
    >>> from jax_array_info_core import load_report, live_array_report, save_report
    >>> report = live_array_report()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_report(report, folder)
    ...     load_report(f"{folder}/process-0.json") == report
    True

    Args:
        report: A ``LiveArrayReport``, a ``TreeReport`` or a ``DevicesReport``.
        path: Path of the file, or of a folder. In a folder, each process writes the file
            ``process-INDEX.json``. A folder that ends with a slash is created.

    Raises:
        UnsupportedValueError: (a ValueError) If ``report`` is something else.
        OSError: If the file cannot be written.
    """
    summary = summary_of(report)
    place = Path(path)
    if os.fspath(path).endswith((os.sep, "/")):
        place.mkdir(parents=True, exist_ok=True)
    if place.is_dir():
        place /= f"process-{summary.process}.json"
    write_whole(place, f"{summary_to_json(summary)}\n{to_json(report)}\n".encode())


def load_report(path: str | os.PathLike[str]) -> Report:
    """Return the report in a file: from ``save_report`` or ``save_tree``, or the output of ``to_json``.

    Args:
        path: Path of the file.

    Raises:
        FileFormatError: (a ValueError) If the file is not a regular file, or is larger than 100 MB.
        ReportFormatError: (a ValueError) If it is not a report.
        OSError: If it cannot be read.
    """
    budget = Budget()
    return from_json(json_text(read_whole(Path(path), budget), budget))


def hosts_in_folder(
    folder: str | os.PathLike[str],
    *,
    rows: bool = False,
    details: int | None = MOST_DETAILS,
    ignore_codes: Collection[str] = (),
    on_progress: Progress | None = None,
) -> HostsReport:
    """Return the report on the files that ``save_report`` wrote to a folder, each with its name.

    The files end in ``.json``. One file is in memory at a time.

    Args:
        folder: Path of the folder.
        rows: Whether to read the reports of all files, and to compare all processes that differ. By default,
            only the first line of each file is read, and the reports of those that are compared.
        details: Maximum number of processes that differ whose arrays are compared, without ``rows``; None for
            all.
        ignore_codes: Codes of findings to leave out.
        on_progress: Function that is called with the number of files that were read, and of all files.

    Raises:
        FileFormatError: (a ValueError) If the folder has no such files, more than 131,072, or none that
            could be read.
        OSError: If the folder cannot be read.
    """
    paths = _files(Path(folder))
    sources: list[Source] = []
    unread: list[UnreadHost] = []
    for number, path in enumerate(paths):
        if on_progress is not None:
            on_progress(number, len(paths))
        try:
            with _reasons():
                sources.append(Source(path.name, _read_summary(path, rows=rows)))
        except UnreadError as error:
            named = _PROCESS.fullmatch(path.name)
            process = int(named[1]) if named else None
            unread.append(UnreadHost(name=path.name, reason=str(error), process=process))
    if not sources:
        first = unread[0]
        raise FileFormatError(f"none of {len(unread)} files could be read; {first.name}: {first.reason}")
    path_of = {source.summary: Path(folder) / source.name for source in reversed(sources)}

    def read_arrays(summary: HostSummary) -> ArraySet:
        with _reasons(), open_regular(path_of[summary]) as file:
            return _arrays(file, _summary(file))

    return hosts_of(
        sources,
        read_arrays,
        unread=unread,
        details=None if rows else details,
        ignore_codes=ignore_codes,
        syntax="shell",
    )


def _files(folder: Path) -> list[Path]:
    """Return the files of a folder that end in .json, those of processes by process index."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".json") and not entry.name.startswith("."):
                found.append(entry.name)
            if len(found) > _MOST_FILES:
                raise FileFormatError(f"more than {_MOST_FILES:,} files that end in .json")
    if not found:
        raise FileFormatError("no files that end in .json: write one in each process with save_report")
    return [folder / name for name in sorted(found, key=_by_process)]


def _by_process(name: str) -> tuple[bool, int, str]:
    named = _PROCESS.fullmatch(name)
    return named is None, int(named[1]) if named else 0, name


@contextlib.contextmanager
def _reasons() -> Iterator[None]:
    """Turn the problems of a file into an UnreadError with one line."""
    try:
        yield
    except OSError as error:
        raise UnreadError(error.strerror or str(error)) from error
    except (FileFormatError, ReportFormatError) as error:
        raise UnreadError(cut(" ".join(str(error).split()), _LONGEST_REASON)) from error


def _read_summary(path: Path, *, rows: bool) -> HostSummary:
    """Return the summary of a file, after its report if the rows are to be read as well."""
    with open_regular(path) as file:
        summary = _summary(file)
        if rows and _arrays(file, summary).digest != summary.digest and summary.digest:
            raise FileFormatError("the report does not match its summary")
        return summary


def _summary(file: BinaryIO) -> HostSummary:
    """Return the summary in the first line of a file, which ends with a line break."""
    line = file.readline(LONGEST_SUMMARY + 1)
    if not is_summary(line):
        raise FileFormatError("no summary in the first line: write the file with save_report")
    if len(line) > LONGEST_SUMMARY:
        raise FileFormatError(f"the first line has more than {LONGEST_SUMMARY:,} bytes")
    if not line.endswith(b"\n"):
        raise FileFormatError(_TRUNCATED)
    summary = summary_from_json(line)
    place = file.tell()
    file.seek(-1, os.SEEK_END)
    if file.read(1) != b"\n" or file.tell() == place:
        raise FileFormatError(_TRUNCATED)
    file.seek(place)
    return summary


@dataclass(frozen=True, slots=True)
class _Groups:
    """The part of a LiveArrayReport that is compared."""

    groups: tuple[ComparedFields, ...]


@dataclass(frozen=True, slots=True)
class _Rows:
    """The part of a TreeReport that is compared."""

    rows: tuple[TreeRow, ...]


def _arrays(file: BinaryIO, summary: HostSummary) -> ArraySet:
    """Return the arrays in the report of a file, whose summary has been read."""
    budget = Budget()
    budget.spend("bytes", size_of(file))
    text = json_text(file.readline(), budget)
    match summary.of:
        case "LiveArrayReport":
            return set_of_groups(decoded_parts(text, _Groups).groups)
        case "TreeReport":
            return set_of_rows(decoded_parts(text, _Rows).rows)
    from_json(text)
    return ArraySet.of(())
