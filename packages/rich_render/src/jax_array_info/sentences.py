"""Reports that are said in sentences."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.text import Text

from jax_array_info_core import (
    ArrayReport,
    MeshAxes,
    ShardReport,
    XlaReport,
    format_bytes,
    format_devices,
    format_spec,
)
from jax_array_info_core.units import printable

from . import style
from .picture import array_picture

_KINDS = {
    "replicated": "replicated: every device holds all of it",
    "manual": "manual: inside shard_map, where the program itself places the data",
    "unknown": "unknown: the compiler has not decided",
    "maximal": "maximal: one device holds all of it",
}


def unknown_words(report: ArrayReport) -> str:
    """Return that the sharding of a traced value is unknown, and why."""
    return f"sharding unknown: {report.unknown_because}"


def manual_words(axes: MeshAxes) -> str:
    """Return into how many shards manual mesh axes cut what is one of them."""
    return f"manual: {math.prod(axes.sizes)} shards over ({','.join(map(repr, axes.names))})"


def open_axes(report: ArrayReport) -> tuple[str, ...]:
    """Return the mesh axes about which the type of a traced value says nothing, as the compiler decides."""
    mesh = report.sharding.mesh if report.sharding and report.source == "type" else None
    if mesh is None:
        return ()
    return tuple(name for name, kind in zip(mesh.names, mesh.types, strict=True) if kind == "Auto")


def undrawn_line(report: ArrayReport, *, encoding: str = "utf-8") -> Text:
    """Return why there is no picture of a traced value."""
    if report.manual_axes is not None:
        words = f"{manual_words(report.manual_axes)}, of which this is one"
    elif open_axes(report):
        words = f"{report.sharding.spec if report.sharding else ''}, the rest left to the compiler: "
        words += ", ".join(map(repr, open_axes(report)))
    elif report.sharding is not None:
        words = f"{report.sharding.type}: {report.sharding.text}"
    else:
        words = unknown_words(report)
    return Text(printable(words, encoding), overflow="fold")


def shard_line(report: ShardReport, *, encoding: str = "utf-8") -> Text:
    """Return what one device holds of an array."""
    index = ", ".join(f"{start}:{stop}" for start, stop in report.index)
    size = "" if report.nbytes is None else f", {format_bytes(report.nbytes)}"
    others = [device for device in report.holders if device != report.device_id]
    copies = f", the same as {format_devices(report.platform, others)}" if others else ""
    words = f"{format_devices(report.platform, [report.device_id])} holds [{index}]{size}{copies}"
    return Text(printable(words, encoding))


def xla_explanation(
    report: XlaReport, *, use_color: bool = False, width: int = 80, encoding: str = "utf-8"
) -> RenderableType:
    """Return what a sharding means that XLA wrote: its spec, its pattern in words, its picture."""
    lines: list[RenderableType] = [*xla_lines(report, encoding=encoding)]
    if report.layout is not None:
        lines.append(array_picture(report, use_color=use_color, max_width=width, encoding=encoding))
    return Group(*lines)


def xla_lines(report: XlaReport, *, encoding: str = "utf-8") -> list[Text]:
    """Return what a sharding means that XLA wrote, in words."""

    def line(text: str, look: str = "") -> Text:
        return Text(printable(text, encoding), look, overflow="fold")

    lines = [line(report.text, "bold")]
    if report.kind in _KINDS:
        lines.append(line(_KINDS[report.kind]))
    if report.mesh is not None:
        mesh = ", ".join(f"{name}={size}" for name, size in report.mesh.shape.items())
        if report.spec is not None:
            form = format_spec(report.spec)
            shells = f", for shells {form}" if form not in ("", str(report.spec)) else ""
            lines.append(line(f"on the mesh {mesh}: {report.spec}{shells}"))
        elif report.kind == "tiled":
            lines.append(line(f"no PartitionSpec on the mesh {mesh} means this", style.WARNING))
    lines += map(line, report.patterns)
    lines += [line(f"uneven: {problem}", style.WARNING) for problem in report.uneven]
    return lines
