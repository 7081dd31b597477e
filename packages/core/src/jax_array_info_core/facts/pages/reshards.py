"""The page of the traffic of resharding a tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...base.quantities import counted, format_bytes
from ...geometry.layouts import Spec
from ..reports import ReshardReport, ReshardRow
from ..reports.tree import shorter_leaves_words
from .blocks import Block, Column, Note, Row, Sentence, Table, counted_path, limited, said, that_apply
from .folds import folded
from .tree_words import changed_meshes, folds_note, meshes_words, more_leaves

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
    )
}
"""Columns of the table, by its title."""
_NUMBERS = ("per device", "sum over devices", "other processes")


def reshard_page(report: ReshardReport) -> Iterator[Block]:
    """Yield the bytes to receive, then the leaves that move, those with the most bytes per device first.

    Leaves that differ only in the indices of their paths share a row.

    Args:
        report: The traffic.
    """
    title = "bytes to receive" + ("" if report.name is None else f" for {report.name}")
    if report.rows:
        per_device, nbytes = format_bytes(report.device_nbytes), format_bytes(report.nbytes)
        most = f", then holds up to {format_bytes(report.restored_nbytes)}" if report.restored_nbytes else ""
        together = f"all {report.device_count} devices receive {nbytes}"
        yield Sentence(f"each device receives at most {per_device}{most}; {together}", "answer", hang=0)
        yield _table(report, title)
    else:
        yield Sentence(f"{title}: none", "answer", hang=0)
    yield from said(_lines(report), hang=0)


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
    skipped = counted(report.skipped_count, "leaf", "leaves")
    return changed_meshes(report) + that_apply(
        (mesh, f"mesh: {meshes_words(mesh)}"),
        (report.restored_nbytes, f"between live arrays; {restored}"),
        (report.rows and report.process_nbytes == 0, "from other processes: none"),
        (report.shorter_count, shorter_leaves_words(report.shorter_count)),
        (report.unmoved_count, f"without traffic: {counted(report.unmoved_count, 'leaf', 'leaves')}"),
        (report.skipped_count, f"left out: {skipped}, deleted, unreduced or of unknown size or sharding"),
    )
