"""Panels for ``ArrayReport``."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from jax_array_info_core import ShardingLayout, format_bytes, format_devices
from jax_array_info_core.layouts import LocalPart, format_spec
from jax_array_info_core.layouts.grid import copies_words
from jax_array_info_core.quantities import format_device_ids
from jax_array_info_core.reports import ArrayReport, ShardReport, XlaReport
from jax_array_info_core.text import clipped, printable, shape_text

from .. import style
from ..pictures.text import array_picture
from .words import index_words, manual_words, mesh_words, unknown_words

MAX_LEAVES = 100
MAX_WORDS = 160
MAX_FRACTION = 9

_SHAPELESS = ("none", "scalar", "object", "container")
_KNOWN_FROM = {"array": "the array", "type": "the type", "compiler": "the compiler"}


def array_panel(report: ArrayReport, *, count: int = 1) -> RenderableType:
    """Return the panel of a value, as wide as its text, with the value's name as its title.

    A name that is too long for the title becomes the first line. Past 2,000 characters, its middle is left
    out. The number of equal panels for which this one stands is behind the name:
    ``hidden ×4, each``.
    """
    return style.ForConsole(lambda _, options: _panel(report, count, options.max_width, options.encoding))


def _panel(report: ArrayReport, count: int, width: int, encoding: str) -> Panel:
    def text(words: str, look: str) -> Text:
        return Text(printable(clipped(words), encoding), look)

    lines = [text(words, look) for words, look in _lines(report)]
    if report.kind not in _SHAPELESS:
        lines.insert(0, _shape_line(report, encoding))
    words = [] if report.name is None else [clipped(report.name)]
    words += [f"×{count}, each"] if count > 1 else []
    title = text(" ".join(words), "bold") if words else None
    if title is not None and title.cell_len > width - 6:
        lines.insert(0, title)
        title = None
    return Panel(Text("\n").join(lines), title=title, expand=False)


def _lines(report: ArrayReport) -> Iterator[tuple[str, str]]:
    """Yield the lines of a panel below the shape, each with its style."""
    match report.kind:
        case "none":
            yield "None", ""
        case "scalar":
            yield f"type: {report.type_name}", ""
            yield f"value: {report.value}", ""
        case "object":
            yield f"type: {report.type_name}", ""
            yield from _object_lines(report)
        case "container":
            yield f"type: {report.type_name}", ""
            yield f"len: {report.length}", ""
            for leaf in report.leaves[:MAX_LEAVES]:
                yield f"{leaf.path}: {leaf.type}", ""
            if len(report.leaves) > MAX_LEAVES:
                yield f"and {len(report.leaves) - MAX_LEAVES} more leaves", style.ASIDE
        case _:
            yield f"dtype: {report.dtype}", ""
            yield from _array_lines(report)


def _object_lines(report: ArrayReport) -> Iterator[tuple[str, str]]:
    """Yield the lines of a sharding, a spec, a mesh or a shard."""
    if report.sharding and report.sharding.spec:
        yield f"spec: {_shortened(str(report.sharding.spec))}", ""
    if report.sharding and report.sharding.mesh:
        yield f"mesh: {mesh_words(report.sharding.mesh)}", ""
    yield from _memory_lines(report)
    if report.device is not None:
        yield f"device: {report.device}", ""
    if report.index is not None:
        yield f"index: {index_words(report.index)}", ""
    if report.replica is not None:
        yield f"replica: {report.replica}", ""


def _memory_lines(report: ArrayReport) -> Iterator[tuple[str, str]]:
    """Yield the memory kind, if it is not the default of the devices."""
    if report.default_memory_kind and report.memory_kind not in (None, report.default_memory_kind):
        yield f"memory_kind: {report.memory_kind}", ""


def _shape_line(report: ArrayReport, encoding: str) -> Text:
    """Return the shape as a tuple, with colors for sharded axes and for varying values."""
    shape, sharded = report.shape or (), report.sharded_axes
    line = Text.assemble("shape: ", ("(", style.PUNCTUATION))
    for axis, dim in enumerate(shape):
        look = style.SHARDED_LENGTH if axis in sharded else style.LENGTH
        line.append(", " if axis else "", style.PUNCTUATION)
        line.append(
            printable(clipped(str(dim)), encoding), style.VARYING_LENGTH if report.varying_axes else look
        )
    return line.append(",)" if len(shape) == 1 else ")", style.PUNCTUATION)


def _array_lines(report: ArrayReport) -> Iterator[tuple[str, str]]:
    """Yield the lines of an array after its shape and dtype, each with its style."""
    if report.value is not None:
        yield f"value: {report.value}", ""
    if report.is_deleted:
        yield "deleted", style.WARNING
    elif report.nbytes is not None:
        yield f"size: {format_bytes(report.nbytes)}", ""
    if report.layout and report.shard_nbytes is not None:
        part = _part(report, report.layout)
        if part or report.kind == "planned":
            # Under vmap, the line above has the size of the value inside the function, without batched axes.
            yield f"per device: {format_bytes(report.shard_nbytes)}{_of_batch(report)}{part}", ""
    if report.kind == "numpy":
        yield "numpy array", "bold"
        yield report.elsewhere or "", ""
        return
    if not report.is_fully_addressable:
        yield "!is_fully_addressable", ""
    if report.local_part:
        yield from _local_lines(report, report.local_part)
    if report.kind == "tracer" and report.called_under not in (None, "jit"):
        yield f"called under {report.called_under}", style.ASIDE
    # Without a jit around it, jax.checkpoint traces and then runs operation by operation.
    elif report.kind == "tracer" and report.source != "array":
        yield "called in jit", style.ASIDE
    if report.batch:
        axes = ("axis " if len(report.batch.axes) == 1 else "axes ") + ", ".join(map(str, report.batch.axes))
        yield f"vmap: {axes} of {shape_text(report.batch.shape)}", ""
    if report.manual_axes:
        yield manual_words(report.manual_axes, report.invariant_axes), ""
    if report.kind in ("abstract", "array-like"):
        yield report.type_name, style.ASIDE
    if report.elsewhere:
        yield report.elsewhere, ""
    if report.weak_type:
        yield "weakly-typed", ""
    if not report.is_default_device:
        yield f"device: {report.device}", style.ASIDE
    if report.varying_axes:
        yield f"vma: {{{', '.join(map(repr, report.varying_axes))}}}", ""
    if report.unreduced_axes:
        yield f"partial sums over: {', '.join(report.unreduced_axes)}", ""
    yield from _memory_lines(report)
    if len(report.devices) == 1 and (report.visible_devices or 1) > 1:
        yield "not sharded", style.WARNING
    yield from _sharding_lines(report)


def _local_lines(report: ArrayReport, part: LocalPart) -> Iterator[tuple[str, str]]:
    """Yield the part of the array on this process, with its devices and bytes."""
    assert report.layout is not None
    assert report.local_share is not None
    holds = f"process {part.process} holds"
    share = str(report.local_share)
    if len(share) > MAX_FRACTION:
        share = f"{float(report.local_share):.2%}"
    if not part.devices:
        yield f"{holds} no shards", style.ASIDE
        return
    if report.local_share == 1:
        yield f"{holds} the whole array", ""
    elif part.index:
        yield f"{holds} {share}: {index_words(part.index)}", ""
    else:
        shards = math.prod(report.layout.shard_counts)
        yield f"{holds} {part.shard_count} of {shards} shards, {share} of the elements", ""
    if part.nbytes is not None and part.device_nbytes is not None:
        without = "without replicas" if report.partial_sums == 1 else "after summing"
        unique = f", {format_bytes(part.nbytes)} {without}" if part.device_nbytes > part.nbytes else ""
        where = _shortened(format_devices(report.layout.platform, part.devices))
        yield f"on {where}: {format_bytes(part.device_nbytes)}{unique}", ""


def _sharding_lines(report: ArrayReport) -> Iterator[tuple[str, str]]:
    sharding, layout = report.sharding, report.layout
    if report.unknown_because:
        yield unknown_words(report), style.ASIDE
    if sharding is not None and sharding.type != "SingleDeviceSharding":
        words = str(sharding.spec) if sharding.spec else sharding.text
        yield f"{sharding.type}: {_shortened(words)}" if words else sharding.type, ""
    if report.kind == "tracer" and report.source in _KNOWN_FROM:
        yield f"known from: {_KNOWN_FROM[report.source]}", style.ASIDE
    if report.padded_shape is not None:
        yield f"inside: padded to {shape_text(report.padded_shape)}", style.WARNING
    if report.open_axes:
        yield f"chosen by XLA: {', '.join(map(repr, report.open_axes))}", style.ASIDE
    if layout is None:
        return
    first = format_devices(layout.platform, layout.devices_of((0,) * len(layout.shape))[:1])
    for axis in layout.sharded_axes:
        piece = layout.axis_slice(axis, 0)
        intro = f"axis {axis}{_of_batch(report)} is sharded: "
        share = f"{piece.start}:{piece.stop} (1/{layout.shard_counts[axis]})"
        yield f"{intro}{first} contains {share}", ""
        yield f"{' ' * len(intro)}Total size: {layout.shape[axis]}", ""

    if report.kind == "planned" and sharding is not None and sharding.mesh is not None:
        yield f"mesh: {mesh_words(sharding.mesh)}", ""
        if sharding.unused_axes:
            axes = ", ".join(sharding.unused_axes)
            yield f"replicated over: {axes} ({report.replicas} replicas)", style.WARNING


def _part(report: ArrayReport, layout: ShardingLayout) -> str:
    """Return the replicas with their mesh axes, and partial sums; for a planned array also its fraction."""
    copies = copies_words(report.unreduced, report.partial_sums, report.replicas)
    over = report.sharding.unused_axes if report.sharding else ()
    if over and report.partial_sums == 1 and report.kind != "planned":
        return f", replicated over {', '.join(over)} ({copies})"
    if report.kind != "planned":
        return f", {copies}" if copies else ""
    words = [f"1/{math.prod(layout.shard_counts)}", *([copies] if copies else ())]
    return f" ({', '.join(words)})" if words != ["1/1"] else ""


def _shortened(words: str) -> str:
    """Return a sharding's text, without its middle if XLA lists hundreds of devices."""
    return words if len(words) <= MAX_WORDS else f"{words[: MAX_WORDS // 2]} ... {words[-MAX_WORDS // 4 :]}"


def _of_batch(report: ArrayReport) -> str:
    """Return the shape of the whole value under vmap, or an empty text outside vmap."""
    return f" of {shape_text(report.batch.shape)}" if report.batch else ""


_MEANINGS = {
    "replicated": "replicated: every device holds the whole array",
    "manual": "manual: inside shard_map, where the program places the data",
    "unreduced": "unreduced: every device holds a partial sum of the whole array",
    "unknown": "unknown: XLA has not chosen a sharding",
    "maximal": "maximal: one device holds the whole array",
}


def shard_line(report: ShardReport) -> RenderableType:
    """Return the line on the shard of one device."""
    size = "" if report.nbytes is None else f", {format_bytes(report.nbytes)}"
    others = [device for device in report.holders if device != report.device_id]
    names = format_devices(report.platform, others)
    if len(others) > 1 and not report.platform:
        names = f"devices {format_device_ids(others)}"
    replicas = f", replicated on {names}" if others else ""
    if report.partial_sums > 1:
        replicas = f", one of {report.partial_sums} partial sums; the others are on {names}"
    device = format_devices(report.platform, [report.device_id])
    return style.written(f"{device} holds {index_words(report.index)}{size}{replicas}")


def xla_explanation(report: XlaReport, *, use_color: bool = False, width: int = 80) -> RenderableType:
    """Return the spec, the pattern and the picture of a sharding in XLA's notation."""
    lines: list[RenderableType] = [*xla_lines(report)]
    if report.layout is not None:
        lines.append(
            style.ForConsole(
                lambda _, options: array_picture(
                    report, use_color=use_color, max_width=width, encoding=options.encoding
                )
            )
        )
    return Group(*lines)


def xla_lines(report: XlaReport) -> list[RenderableType]:
    """Return the spec and the pattern of a sharding in XLA's notation, as lines of text."""
    answers = [_MEANINGS[report.kind]] if report.kind in _MEANINGS else []
    look = "bold"
    if report.mesh is not None:
        mesh = mesh_words(report.mesh)
        if report.spec is not None:
            form = format_spec(report.spec)
            option = f" (--spec {form})" if form not in ("", str(report.spec)) else ""
            answers.append(f"{report.spec} on mesh {mesh}{option}")
        elif report.kind == "tiled":
            answers.append(f"no PartitionSpec on mesh {mesh} is equivalent")
            look = f"bold {style.WARNING}"
    lines: list[RenderableType] = [style.written(words, look=look) for words in answers]
    lines.append(style.written(report.text, look="" if answers else "bold"))
    lines += map(style.written, report.patterns)
    lines += [style.written(f"uneven: {problem}", look=style.WARNING) for problem in report.uneven]
    return lines
