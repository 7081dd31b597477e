"""Pages of arrays and other values, of single shards, and of layouts and XLA's shardings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ...base.quantities import format_bytes, format_device_ids, format_devices, percent_words
from ...base.text import clipped, shape_text, that_apply
from ...geometry.layouts import MeshAxes, ShardingLayout, format_spec
from .blocks import (
    TIMES,
    Block,
    Limited,
    Listing,
    Look,
    Note,
    Panel,
    Picture,
    Sentence,
    more,
    said,
)
from .words import copies_words, index_words, manual_words, mesh_words, size_words, unknown_words

if TYPE_CHECKING:
    from ..reports import ArrayReport, ContainerLeaf, MeshReport, ShardReport, XlaReport

MAX_WORDS = 160
MAX_FRACTION = 9

_KNOWN_FROM = {"array": "the array", "type": "the type", "compiler": "the compiler"}
_Lines: TypeAlias = "Sequence[str | Note | Sequence[Note]]"
"""Lines of a panel; empty texts are left out."""


def array_page(report: ArrayReport, *, count: int = 1, is_drawn: bool = False) -> Iterator[Listing]:
    """Yield the panel of a value, with the value's name as its title, and the drawing of its layout.

    Args:
        report: The value.
        count: Number of equal panels for which this one stands. It is behind the name: ``hidden ×4, each``.
        is_drawn: Whether a console shows the drawing, too.
    """
    title = " ".join(that_apply((report.name, report.name or ""), (count > 1, f"{TIMES}{count}, each")))

    def panel(leaves: Sequence[ContainerLeaf]) -> list[Block]:
        return [Panel(title, [line for line in _lines(report, leaves) if line])]

    # The panel has the line about the other leaves.
    yield Limited(report.leaves, panel, lambda _: [])
    if report.layout is not None:
        yield Picture(report, in_text=is_drawn)


def layout_page(report: MeshReport | ShardingLayout) -> Iterator[Block]:
    """Yield the drawing of a layout or a mesh."""
    yield Picture(report)


def _lines(report: ArrayReport, leaves: Sequence[ContainerLeaf]) -> _Lines:
    """Return the lines of a panel, with some of the leaves of a container."""
    type_line = f"type: {report.type_name}"
    match report.kind:
        case "none":
            return ["None"]
        case "scalar":
            return [type_line, f"value: {report.value}"]
        case "object":
            return [type_line, *_object_lines(report)]
        case "container":
            hidden = len(report.leaves) - len(leaves)
            return [
                type_line,
                f"len: {report.length}",
                *(f"{leaf.path}: {leaf.type}" for leaf in leaves),
                _if(hidden, f"and {more(hidden, 'leaf', 'leaves')}", "aside"),
            ]
    lines = [_shape(report), f"dtype: {report.dtype}", *_size_lines(report)]
    if report.kind == "numpy":
        return [*lines, Note("numpy array", "answer"), report.elsewhere or ""]
    return [
        *lines,
        *_local_lines(report),
        *_trace_lines(report),
        *_place_lines(report),
        *_layout_lines(report),
    ]


def _if(is_said: object, text: str, look: Look = "") -> Note | str:
    """Return a line on a condition."""
    return Note(text, look) if is_said else ""


def _object_lines(report: ArrayReport) -> _Lines:
    """Return the lines of a sharding, a spec, a mesh or a shard."""
    sharding = report.sharding
    mesh = sharding.mesh if sharding else None
    return [
        f"spec: {clipped(str(sharding.spec), MAX_WORDS)}" if sharding and sharding.spec else "",
        f"mesh: {mesh_words(mesh)}" if mesh else "",
        _types(mesh),
        _memory(report),
        _if(report.device is not None, f"device: {report.device}"),
        "" if report.index is None else f"index: {index_words(report.index)}",
        _if(report.replica is not None, f"replica: {report.replica}"),
    ]


def _types(mesh: MeshAxes | None) -> str:
    """Return the types of the axes of a mesh, unless all are Auto, or unknown."""
    return f"axis types: {mesh.types_text}" if mesh and set(mesh.types) - {"Auto"} else ""


def _memory(report: ArrayReport) -> str:
    """Return the memory kind, if it is not the default of the devices."""
    is_default = not report.default_memory_kind or report.memory_kind in (None, report.default_memory_kind)
    return "" if is_default else f"memory_kind: {report.memory_kind}"


def _shape(report: ArrayReport) -> Sequence[Note]:
    """Return the shape as a tuple, with looks for sharded axes and for varying values."""
    shape, sharded = report.shape or (), report.sharded_axes
    pieces = [Note("shape: "), Note("(", "punctuation")]
    for axis, dim in enumerate(shape):
        look: Look = "varying" if report.varying_axes else "sharded" if axis in sharded else "length"
        pieces += [Note(", " if axis else "", "punctuation"), Note(str(dim), look)]
    return [*pieces, Note(",)" if len(shape) == 1 else ")", "punctuation")]


def _size_lines(report: ArrayReport) -> _Lines:
    """Return the value, and the bytes in total and per device."""
    part = _part(report)
    size = "" if report.nbytes is None else f"size: {format_bytes(report.nbytes)}"
    # Under vmap, the size is that of the value inside the function, without batched axes.
    per_device = f"per device: {size_words(report.shard_nbytes)}{_of_batch(report)}{part}"
    is_less = report.shard_nbytes != report.nbytes
    has_part = (
        report.layout and report.shard_nbytes is not None and (part or is_less or report.kind == "planned")
    )
    return [
        _if(report.value is not None, f"value: {report.value}"),
        Note("deleted", "warning") if report.is_deleted else size,
        _if(has_part, per_device),
    ]


def _part(report: ArrayReport) -> str:
    """Return the replicas with their mesh axes, and partial sums; for a planned array also its fraction."""
    copies = copies_words(report.unreduced, report.partial_sums, report.replicas)
    over = report.sharding.unused_axes if report.sharding else ()
    if report.kind == "planned":
        shards = math.prod(report.layout.shard_counts) if report.layout else 1
        words = ", ".join(filter(None, (f"1/{shards}", copies)))
        return "" if words == "1/1" else f" ({words})"
    if over and report.partial_sums == 1:
        return f", replicated over {', '.join(over)} ({copies})"
    return f", {copies}" if copies else ""


def _local_lines(report: ArrayReport) -> _Lines:
    """Return the part of the array on this process, with its devices and bytes."""
    addressable = _if(not report.is_fully_addressable, "!is_fully_addressable")
    part, layout, share = report.local_part, report.layout, report.local_share
    if part is None or layout is None or share is None:
        return [addressable]
    holds = f"process {part.process} holds"
    if not part.devices:
        return [addressable, Note(f"{holds} no shards", "aside")]
    fraction = (
        str(share)
        if len(str(share)) <= MAX_FRACTION
        else percent_words(share.numerator, share.denominator, decimals=2)
    )
    shards = math.prod(layout.shard_counts)
    words = f"{part.shard_count} of {shards} shards, {fraction} of the elements"
    if share == 1:
        words = "the whole array"
    elif part.index:
        words = f"{fraction}: {index_words(part.index)}"
    bytes_line = ""
    if part.nbytes is not None and part.device_nbytes is not None:
        without = "without replicas" if report.partial_sums == 1 else "after summing"
        unique = f", {format_bytes(part.nbytes)} {without}" if part.device_nbytes > part.nbytes else ""
        where = clipped(format_devices(layout.platform, part.devices), MAX_WORDS)
        bytes_line = f"on {where}: {format_bytes(part.device_nbytes)}{unique}"
    return [addressable, f"{holds} {words}", bytes_line]


def _trace_lines(report: ArrayReport) -> _Lines:
    """Return the transformation around a traced value, its batched and its manual axes, and its class."""
    batch, manual = report.batch, report.manual_axes
    is_tracer, is_under = report.kind == "tracer", report.called_under not in (None, "jit")
    noun = "axis" if batch and len(batch.axes) == 1 else "axes"
    return [
        _if(is_tracer and is_under, f"called under {report.called_under}", "aside"),
        # Without a jit around it, jax.checkpoint traces and then runs operation by operation.
        _if(is_tracer and not is_under and report.source != "array", "called in jit", "aside"),
        f"vmap: {noun} {', '.join(map(str, batch.axes))} of {shape_text(batch.shape)}" if batch else "",
        manual_words(manual, report.invariant_axes) if manual else "",
        _if(report.kind in ("abstract", "array-like"), report.type_name, "aside"),
    ]


def _place_lines(report: ArrayReport) -> _Lines:
    """Return what sets the value apart from an array in the memory of the default device."""
    return [
        report.elsewhere or "",
        _if(report.weak_type, "weakly-typed"),
        _if(not report.is_default_device, f"device: {report.device}", "aside"),
        _if(report.varying_axes, f"vma: {{{', '.join(map(repr, report.varying_axes))}}}"),
        _if(report.unreduced_axes, f"partial sums over: {', '.join(report.unreduced_axes)}"),
        _memory(report),
        _if(len(report.devices) == 1 and (report.visible_devices or 1) > 1, "not sharded", "warning"),
        _if(report.unknown_because, unknown_words(report), "aside"),
    ]


def _layout_lines(report: ArrayReport) -> _Lines:
    """Return the sharding, where it is from, the slices of the first device, and the mesh of a plan."""
    sharding, layout, padded = report.sharding, report.layout, report.padded_shape
    known_from = _KNOWN_FROM.get(report.source) if report.kind == "tracer" else None
    lines: list[str | Note] = []
    if sharding and sharding.type != "SingleDeviceSharding":
        words = clipped(str(sharding.spec) if sharding.spec else sharding.text or "", MAX_WORDS)
        lines = [f"{sharding.type}: {words}" if words else sharding.type, _types(sharding.mesh)]
    lines += [
        _if(known_from, f"known from: {known_from}", "aside"),
        _if(padded, f"inside: padded to {shape_text(padded or ())}", "warning"),
        _if(report.open_axes, f"chosen by XLA: {', '.join(map(repr, report.open_axes))}", "aside"),
    ]
    if layout is None:
        return lines
    first = format_devices(layout.platform, layout.devices_of((0,) * len(layout.shape))[:1])
    for axis in layout.sharded_axes:
        piece = layout.axis_slice(axis, 0)
        intro = f"axis {axis}{_of_batch(report)} is sharded: "
        share = f"{piece.start}:{piece.stop} (1/{layout.shard_counts[axis]})"
        lines += [f"{intro}{first} contains {share}", f"{' ' * len(intro)}Total size: {layout.shape[axis]}"]
    if report.kind == "planned" and sharding and sharding.mesh:
        over = f"{', '.join(sharding.unused_axes)} ({report.replicas} replicas)"
        lines += [
            f"mesh: {mesh_words(sharding.mesh)}",
            _if(sharding.unused_axes, f"replicated over: {over}", "warning"),
        ]
    return lines


def _of_batch(report: ArrayReport) -> str:
    """Return the shape of the whole value under vmap, or an empty text outside vmap."""
    return f" of {shape_text(report.batch.shape)}" if report.batch else ""


def shard_page(report: ShardReport) -> Iterator[Block]:
    """Yield the line on the shard of one device."""
    others = [device for device in report.holders if device != report.device_id]
    names = format_devices(report.platform, others)
    if len(others) > 1 and not report.platform:
        names = f"devices {format_device_ids(others)}"
    sums = f"one of {report.partial_sums} partial sums; the others are on {names}"
    facts = (
        f"{format_devices(report.platform, [report.device_id])} holds {index_words(report.index)}",
        size_words(report.nbytes),
        sums if report.partial_sums > 1 else f"replicated on {names}" if others else "",
    )
    yield Sentence(", ".join(filter(None, facts)), hang=0)


_MEANINGS = {
    "replicated": "replicated: every device holds the whole array",
    "manual": "manual: inside shard_map, where the program places the data",
    "unreduced": "unreduced: every device holds a partial sum of the whole array",
    "unknown": "unknown: XLA has not chosen a sharding",
    "maximal": "maximal: one device holds the whole array",
}


def xla_page(report: XlaReport) -> Iterator[Block]:
    """Yield the spec, the pattern and the drawing of a sharding in XLA's notation."""
    spec, meaning = _spec_words(report), _MEANINGS.get(report.kind)
    answers = [*filter(None, (meaning, spec))]
    yield from said(answers, "alarm" if spec and report.spec is None else "answer", hang=0)
    yield Sentence(report.text, "" if answers else "answer", hang=0)
    yield from said(report.patterns, hang=0)
    yield from said((f"uneven: {problem}" for problem in report.uneven), "warning", hang=0)
    if report.layout is not None:
        yield Picture(report)


def _spec_words(report: XlaReport) -> str:
    """Return the equivalent spec on the mesh, and how a command takes it; empty without a mesh."""
    if report.mesh is None or (report.spec is None and report.kind != "tiled"):
        return ""
    mesh = mesh_words(report.mesh)
    if report.spec is None:
        return f"no PartitionSpec on mesh {mesh} is equivalent"
    form = format_spec(report.spec)
    option = f" (--spec {form})" if form not in ("", str(report.spec)) else ""
    return f"{report.spec} on mesh {mesh}{option}"
