"""Tables for ``TreeDiff`` and ``ReshardReport``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Console, ConsoleOptions, Group, RenderableType

from jax_array_info_core import format_bytes
from jax_array_info_core.layouts import Spec
from jax_array_info_core.layouts.dtypes import type_text
from jax_array_info_core.layouts.spec import effective_spec
from jax_array_info_core.pages.folds import folded_paths, split_rows
from jax_array_info_core.quantities import counted, format_number
from jax_array_info_core.reports import (
    LeafChange,
    LeafValues,
    ReshardReport,
    ReshardRow,
    TreeDiff,
    TreeMesh,
    TreeRow,
    ValuesDiff,
)
from jax_array_info_core.reports.changes import ChangedField
from jax_array_info_core.reports.tree import shorter_leaves_words

from .. import style
from ..pictures.fitting import path_pieces
from .pages import Content, alignment, fitted_table, wrapped_widths
from .program_words import counted_path
from .tree_words import Line
from .words import mesh_words, reason_words, rule_results


def tree_diff_table(report: TreeDiff, *, max_rows: int | None = 100) -> RenderableType:
    """Return the table of the leaves that were removed, added or changed, with the bytes before and after.

    Leaves that differ only in the indices of their paths share a row. Specs are shown without mesh axes of
    size 1.

    Args:
        report: The differences.
        max_rows: Maximum number of rows. One more row has the number of the other leaves. None shows all.
    """
    title = _title("differences", report.before_name, report.after_name)
    lines = list(map(style.written, _diff_lines(report)))
    results = rule_results(report.rules)
    values = [] if report.values is None else [_values_table(report.values, max_rows)]
    if report.has_same_layouts:
        names = [style.written(title)] if report.before_name or report.after_name else []
        return Group(*results, style.written(_answer(report), look="bold"), *names, *values, *lines)
    changes = list(_changes(report))
    paths = [row.path for row in (*report.removed, *report.added, *(new.after for new in report.changed))]
    folds = folded_paths(paths, list(map(_cells, changes)))
    caption = "\n".join(["Sizes in the table are per device.", *_fold_notes(folds)])
    shown, rest = split_rows(folds, max_rows)

    def make(_: Console, options: ConsoleOptions) -> RenderableType:
        rows = []
        for fold in shown:
            cells = _cells(changes[fold[1][0]], len(fold[1]))
            rows.append([_path(fold, options), *(list(map(Line, cell)) for cell in cells)])
        rows += [[[Line(_more(rest))], [], [], []] for _ in rest[:1]]
        heads = ("leaf", "change", "before", "after")
        content = Content.of(heads, ("left",) * 4, [rows], options.encoding)
        return fitted_table(style.written(title), [content], options.max_width, caption=caption)

    return Group(
        *results, style.written(_answer(report), look="bold"), *values, style.ForConsole(make), *lines
    )


def _answer(report: TreeDiff) -> str:
    """Return what differs: the values, if they are compared, and the layouts."""
    layouts = _layouts_answer(report)
    if report.values is None:
        if report.has_same_layouts:
            return "no differences in shape, dtype, spec or memory kind; values are not compared"
        return f"{layouts}; values are not compared"
    values = report.values
    leaves = counted(values.count, "leaf", "leaves")
    if not values.count:
        answer = "no values compared: the files have no leaf in common"
    elif values.differing:
        answer = f"values differ in {len(values.differing)} of {leaves}"
    elif values.unread:
        answer = f"values equal in {values.count - len(values.unread)} of {leaves}"
    else:
        answer = f"values equal: {leaves}, {format_bytes(values.nbytes)}"
    if values.unread:
        answer += f", not read in {len(values.unread)} ({values.unread[0].problem})"
    if values.others_before or values.others_after:
        others = " before, ".join(map(format_number, (values.others_before, values.others_after)))
        answer += f"; entries that are not arrays were not compared: {others} after"
    if not report.has_same_layouts:
        return f"{answer}; layouts: {layouts}"
    return f"{answer}; layouts are the same" if values.differing or values.unread else answer


def _layouts_answer(report: TreeDiff) -> str:
    """Return the numbers of leaves that were removed, added and changed."""
    counts = ((report.removed, "removed"), (report.added, "added"), (report.changed, "changed"))
    words = ", ".join(f"{len(rows)} {what}" for rows, what in counts if rows)
    differing = sum(len(rows) for rows, _ in counts)
    total = differing + report.unchanged_count
    return f"{differing} of {counted(total, 'leaf differs', 'leaves differ')}: {words}"


def _values_table(values: ValuesDiff, max_rows: int | None) -> RenderableType:
    """Return the table of the leaves with different values, and a line about NaN at the same places."""
    leaves = [*values.differing, *values.unread]
    shown = leaves[:max_rows]
    nan = [leaf for leaf in values.leaves if leaf.is_equal]
    lines = []
    if nan:
        count = sum(leaf.nan_count_before for leaf in nan)
        where = f"{nan[0].path or 'the array'}{', …' if len(nan) > 1 else ''}"
        words = counted(len(nan), "equal leaf", "equal leaves")
        lines = [style.written(f"NaN at the same places: {format_number(count)} in {words} ({where})")]
    if not shown:
        return Group(*lines)

    def make(_: Console, options: ConsoleOptions) -> RenderableType:
        rows = [
            [[Line(leaf.path, keys=path_pieces)], *(list(map(Line, cell)) for cell in _values_cells(leaf))]
            for leaf in shown
        ]
        if rest := len(leaves) - len(shown):
            rows.append([[Line(counted(rest, "more leaf", "more leaves"))], [], []])
        heads = ("leaf", "elements that differ", "largest difference")
        content = Content.of(heads, ("left",) * 3, [rows], options.encoding)
        return fitted_table(style.written("values"), [content], options.max_width, caption="")

    return Group(style.ForConsole(make), *lines)


def _values_cells(leaf: LeafValues) -> tuple[Sequence[str], Sequence[str]]:
    """Return the lines about the elements of a leaf that differ, and those about the largest difference."""
    if leaf.problem is not None:
        return ("not read",), (leaf.problem,)
    if leaf.differing_count is None:
        return ("not comparable",), (leaf.before_type, f"now {leaf.after_type}")
    counts = [format_number(leaf.differing_count)]
    if leaf.before_type != leaf.after_type:
        counts.append(f"{leaf.before_type} and {leaf.after_type}")
    if leaf.nan_count_before or leaf.nan_count_after:
        before, after = map(format_number, (leaf.nan_count_before, leaf.nan_count_after))
        counts.append(
            f"NaN: {before} before, {after} after, {format_number(leaf.nan_in_one_count)} in one only"
        )
    index = f"at [{','.join(map(str, leaf.index or ()))}]"
    size = "no finite difference" if leaf.largest_difference is None else f"{leaf.largest_difference:.6g}"
    return counts, [f"{size} {index}", f"{leaf.before_value} before, {leaf.after_value} after"]


@dataclass(frozen=True, slots=True)
class _Added:
    """A leaf of the second tree only."""

    row: TreeRow


_Cells = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""The lines of the kind of a change, and those before and after it."""


_Change = TreeRow | _Added | LeafChange
"""A removed leaf, an added leaf or a changed leaf."""


def _changes(report: TreeDiff) -> Iterator[_Change]:
    """Yield the changes, with specs without mesh axes of size 1."""
    old, new = report.meshes_before, report.meshes_after
    for row in report.removed:
        yield _with_effective_spec(row, old)
    for row in report.added:
        yield _Added(_with_effective_spec(row, new))
    for change in report.changed:
        before, after = _with_effective_spec(change.before, old), _with_effective_spec(change.after, new)
        yield replace(change, before=before, after=after)


def _with_effective_spec(row: TreeRow, meshes: Sequence[TreeMesh]) -> TreeRow:
    axes = None if row.mesh is None else meshes[row.mesh].axes
    if row.spec is None or axes is None:
        return row
    return replace(row, spec=effective_spec(row.spec, axes.shape))


def _cells(change: _Change, count: int = 1) -> _Cells:
    """Return the cells of a leaf, with the bytes of as many leaves as share the row."""
    if isinstance(change, TreeRow):
        return ("removed",), tuple(_leaf_lines(change, count=count)), ()
    if isinstance(change, _Added):
        return ("added",), (), tuple(_leaf_lines(change.row, count=count))
    before, after = change.before, change.after
    show_size = _size(before) != _size(after)
    old, new = (
        tuple(_leaf_lines(row, change.fields, types, count=count, show_size=show_size))
        for row, types in ((before, change.before_types), (after, change.after_types))
    )
    return tuple(field.replace("_", " ") for field in change.fields), old, new


_Fold = tuple[str, list[int]]
"""A path with folded indices, and the numbers of its leaves."""


def _path(fold: _Fold, options: ConsoleOptions, *notes: str) -> list[Line]:
    """Return the lines of the cell of a path, with notes below it."""
    path = counted_path(fold[0], len(fold[1]), style.marks(options.encoding))
    return [Line(path, keys=path_pieces), *(Line(f"  {note}") for note in notes)]


def _fold_notes(folds: Sequence[_Fold]) -> Iterator[str]:
    if any(len(members) > 1 for _, members in folds):
        yield "Rows of several leaves show the sum of their bytes."


def _more(folds: Sequence[_Fold]) -> str:
    return counted(sum(len(members) for _, members in folds), "more leaf", "more leaves")


def _title(noun: str, before: str | None, after: str | None) -> str:
    if before is None and after is None:
        return noun
    return f"{noun} from {before or 'the first tree'} to {after or 'the second tree'}"


def _leaf_lines(
    row: TreeRow,
    fields: Collection[ChangedField] = (),
    types: str = "",
    *,
    count: int = 1,
    show_size: bool = True,
) -> Iterator[str]:
    """Yield the facts about a leaf.

    Args:
        row: The leaf.
        fields: Fields in which it differs from the other tree; empty for a leaf of one tree only.
        types: Types of its mesh axes, if they differ.
        count: Number of leaves that share the row.
        show_size: Whether to include the bytes per device.
    """
    if not fields or "shape" in fields or "dtype" in fields:
        yield type_text(row.dtype, row.shape)
    if not fields or "spec" in fields:
        yield _sharding_words(row)
    if types:
        yield types
    if row.is_in_host_memory and (not fields or "memory_kind" in fields):
        yield f"in {row.memory_kind}"
    elif "memory_kind" in fields:
        yield "in device memory"
    if show_size:
        yield _size(row, count)


def _sharding_words(row: TreeRow) -> str:
    """Return the spec of a leaf; without one, the class of its sharding with its shards and replicas."""
    if row.spec is None and row.unknown_because is not None:
        return f"unknown: {reason_words(row.unknown_because)}"
    words = [row.sharding_text]
    if row.spec is None and row.sharding is not None:
        if row.shard_shape is not None and row.shard_shape != row.shape:
            words.append(f"shards [{','.join(map(str, row.shard_shape))}]")
        if row.replicas > 1:
            words.append(f"{format_number(row.replicas)} replicas")
    return ", ".join(words)


def _size(row: TreeRow, count: int = 1) -> str:
    """Return the bytes per device of a number of equal leaves."""
    return "size unknown" if row.shard_nbytes is None else format_bytes(count * row.shard_nbytes)


def _diff_lines(report: TreeDiff) -> Iterator[str]:
    """Yield the numbers of leaves, what is not compared, the meshes if they differ, and the bytes."""
    numbers = (
        (len(report.removed), "removed"),
        (len(report.added), "added"),
        (len(report.changed), "changed"),
        (report.unchanged_count, "equal"),
    )
    counts = [(count, what) for count, what in numbers if count]
    words = [f"{format_number(count)} {what}" for count, what in counts[1:]]
    words[:0] = [f"{counted(count, 'leaf', 'leaves')} {what}" for count, what in counts[:1]]
    yield f"shape, dtype, spec, memory kind: {', '.join(words) or 'no leaves'}"
    if report.values is None:
        option = "--values" if report.syntax == "shell" else "values=True"
        yield f"values: not compared; {option} compares those of two files"
    yield from _mesh_lines(report)
    yield _change_words("per device", report.device_nbytes_before, report.device_nbytes_after)
    yield _change_words("global size", report.nbytes_before, report.nbytes_after)


def _mesh_lines(report: TreeDiff | ReshardReport) -> Iterator[str]:
    """Yield the meshes of two trees if they differ."""
    before, after = (_meshes_words(meshes) for meshes in (report.meshes_before, report.meshes_after))
    if before != after:
        yield f"mesh before: {before}"
        yield f"mesh after: {after}"


def _meshes_words(meshes: Sequence[TreeMesh]) -> str:
    """Return the meshes and device sets of a tree, each kind once."""
    words = [
        mesh_words(mesh.axes)
        if mesh.axes is not None
        else counted(mesh.device_count, "device", "devices") + " without a mesh"
        for mesh in meshes
    ]
    return "; ".join(dict.fromkeys(words)) or "none"


def _change_words(place: str, before: int, after: int) -> str:
    """Return bytes before and after: ``per device: 1.0 GiB before, 3.0 GiB after (2.0 GiB more)``."""
    if before == after:
        return f"{place}: {format_bytes(before)} before and after"
    difference = f"{format_bytes(abs(after - before))} {'more' if after > before else 'less'}"
    return f"{place}: {format_bytes(before)} before, {format_bytes(after)} after ({difference})"


def reshard_table(report: ReshardReport, *, max_rows: int | None = 100) -> RenderableType:
    """Return the table of the leaves that move, those with the most bytes per device first.

    Leaves that differ only in the indices of their paths share a row.

    Args:
        report: The traffic.
        max_rows: Maximum number of rows. One more row has the sum of the other leaves. None shows all.
    """
    title = "bytes to receive" + ("" if report.name is None else f" for {report.name}")
    lines = list(map(style.written, _reshard_lines(report)))
    if not report.rows:
        return Group(style.written(f"{title}: none", look="bold"), *lines)
    answer = (
        f"each device receives at most {format_bytes(report.device_nbytes)}, "
        f"all {report.device_count} devices together {format_bytes(report.nbytes)}"
    )
    rows, has_processes = report.rows, bool(report.process_nbytes)
    folds = folded_paths([row.path for row in rows], [replace(row, path="") for row in rows])
    folds.sort(key=lambda fold: -rows[fold[1][0]].device_nbytes * len(fold[1]))
    is_sum = sum(row.device_nbytes for row in rows) == report.device_nbytes
    of_all = "all leaves" if is_sum else "all leaves, fullest device"
    heads = ["per device", "sum over devices", *["other processes"] * has_processes]
    shown, rest = split_rows(folds, max_rows)

    def make(_: Console, options: ConsoleOptions) -> RenderableType:
        def content(*, is_narrow: bool) -> Content:
            specs = [] if is_narrow else ["before", "after"]
            cells = []
            for fold in shown:
                row = rows[fold[1][0]]
                words = (_spec_words(row.before), _spec_words(row.after))
                notes = [f"{when}: {spec}" for when, spec in zip(("before", "after"), words, strict=True)]
                path = _path(fold, options, row.type, *(notes if is_narrow else ()))
                numbers = _numbers(row, has_processes, len(fold[1]))
                cells.append([path, *([Line(one)] for one in (*(() if is_narrow else words), *numbers))])
            if rest:
                total = sum(rows[member].nbytes for _, members in rest for member in members)
                more = [_more(rest), *("" for _ in specs), "", format_bytes(total), *[""] * has_processes]
                cells.append([[Line(one)] for one in more])
            last = (of_all, *("" for _ in specs), *_numbers(report, has_processes))
            return Content.of(
                ["leaf", *specs, *heads],
                [*map(alignment, (False, *(False for _ in specs))), *(alignment(True) for _ in heads)],
                [cells, [[[Line(one)] for one in last]]],
                options.encoding,
            )

        caption = "\n".join(_fold_notes(folds)) or None
        contents = (content(is_narrow=is_narrow) for is_narrow in (False, True))
        return fitted_table(
            style.written(title), contents, options.max_width, needed=wrapped_widths, caption=caption
        )

    return Group(style.written(answer, look="bold"), style.ForConsole(make), *lines)


def _numbers(row: ReshardRow | ReshardReport, has_processes: bool, count: int = 1) -> list[str]:
    """Return the bytes of a number of equal leaves, or of all leaves."""
    numbers = [row.device_nbytes, row.nbytes, *([row.process_nbytes] if has_processes else [])]
    return ["?" if nbytes is None else format_bytes(count * nbytes) for nbytes in numbers]


def _spec_words(spec: Spec | None) -> str:
    return "no spec" if spec is None else str(spec)


def _reshard_lines(report: ReshardReport) -> Iterator[str]:
    """Yield the meshes, and the numbers of leaves that are not in the table."""
    yield from _mesh_lines(report)
    if report.meshes_after and report.meshes_before == report.meshes_after:
        yield f"mesh: {_meshes_words(report.meshes_after)}"
    if report.restored_nbytes:
        size = format_bytes(report.restored_nbytes)
        yield f"between live arrays; a restore from files needs up to {size} for each device"
    if report.rows and report.process_nbytes == 0:
        yield "from other processes: none"
    if report.shorter_count:
        yield shorter_leaves_words(report.shorter_count)
    if report.unmoved_count:
        yield f"without traffic: {counted(report.unmoved_count, 'leaf', 'leaves')}"
    if report.skipped_count:
        leaves = counted(report.skipped_count, "leaf", "leaves")
        yield f"left out: {leaves}, deleted, unreduced or of unknown size or sharding"
