"""Assertions about the collectives, donations and shardings of a compiled program."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..base.errors import CheckError, UnsupportedValueError, require_report
from ..base.grouping import by_key
from ..base.quantities import counted, format_bytes
from ..base.text import printable
from ..facts.reports.collectives import Collective, because_words, link_words, sent_by, sent_words
from ..facts.reports.program import ProgramReport
from ..facts.reports.program_values import (
    ProgramValue,
)
from ..facts.reports.work import WorkShare
from ..geometry.layouts.links import MAY_BE, Link, as_link
from ..geometry.layouts.notation import as_nbytes
from ..geometry.layouts.spec import SpecLike, as_spec, same_spec
from ..xla.hlo.collectives import COLLECTIVES


def assert_no_collective(
    report: ProgramReport,
    kind: str,
    *,
    mesh_axis: str | None = None,
    link: str | None = None,
    min_nbytes: int | str = 0,
) -> None:
    """Raise CheckError if a program has a collective of a kind.

    What is unknown fails the assertion: lines that could not be read and may send, collectives over
    unknown mesh axes or links, and unless a bound stays below ``min_nbytes``, loops without a known length
    and bytes that depend on data.

    Args:
        report: A report from ``program_report``.
        kind: Name of the operation in XLA, such as ``"all-gather"``.
        mesh_axis: Mesh axis. If given, only collectives over this axis count, also over a part of it.
        link: Link between devices, such as ``"dcn"`` or ``"other-host"``. If given, only collectives count
            whose slowest link is this one, or may be.
        min_nbytes: Bytes sent per device and call from which equal collectives of one line count. A step
            that reduces a loss over devices has all-reduces of a few bytes.

    Raises:
        CheckError: (an AssertionError) If there are any. The message lists each with its bytes and line, and
            the number of those below ``min_nbytes``.
        UnsupportedValueError: (a ValueError) If XLA has no such operation, the mesh of the program has no
            such axis, there is no such link, or ``min_nbytes`` is not an integer.

    >>> import jax, jax.numpy as jnp
    >>> report = program_report(jnp.sin, jax.ShapeDtypeStruct((8,), jnp.float32))
    >>> assert_no_collective(report, "all-gather")
    """
    __tracebackhide__ = True  # pytest then shows the line of the test
    require_report(report, ProgramReport)
    _require_axis(report, mesh_axis)
    _require_kind(kind)
    known_link = None if link is None else as_link(link)
    min_nbytes = as_nbytes("min_nbytes", min_nbytes)
    known = matching(report, kind, mesh_axis, known_link)
    by_size = by_key((row.bound_nbytes is None or row.bound_nbytes >= min_nbytes, row) for row in known)
    large, small = by_size.get(True, []), by_size.get(False, [])
    over = "" if mesh_axis is None else f" over mesh axis {mesh_axis!r}"
    over += "" if known_link is None else f" by {link_words(known_link)}"
    problems = [*_unknown_parts(report), *(collective_words(row, known_link) for row in large)]
    if problems and small:
        size = format_bytes(sum(row.bound_nbytes or 0 for row in small))
        number = counted(sum(row.count for row in small), "collective", "collectives")
        problems.append(f"not counted, below {min_nbytes:,} bytes each: {number}, at most {size}")
    _fail(report, f"{kind}{over} in {report.name}", problems)


def assert_sent(
    report: ProgramReport,
    at_most: int | str,
    *,
    kind: str | None = None,
    mesh_axis: str | None = None,
    link: str | None = None,
) -> None:
    """Raise CheckError if a device sends more than some bytes in one call of a program.

    What is unknown fails the assertion: lines that could not be read and may send, loops without a known
    length, bytes that depend on data, and collectives over unknown mesh axes or links.

    Args:
        report: A report from ``program_report``.
        at_most: Largest accepted number of bytes per device.
        kind: Name of the operation in XLA; None for all.
        mesh_axis: Mesh axis. If given, only collectives over this axis count, also over a part of it.
        link: Link between devices, such as ``"dcn"`` or ``"other-host"``. If given, only collectives count
            whose slowest link is this one, or may be.

    Raises:
        CheckError: (an AssertionError) If it sends more, or an unknown number of bytes. The message lists
            the collectives with their bytes and lines.
        UnsupportedValueError: (a ValueError) If XLA has no such operation, the mesh of the program has no
            such axis, there is no such link, or ``at_most`` is not an integer.

    >>> import jax, jax.numpy as jnp
    >>> assert_sent(program_report(jnp.sin, jax.ShapeDtypeStruct((8,), jnp.float32)), 0)
    """
    __tracebackhide__ = True
    require_report(report, ProgramReport)
    _require_axis(report, mesh_axis)
    if kind is not None:
        _require_kind(kind)
    at_most = as_nbytes("at_most", at_most)
    known_link = None if link is None else as_link(link)
    collectives = list(matching(report, kind, mesh_axis, known_link))
    sent = sum(row.total_nbytes or 0 for row in collectives)
    unknown = [
        *_unknown_parts(report),
        *(
            collective_words(row, known_link)
            for row in collectives
            if row.total_nbytes is None
            or (mesh_axis and row.axes is None)
            or (known_link and row.link != known_link)
        ),
    ]
    parts = (
        kind,
        f"over mesh axis {mesh_axis!r}" if mesh_axis else None,
        f"by {link_words(known_link)}" if known_link else None,
    )
    what = " ".join(filter(None, parts))
    problem = (
        f"{report.name} sends {format_bytes(sent)} ({sent:,} bytes) per device{f' ({what})' if what else ''}"
    )
    if sent > at_most:
        rows = [collective_words(row, known_link) for row in collectives if row.total_nbytes]
        _fail(report, f"{problem}, more than {at_most:,} bytes", [*unknown, *rows])
    _fail(report, f"{problem}, and an unknown number of bytes", unknown)


def assert_donated(report: ProgramReport, path: str) -> None:
    """Raise CheckError unless an argument, and all arguments below its path, are donated and reused.

    Args:
        report: A report from ``program_report``.
        path: Path of an argument, such as ``"state"`` or ``"state/params/w"``.

    Raises:
        CheckError: (an AssertionError) If an argument is not donated, or no output reuses its memory. The
            message gives the reason for each.
        UnsupportedValueError: (a ValueError) If there is no such argument.

    >>> import jax, jax.numpy as jnp
    >>> step = jax.jit(lambda state: state + 1, donate_argnums=0)
    >>> assert_donated(program_report(step, jax.ShapeDtypeStruct((8,), jnp.float32)), "state")
    """
    __tracebackhide__ = True
    require_report(report, ProgramReport)
    by_path = {row.path: row for row in report.donations or ()}
    problems = [*filter(None, [report.lacks("donations")])]
    for argument in _below(path, report.arguments) if report.donations is not None else ():
        donation = by_path.get(argument.path)
        size = "" if argument.nbytes is None else f" ({format_bytes(argument.nbytes)})"
        if donation is None:
            reason = report.reason or "not in donate_argnums or donate_argnames"
            problems.append(f"{argument.path}{size}: {reason}")
        elif donation.output is None:
            reason = donation.reason or "XLA did not reuse it"
            problems.append(f"{argument.path}{size}: {reason}")
    _fail(report, f"arguments of {report.name} whose memory is not reused", [*_uncompiled(report), *problems])


def assert_program_sharding(report: ProgramReport, path: str, spec: SpecLike) -> None:
    """Raise CheckError unless an argument or output, and all below its path, have a sharding.

    Equivalent specs are equal: with or without a trailing None, mesh axes of size 1, or tuples of one name.

    Args:
        report: A report from ``program_report``.
        path: Path of an argument or output, such as ``"outputs/0/w"``.
        spec: The expected spec.

    Raises:
        CheckError: (an AssertionError) If a sharding differs or is unknown. The message names the mesh axes.
        UnsupportedValueError: (a ValueError) If there is no such argument or output, or the mesh of the
            program lacks an axis of the spec, or the spec has unconstrained axes.

    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import NamedSharding, PartitionSpec as P
    >>> mesh = jax.sharding.Mesh(jax.devices()[:1], ("data",))
    >>> x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    >>> assert_program_sharding(program_report(jnp.sin, x), "outputs", P("data"))
    """
    __tracebackhide__ = True
    require_report(report, ProgramReport)
    expected = as_spec(spec)
    if expected.unconstrained:
        raise UnsupportedValueError(f"{expected} leaves axes open: pass the spec that you expect")
    for names in (*expected.axes, expected.unreduced):
        for name in names:
            _require_axis(report, name)
    problems = []
    for value in _below(path, [*report.arguments, *report.outputs]):
        got = value.got
        if got is None or got.spec is None:
            known = "is pruned" if value.is_pruned else "is unknown" if got is None else str(got)
            problems.append(f"{value.path}: its sharding {known}, not {expected}")
            continue
        sizes = got.mesh.shape if got.mesh is not None else {}
        if not same_spec(expected, sizes, got.spec, sizes):
            reason = f" ({value.reason})" if value.reason else ""
            problems.append(f"{value.path}: {got.spec}, not {expected}{reason}")
    _fail(report, f"shardings of {report.name} that differ", [*_uncompiled(report), *problems])


def assert_work_divided(report: ProgramReport, *, at_most: float = 1.05) -> None:
    """Raise CheckError if each device does more than its share of the heavy work of a program.

    The share is 1 if the devices divide the work evenly, and the number of devices if each of them does all.
    A share that is unknown fails the assertion, as that of one device, or of a report on a ``Compiled``.

    Args:
        report: A report from ``program_report``.
        at_most: Largest accepted share.

    Raises:
        CheckError: (an AssertionError) If the share is larger, or unknown. The message lists the lines with
            the work that they repeat, or has the reason.

    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import NamedSharding, PartitionSpec as P
    >>> rows = NamedSharding(jax.make_mesh((jax.device_count(),), ("data",)), P("data"))
    >>> x = jax.ShapeDtypeStruct((512, 512), jnp.float32, sharding=rows)
    >>> w = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    >>> if jax.device_count() > 1:
    ...     assert_work_divided(program_report(lambda x, w: x @ w, x, w))
    """
    __tracebackhide__ = True
    require_report(report, ProgramReport)
    work = report.work or WorkShare()
    problem = f"share of the work of {report.name} that each device does: {work.share_words}"
    if work.share is None:
        _fail(
            report, problem, [*_uncompiled(report), report.lacks("share of work") or "it cannot be checked"]
        )
    elif not work.share <= at_most:  # also of NaN
        lines = [line.words for line in work.lines if line.repeated_flops] or ["in lines that are not known"]
        _fail(report, f"{problem}, more than {at_most:g}", lines)


def matching(
    report: ProgramReport, kind: str | None, axis: str | None, link: Link | None = None
) -> Iterator[Collective]:
    """Yield the collectives of a kind over a mesh axis and a link; also those over unknown ones."""
    for collective in report.collectives or ():
        over = None if collective.axes is None else {name.partition(":(")[0] for name in collective.axes}
        if (
            kind in (None, collective.kind)
            and (axis is None or over is None or axis in over)
            and (link is None or _may_be_over(collective, link))
        ):
            yield collective


def _may_be_over(collective: Collective, link: Link) -> bool:
    """Return whether the slowest link of a collective is a link, or may be."""
    if collective.link is None:
        return collective.sent_nbytes > 0
    return collective.link == link or link in MAY_BE.get(collective.link, ())


def collective_words(collective: Collective, link: Link | None = None) -> str:
    """Return a collective in one line.

    Args:
        collective: The collective.
        link: The link that is searched for.
    """
    over = "unknown mesh axes" if collective.axes is None else ", ".join(collective.axes) or "no mesh axis"
    if collective.total_nbytes is not None:
        size = format_bytes(collective.total_nbytes)
    elif collective.depends_on_data and collective.bound_nbytes is not None:
        size = f"at most {format_bytes(collective.bound_nbytes)}, depending on data"
    else:
        bound = "" if collective.at_most is None else f", at most {collective.at_most:,} times"
        size = (
            f"{format_bytes(collective.sent_nbytes * collective.count)} × an unknown number of times{bound}"
        )
        if collective.is_in_loop:
            size = sent_words(sent_by([collective]))
    operand = f" of {collective.path}" if collective.path else ""
    line = f", {collective.origin}" if collective.origin else ""
    by = f" by {link_words(collective.link)}" if link and collective.link != link else ""
    because = f", because {words}" if (words := because_words(collective)) else ""
    return f"{collective.kind} over {over}{by}: {size}{operand}{line}{because}"


def _unknown_parts(report: ProgramReport) -> Iterator[str]:
    """Yield the parts of a program that are unknown."""
    yield from _uncompiled(report)
    yield from filter(None, (report.reason, report.lacks("collectives")))
    lines = report.unread_sending
    for line in lines[:3]:
        yield f"a line that could not be read: {line[:120]}"
    if len(lines) > 3:
        yield f"and {len(lines) - 3} more such lines"


def _uncompiled(report: ProgramReport) -> Iterator[str]:
    if report.out_of_memory is not None:
        yield f"the program is not compiled: {report.out_of_memory.message}"


def _below(path: str, values: Sequence[ProgramValue]) -> list[ProgramValue]:
    """Return the values at a path and below it, or raise UnsupportedValueError."""
    chosen = [value for value in values if value.path == path or value.path.startswith(f"{path}/")]
    if chosen:
        return chosen
    names = {"/".join(value.path.split("/")[:depth]) for value in values for depth in (1, 2, 9)}
    similar = difflib.get_close_matches(path, sorted(names), n=3)
    hint = f": did you mean {' or '.join(map(printable, similar))}?" if similar else ""
    raise UnsupportedValueError(f"the program has no argument or output {path!r}{hint}")


def _require_axis(report: ProgramReport, axis: str | None) -> None:
    if axis is not None and report.mesh is not None and axis not in report.mesh.names:
        known = ", ".join(map(repr, report.mesh.names))
        raise UnsupportedValueError(f"{axis!r} is not a mesh axis: the mesh has {known}")


def _require_kind(kind: str) -> None:
    if kind not in COLLECTIVES:
        known = sorted(COLLECTIVES)
        similar = difflib.get_close_matches(str(kind).lower().replace("_", "-"), known, n=1)
        hint = f": did you mean {similar[0]!r}?" if similar else f": XLA has {', '.join(known)}"
        raise UnsupportedValueError(f"{str(kind)!r} is not a collective{hint}")


def _fail(report: ProgramReport, problem: str, lines: Iterable[Any]) -> None:
    """Raise CheckError if there are lines."""
    __tracebackhide__ = True
    listed = list(lines)
    if listed:
        message = "\n".join(map(printable, [f"{problem}:", *(f"- {line}" for line in listed)]))
        raise CheckError(message, report)
