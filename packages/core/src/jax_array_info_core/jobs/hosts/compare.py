"""Comparison of the summaries of processes, with findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ...base.quantities import counted
from ...facts.reports.findings import Finding, FindingLeaf, Syntax, reported
from ...facts.reports.hosts import (
    HostArray,
    HostDifference,
    HostsReport,
    HostSummary,
    UnreadHost,
    processes_words,
)
from .summaries import ArraySet

_MOST_ARRAYS = 20
"""Maximum number of arrays that are listed for a process, in each direction."""
MOST_DETAILS = 8
"""Number of processes whose arrays are compared, unless another one is asked for."""
NOT_ASKED = "not among the first processes that differ"

_T = TypeVar("_T", bound=Hashable)


class UnreadError(Exception):
    """Raised by a function that reads the arrays of a process, with the reason why it cannot."""


ReadArrays = Callable[[HostSummary], ArraySet]
"""Function that returns the arrays of a process; raises UnreadError."""


@dataclass(frozen=True, slots=True)
class Source:
    """A summary, and where it is from."""

    name: str
    """Name of the file or the process."""
    summary: HostSummary


def hosts_of(
    sources: Iterable[Source],
    read_arrays: ReadArrays,
    *,
    unread: Iterable[UnreadHost] = (),
    details: int | None = MOST_DETAILS,
    ignore_codes: Collection[str] = (),
    syntax: Syntax = "python",
) -> HostsReport:
    """Return the report on some processes.

    Args:
        sources: The summaries. Those of the most frequent number of processes and class of report are kept,
            the first of each process.
        read_arrays: Returns the arrays of a process. It is called for the processes that differ, and before
            them for one that does not.
        unread: Files or processes that could not be read.
        details: Maximum number of processes that differ whose arrays are read; None for all.
        ignore_codes: Codes of findings to leave out.
        syntax: Language of the fixes.
    """
    kept, left_out = _of_one_job(list(sources))
    every_unread = (*unread, *left_out)
    process_count = kept[0].process_count if kept else 0
    known = {host.process for host in kept} | {host.process for host in every_unread}
    missing = tuple(process for process in range(process_count) if process not in known)
    reference, alike = _reference(kept)
    others = [host for host in kept if host.digest and reference and host.digest != reference.digest]
    differences = tuple(_differences(reference, others, read_arrays, details)) if reference else ()
    findings = (
        _missing(missing, process_count),
        _different(differences, reference, alike),
        _unread(every_unread),
    )
    return HostsReport(
        process_count=process_count,
        hosts=tuple(kept),
        missing=missing,
        unread=every_unread,
        differences=differences,
        findings=reported(findings, ignore_codes),
        ignored_codes=tuple(ignore_codes),
        syntax=syntax,
    )


def _of_one_job(sources: Sequence[Source]) -> tuple[list[HostSummary], list[UnreadHost]]:
    """Return the summaries of one job by process index, and why the others are left out."""
    count = _most_frequent(source.summary.process_count for source in sources)
    report_class = _most_frequent(
        source.summary.of for source in sources if source.summary.process_count == count
    )
    kept: dict[int, Source] = {}
    left_out: list[UnreadHost] = []
    for source in sources:
        summary = source.summary
        if summary.process_count != count:
            processes = counted(summary.process_count, "process", "processes")
            reason = f"of a job of {processes}, not {count}: keep one job in a folder"
            left_out.append(UnreadHost(name=source.name, reason=reason))
            continue
        if summary.of != report_class:
            reason = f"a {summary.of}, not a {report_class} as most"
        elif summary.process in kept:
            reason = f"process {summary.process} again, after {kept[summary.process].name}"
        else:
            kept[summary.process] = source
            continue
        left_out.append(UnreadHost(name=source.name, reason=reason, process=summary.process))
    return [kept[process].summary for process in sorted(kept)], left_out


def _most_frequent(values: Iterable[_T]) -> _T | None:
    """Return the most frequent value, the first of several; None without values."""
    most = Counter(values).most_common(1)
    return most[0][0] if most else None


def _reference(hosts: Sequence[HostSummary]) -> tuple[HostSummary | None, int]:
    """Return the first process with the most frequent set of arrays, and the number of such processes."""
    digest = _most_frequent(host.digest for host in hosts if host.digest)
    alike = [host for host in hosts if host.digest == digest]
    return (alike[0], len(alike)) if digest else (None, 0)


def _differences(
    reference: HostSummary, others: Sequence[HostSummary], read_arrays: ReadArrays, details: int | None
) -> Iterator[HostDifference]:
    """Yield what differs in each process."""
    shown = others[:details]
    try:
        expected = read_arrays(reference) if shown else None
        reason = NOT_ASKED
    except UnreadError as error:
        expected, reason = None, f"process {reference.process}: {error}"
    for number, host in enumerate(others):
        if expected is None or number >= len(shown):
            yield HostDifference(process=host.process, unread_because=reason)
            continue
        try:
            arrays = read_arrays(host)
        except UnreadError as error:
            yield HostDifference(process=host.process, unread_because=str(error))
            continue
        extra, lacking = arrays.without(expected), expected.without(arrays)
        yield HostDifference(
            process=host.process,
            extra_count=sum(array.count for array in extra),
            lacking_count=sum(array.count for array in lacking),
            extra=tuple(extra[:_MOST_ARRAYS]),
            lacking=tuple(lacking[:_MOST_ARRAYS]),
        )


def _missing(missing: Sequence[int], process_count: int) -> Finding | None:
    if not missing:
        return None
    who = processes_words(missing)
    verb = "is" if len(missing) == 1 else "are"
    return Finding(
        kind="missing process",
        problem=f"{who[:1].upper()}{who[1:]} of {process_count} {verb} missing.",
        remedy="Look at the logs of these processes. If they run, pass a longer timeout=.",
        shell_remedy="Look at the logs of these processes. If they have written files, copy them into the"
        " folder.",
    )


def _different(
    differences: Sequence[HostDifference], reference: HostSummary | None, alike: int
) -> Finding | None:
    if not differences or reference is None:
        return None
    who = processes_words([difference.process for difference in differences])
    verb = "has" if len(differences) == 1 else "have"
    others = f"{alike} other processes" if alike > 1 else f"process {reference.process}"
    problem = f"{who[:1].upper()}{who[1:]} {verb} another set of arrays than {others}."
    return Finding(
        kind="different arrays",
        problem=problem,
        remedy="Look for code that only some processes run, such as one below if jax.process_index() == 0.",
        leaves=tuple(leaf for difference in differences for leaf in _leaves(difference)),
    )


def _leaves(difference: HostDifference) -> Iterator[FindingLeaf]:
    """Yield the arrays that differ, or one entry without an array if they are not known."""
    name = f"process {difference.process}"
    if difference.unread_because is not None:
        yield FindingLeaf(path=name, shape=(), dtype="", change=difference.unread_because)
        return
    for verb, arrays, count in (
        ("only here", difference.extra, difference.extra_count),
        ("not here", difference.lacking, difference.lacking_count),
    ):
        for array in arrays:
            yield _leaf(name, verb, array)
        if more_count := count - sum(array.count for array in arrays):
            yield FindingLeaf(path=name, shape=(), dtype="", change=f"{more_count} more {verb}")


def _leaf(name: str, verb: str, array: HostArray) -> FindingLeaf:
    label = f"{array.label}: " if array.label else ""
    return FindingLeaf(
        path=name,
        shape=array.shape,
        dtype=array.dtype,
        nbytes=array.nbytes,
        change=f"{label}{array.sharding}",
        remedy=verb,
        count=array.count,
    )


def _unread(unread: Sequence[UnreadHost]) -> Finding | None:
    if not unread:
        return None
    verb = "was" if len(unread) == 1 else "were"
    return Finding(
        kind="unread host",
        problem=f"{counted(len(unread), 'report', 'reports')} {verb} left out.",
        remedy="Write the files again with save_report, in the same job and with the same version.",
        leaves=tuple(
            FindingLeaf(path=source.name, shape=(), dtype="", change=source.reason) for source in unread
        ),
    )
