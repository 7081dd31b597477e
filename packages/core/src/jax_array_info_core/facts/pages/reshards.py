"""The page of the traffic of resharding a tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...base.quantities import counted, format_bytes
from ...base.text import that_apply
from ...geometry.layouts import Spec
from ..reports import DevicePeaks, MoveWay, ReshardReport, ReshardRow
from ..reports.moves import Bound
from ..reports.tree import shorter_leaves_words
from .blocks import Block, Column, Note, Row, Sentence, Table, counted_path, limited, more, said
from .folds import folded
from .tree_words import changed_meshes, folds_note, meshes_words, more_leaves
from .words import size_words

TABLES = {
    "bytes to receive": (
        Column("leaf", "path", is_kept=True),
        Column("type", meaning="dtype and global shape"),
        Column("before", before="before: ", meaning="partition spec that the leaf has"),
        Column("after", before="after: ", meaning="partition spec of the target"),
        Column(
            "per device",
            "number",
            meaning="bytes to receive on the device that receives the most, without those it holds already",
        ),
        Column("sum over devices", "number", meaning="bytes that all devices together receive"),
        Column(
            "other processes",
            "number",
            meaning="those of the sum that no device of the receiver's process holds",
        ),
    ),
    "memory while it moves": (
        Column("way", "path", is_kept=True, meaning="how the tree moves"),
        Column("fullest device", "number", meaning="largest memory use of the tree on one device"),
        Column(
            "host", "number", before="host: ", meaning="bytes in host memory, in the process with the most"
        ),
        Column(
            "sends",
            "number",
            before="sends: ",
            meaning="bytes that each device sends by collectives of the compiled program",
        ),
        Column("fits", before="fits: ", meaning="whether the peak fits `hbm_nbytes`"),
    ),
    "memory of each device": (
        Column("devices", "path", is_kept=True, meaning="device ids, or positions in the mesh of a plan"),
        Column("now", "number", before="now: ", meaning="bytes of the tree before it moves"),
        Column("moved", "number", before="moved: ", meaning="bytes of the tree at the end"),
        Column("at once", "number", meaning="peak of `jax.device_put` of the whole tree"),
        Column("leaf by leaf", "number", meaning="peak where each new leaf replaces the old one"),
        Column("jit, donated", "number", meaning="peak of a jitted identity with donation"),
    ),
}
"""Columns of the tables, by title."""
_NUMBERS = ("per device", "sum over devices", "other processes")


def reshard_page(report: ReshardReport) -> Iterator[Block]:
    """Yield the peak of each way to move, the bytes to receive, and the leaves that move.

    The leaves with the most bytes per device are first. Leaves that differ only in the indices of their paths
    share a row.

    Args:
        report: The traffic.
    """
    title = "bytes to receive" + ("" if report.name is None else f" for {report.name}")
    yield from said(_peak_words(report), "answer", hang=0)
    if report.rows:
        per_device, nbytes = format_bytes(report.device_nbytes), format_bytes(report.nbytes)
        most = f", then holds up to {format_bytes(report.restored_nbytes)}" if report.restored_nbytes else ""
        together = f"all {report.device_count} devices receive {nbytes}"
        yield Sentence(f"each device receives at most {per_device}{most}; {together}", "answer", hang=0)
    else:
        yield Sentence(f"{title}: none", "answer", hang=0)
    if report.ways:
        yield _ways_table(report)
    if len(report.peaks) > 1:
        yield _devices_table(report)
    if report.rows:
        yield _table(report, title)
    yield from said(_lines(report), hang=0)


def _peak_words(report: ReshardReport) -> list[str]:
    """Return the peaks of ``jax.device_put``, with the memory of a device."""
    if not report.ways:
        return []
    at_once, by_leaf = report.ways[:2]
    if by_leaf.reason is not None:
        return [f"jax.device_put cannot move it: {by_leaf.reason}"]
    hbm = "" if report.hbm_nbytes is None else f" of {format_bytes(report.hbm_nbytes)}"
    return [f"leaf by leaf needs {_peak(by_leaf)} on the fullest device, at once {_peak(at_once)}{hbm}"]


def _peak(way: MoveWay) -> str:
    return _bounded(way.device_nbytes, way.bound)


def _bounded(nbytes: int | None, bound: Bound | None) -> str:
    """Return bytes with what is known of them."""
    words = size_words(nbytes, "?")
    return words if bound is None else f"{bound} {words}"


def _ways_table(report: ReshardReport) -> Table:
    """Return the table of the ways to move, with what each needs."""
    hbm = report.hbm_nbytes
    words = {True: "yes", False: "no", None: "?"}
    rows: list[Row] = [
        {"way": way.name, "fullest device": Note("not possible", kind="words")}
        if way.reason is not None
        else {
            "way": way.name,
            "fullest device": _peak(way),
            "host": _bounded(way.host_nbytes, way.host_bound),
            "sends": size_words(way.sent_nbytes),
            "fits": "" if hbm is None else words[way.fits(hbm)],
        }
        for way in report.ways
    ]
    return Table(
        "memory while it moves",
        TABLES["memory while it moves"],
        [rows],
        groupings=[
            [["way"], ["fullest device"], ["host"], ["sends"], ["fits"]],
            [["way", "host", "sends", "fits"], ["fullest device"]],
        ],
        breaks="words",
    )


def _devices_table(report: ReshardReport) -> Table:
    """Return the table of devices, those that are alike in one row, the fullest first."""

    def row(peaks: DevicePeaks) -> Row:
        figures = zip(report.ways, peaks.peaks, strict=True)
        return {
            "devices": peaks.devices,
            "now": format_bytes(peaks.before_nbytes),
            "moved": format_bytes(peaks.after_nbytes),
            **{way.name: size_words(nbytes) for way, nbytes in figures if way.name != "from files"},
        }

    def rest(others: Sequence[DevicePeaks]) -> Row:
        count = sum(one.count for one in others)
        return {"devices": Note(more(count, "device", "devices"), kind="words")}

    ordered = sorted(report.peaks, key=lambda one: -max((nbytes or 0 for nbytes in one.peaks), default=0))
    return Table(
        "memory of each device",
        TABLES["memory of each device"],
        [limited(ordered, row, rest)],
        groupings=[
            [["devices"], ["now"], ["moved"], ["at once"], ["leaf by leaf"], ["jit, donated"]],
            [["devices", "now", "moved"], ["at once"], ["leaf by leaf"], ["jit, donated"]],
        ],
    )


def _table(report: ReshardReport, title: str) -> Table:
    """Return the table of the leaves that move, and of their sum."""
    rows = report.rows
    numbers = _NUMBERS if report.process_nbytes else _NUMBERS[:-1]

    def row(fold: tuple[str, list[ReshardRow]]) -> Row:
        path, alike = fold
        first = alike[0]
        return {
            "leaf": counted_path(path, len(alike)),
            "type": first.type,
            "before": _spec_words(first.before),
            "after": _spec_words(first.after),
            **_sums(first, len(alike)),
        }

    def rest(others: Sequence[tuple[str, list[ReshardRow]]]) -> Row:
        total = sum(leaf.nbytes for _, alike in others for leaf in alike)
        return {"leaf": more_leaves(others), "sum over devices": format_bytes(total)}

    folds = folded(rows, lambda leaf: replace(leaf, path=""))
    folds.sort(key=lambda fold: -fold[1][0].device_nbytes * len(fold[1]))
    is_sum = sum(leaf.device_nbytes for leaf in rows) == report.device_nbytes
    total = Note("all leaves" if is_sum else "all leaves, fullest device", kind="words")
    return Table(
        title,
        TABLES["bytes to receive"],
        [
            limited(folds, row, rest),
            [{"leaf": total, **_sums(report)}],
        ],
        groupings=[
            [["leaf", "type"], ["before"], ["after"], *([name] for name in numbers)],
            [["leaf", "type", "before", "after"], *([name] for name in numbers)],
        ],
        caption=folds_note(folds),
        breaks="words",
    )


def _sums(amounts: ReshardRow | ReshardReport, count: int = 1) -> dict[str, str]:
    """Return the bytes of a number of equal leaves, or of all leaves."""
    sizes = (amounts.device_nbytes, amounts.nbytes, amounts.process_nbytes)
    words = ("?" if nbytes is None else format_bytes(count * nbytes) for nbytes in sizes)
    return dict(zip(_NUMBERS, words, strict=True))


def _spec_words(spec: Spec | None) -> str:
    return "no spec" if spec is None else str(spec)


def _lines(report: ReshardReport) -> list[str]:
    """Return the meshes, and the numbers of leaves that are not in the table."""
    mesh = report.meshes_after if report.meshes_before == report.meshes_after else ()
    restored = f"a restore from files needs up to {format_bytes(report.restored_nbytes)} for each device"
    sent = next((way.sent_nbytes for way in report.ways if way.sent_nbytes is not None), None)
    least = f"a device must receive {format_bytes(report.device_nbytes)} at most"
    skipped = counted(report.skipped_count, "leaf", "leaves")
    return changed_meshes(report) + that_apply(
        (mesh, f"mesh: {meshes_words(mesh)}"),
        (report.restored_nbytes and not report.ways, f"between live arrays; {restored}"),
        # The first line has the reason of the two ways of jax.device_put.
        *((way.reason, f"{way.name} is not possible: {way.reason}") for way in report.ways[2:]),
        (sent is not None, f"the compiled program sends {format_bytes(sent or 0)} per device; {least}"),
        (report.rows and report.process_nbytes == 0, "from other processes: none"),
        (report.shorter_count, shorter_leaves_words(report.shorter_count)),
        (report.unmoved_count, f"without traffic: {counted(report.unmoved_count, 'leaf', 'leaves')}"),
        (report.skipped_count, f"left out: {skipped}, deleted, unreduced or of unknown size or sharding"),
    )
