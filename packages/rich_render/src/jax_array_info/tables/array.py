"""ArrayReport → a panel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from rich.console import RenderableType
from rich.panel import Panel
from rich.text import Text

from jax_array_info_core import ArrayReport, LocalPart, MeshAxes, ShardingLayout, format_bytes, format_devices
from jax_array_info_core.text import printable

from .. import style
from ..pictures.fitting import clipped
from .traced import manual_words, open_axes, unknown_words

MAX_LEAVES = 100
MAX_WORDS = 160
MAX_FRACTION = 9

_KNOWN_FROM = {"array": "the array", "type": "the type", "compiler": "the compiler"}


def array_panel(report: ArrayReport) -> RenderableType:
    """Return the panel of an array, as wide as its text, the array's name as its title.

    A name too long for the title stands above the text, its middle left out past 2,000 characters.
    """
    return style.ForConsole(lambda _, options: _panel(report, options.max_width, options.encoding))


def _panel(report: ArrayReport, width: int, encoding: str) -> Panel:
    body = Text("\n").join(_lines(report, encoding))
    if report.name is None:
        return Panel(body, expand=False)
    title = Text(printable(clipped(report.name), encoding), "bold")
    if title.cell_len <= width - 6:
        return Panel(body, title=title, expand=False)
    return Panel(Text("\n").join([title, body]), expand=False)


def _lines(report: ArrayReport, encoding: str) -> Iterator[Text]:
    def line(text: str, look: str = "") -> Text:
        return Text(printable(clipped(text), encoding), look)

    match report.kind:
        case "none":
            yield line("None")
        case "scalar":
            yield line(f"type: {report.type_name}")
            yield line(f"value: {report.value}")
        case "object":
            yield line(f"type: {report.type_name}")
            for text in _object_lines(report):
                yield line(text)
        case "container":
            yield line(f"type: {report.type_name}")
            yield line(f"len: {report.length}")
            for leaf in report.leaves[:MAX_LEAVES]:
                yield line(f"{leaf.path}: {leaf.type}")
            if len(report.leaves) > MAX_LEAVES:
                yield line(f"and {len(report.leaves) - MAX_LEAVES} more leaves", style.ASIDE)
        case _:
            yield Text("shape: ") + _shape(report, encoding)
            yield line(f"dtype: {report.dtype}")
            for text, look in _array_lines(report):
                yield line(text, look)


def _object_lines(report: ArrayReport) -> Iterator[str]:
    """Yield what a sharding, a spec, a mesh or a shard says of itself."""
    if report.sharding and report.sharding.spec:
        yield f"spec: {_shortened(str(report.sharding.spec))}"
    if report.sharding and report.sharding.mesh:
        yield f"mesh: {_mesh_words(report.sharding.mesh)}"
    if report.default_memory_kind and report.memory_kind not in (None, report.default_memory_kind):
        yield f"memory_kind: {report.memory_kind}"
    if report.device is not None:
        yield f"device: {report.device}"
    if report.index is not None:
        yield f"index: [{_index_words(report.index)}]"
    if report.replica is not None:
        yield f"replica: {report.replica}"


def _mesh_words(mesh: MeshAxes) -> str:
    return ", ".join(f"{name}={size}" for name, size in mesh.shape.items())


def _index_words(index: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{start}:{stop}" for start, stop in index)


def _shape(report: ArrayReport, encoding: str) -> Text:
    """Return the shape as a tuple prints, its sharded and its varying axes in colours of their own."""
    shape = report.shape or ()
    sharded: Sequence[int] = report.layout.sharded_axes if report.layout else ()
    if report.batch:
        seen = [axis for axis in range(len(report.batch.shape)) if axis not in report.batch.axes]
        sharded = [place for place, axis in enumerate(seen) if axis in sharded]
    text = Text("(", style.PUNCTUATION)
    for axis, dim in enumerate(shape):
        look = (
            style.VARYING_LENGTH
            if report.varying_axes
            else style.SHARDED_LENGTH
            if axis in sharded
            else style.LENGTH
        )
        text.append(printable(clipped(str(dim)), encoding), look)
        text.append("" if axis == len(shape) - 1 else ", ", "none")
    return text.append(",)" if len(shape) == 1 else ")", style.PUNCTUATION)


def _array_lines(report: ArrayReport) -> Iterator[tuple[str, str]]:
    """Yield what is known of an array after its shape and dtype, each line with its style."""
    if report.value is not None:
        yield f"value: {report.value}", ""
    if report.is_deleted:
        yield "deleted", style.WARNING
    elif report.nbytes is not None:
        yield f"size: {format_bytes(report.nbytes)}", ""
    if report.layout and report.shard_nbytes is not None:
        part = _part(report, report.layout)
        if part or report.kind == "planned":
            # Under vmap the line above has the size of what the function sees.
            yield f"per device: {format_bytes(report.shard_nbytes)}{_of_batch(report)}{part}", ""
    if report.kind == "numpy":
        yield "numpy array", "bold"
        return
    if not report.is_fully_addressable:
        yield "!is_fully_addressable", ""
    if report.local_part:
        yield from _local_lines(report, report.local_part)
    if report.kind == "tracer" and report.called_under not in (None, "jit"):
        yield f"called under {report.called_under}", style.ASIDE
    # What jax.checkpoint traces runs operation by operation where no jit is around it.
    elif report.kind == "tracer" and report.source != "array":
        yield "called in jit", style.ASIDE
    if report.batch:
        axes = ("axis " if len(report.batch.axes) == 1 else "axes ") + ", ".join(map(str, report.batch.axes))
        yield f"vmap: {axes} of {_tuple_text(report.batch.shape)}", ""
    if report.manual_axes:
        yield manual_words(report.manual_axes), ""
    if report.kind in ("abstract", "array-like"):
        yield report.type_name, style.ASIDE
    if report.weak_type:
        yield "weakly-typed", ""
    if not report.is_default_device:
        yield f"device: {report.device}", style.ASIDE
    if report.varying_axes:
        yield f"vma: {{{', '.join(map(repr, report.varying_axes))}}}", ""
    if report.default_memory_kind and report.memory_kind not in (None, report.default_memory_kind):
        yield f"memory_kind: {report.memory_kind}", ""
    if len(report.devices) == 1 and (report.visible_devices or 1) > 1:
        yield "not sharded", style.WARNING
    yield from _sharding_lines(report)


def _local_lines(report: ArrayReport, part: LocalPart) -> Iterator[tuple[str, str]]:
    """Yield which part of the array this process holds, and the bytes that it takes on which devices."""
    assert report.layout is not None
    holds = f"process {part.process} holds"
    if not part.devices:
        yield f"{holds} no part of it", style.ASIDE
        return
    elements = math.prod(report.layout.shape)
    shards = math.prod(report.layout.shard_counts)
    if part.element_count == elements:
        yield f"{holds} all of it", ""
    elif part.index:
        yield f"{holds} {_share(part.element_count, elements)}: [{_index_words(part.index)}]", ""
    else:
        share = _share(part.element_count, elements)
        yield f"{holds} {part.shard_count} of {shards} shards, {share} of the elements", ""
    if part.nbytes is not None and part.device_nbytes is not None:
        once = f", {format_bytes(part.nbytes)} without copies" if part.device_nbytes > part.nbytes else ""
        where = _shortened(format_devices(report.layout.platform, part.devices))
        yield f"on {where}: {format_bytes(part.device_nbytes)}{once}", ""


def _share(part: int, whole: int) -> str:
    """Return a part of a whole as a fraction, in percent where it has no short one."""
    fraction = str(Fraction(part, whole))
    return fraction if len(fraction) <= MAX_FRACTION else f"{part / whole:.2%}"


def _sharding_lines(report: ArrayReport) -> Iterator[tuple[str, str]]:
    sharding, layout = report.sharding, report.layout
    if report.unknown_because:
        yield unknown_words(report), style.ASIDE
    if sharding is not None and sharding.type != "SingleDeviceSharding":
        words = str(sharding.spec) if sharding.spec else sharding.text
        yield f"{sharding.type}: {_shortened(words)}" if words else sharding.type, ""
    if report.kind == "tracer" and report.source in _KNOWN_FROM:
        yield f"known from: {_KNOWN_FROM[report.source]}", style.ASIDE
    if open_axes(report):
        yield f"left to the compiler: {', '.join(map(repr, open_axes(report)))}", style.ASIDE
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
        yield f"mesh: {_mesh_words(sharding.mesh)}", ""
        if sharding.unused_axes:
            yield f"mesh axes that cut nothing: {', '.join(sharding.unused_axes)}", style.WARNING


def _part(report: ArrayReport, layout: ShardingLayout) -> str:
    """Return how many devices hold the same shard; of a planned array also which part of it that is."""
    replicas, sums = layout.replicas, 1
    if report.sharding and report.sharding.spec and report.sharding.mesh:
        # Not what holds partial sums, nor what the compiler may still shard.
        sizes = report.sharding.mesh.shape
        replicas = math.prod(sizes[name] for name in report.sharding.unused_axes)
        sums = math.prod(sizes[name] for name in report.sharding.spec.unreduced)
    if report.kind != "planned":
        return f", {replicas} replicas" if replicas > 1 else ""
    count = math.prod(layout.shard_counts)
    words = [f"1/{count}"]
    words += [f"{replicas} copies"] if replicas > 1 else []
    words += [f"{sums} partial sums"] if sums > 1 else []
    return f" ({', '.join(words)})" if len(words) > 1 or count > 1 else ""


def _shortened(words: str) -> str:
    """Return a sharding's words, those of the middle left out where XLA lists hundreds of devices."""
    return words if len(words) <= MAX_WORDS else f"{words[: MAX_WORDS // 2]} ... {words[-MAX_WORDS // 4 :]}"


def _of_batch(report: ArrayReport) -> str:
    """Return the shape of the whole value under vmap, which a line is about; nothing elsewhere."""
    return f" of {_tuple_text(report.batch.shape)}" if report.batch else ""


def _tuple_text(shape: tuple[int | str, ...]) -> str:
    """Return a shape as a tuple of numbers prints, symbols without quotes."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
