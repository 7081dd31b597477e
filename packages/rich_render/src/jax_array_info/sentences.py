"""Reports that are said in sentences."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from jax_array_info_core import ShardReport, XlaReport, format_bytes, format_devices, format_spec
from jax_array_info_core.units import printable

from . import style
from .picture import array_picture

_KINDS = {
    "replicated": "replicated: every device holds all of it",
    "manual": "manual: inside shard_map, where the program itself places the data",
    "unknown": "unknown: the compiler has not decided",
    "maximal": "maximal: one device holds all of it",
}


def shard_line(report: ShardReport, *, encoding: str = "utf-8") -> Text:
    """Return what one device holds of an array."""
    index = ", ".join(f"{start}:{stop}" for start, stop in report.index)
    size = "" if report.nbytes is None else f", {format_bytes(report.nbytes)}"
    others = [device for device in report.holders if device != report.device_id]
    copies = f", the same as {format_devices(report.platform, others)}" if others else ""
    platform = report.platform and printable(report.platform, encoding)
    return Text(f"{format_devices(platform, [report.device_id])} holds [{index}]{size}{copies}")


def xla_explanation(report: XlaReport, *, width: int = 80, encoding: str = "utf-8") -> RenderableType:
    """Return what a sharding means that XLA wrote: its spec, its pattern in words, its picture."""

    def line(text: str, look: str = "") -> Text:
        return Text(printable(text, encoding), look, overflow="fold")

    lines: list[RenderableType] = [line(report.text, "bold")]
    if report.kind in _KINDS:
        lines.append(line(_KINDS[report.kind]))
    if report.mesh is not None:
        mesh = ", ".join(
            f"{name}={size}" for name, size in zip(report.mesh.names, report.mesh.sizes, strict=True)
        )
        if report.spec is not None:
            form = format_spec(report.spec)
            shells = f", for shells {form}" if form not in ("", str(report.spec)) else ""
            lines.append(line(f"on the mesh {mesh}: {report.spec}{shells}"))
        elif report.kind == "tiled":
            lines.append(line(f"no PartitionSpec on the mesh {mesh} means this", style.WARNING))
    lines += map(line, report.patterns)
    lines += [line(f"uneven: {problem}", style.WARNING) for problem in report.uneven]
    if report.layout is not None:
        lines.append(array_picture(report.layout, max_width=width, encoding=encoding))
    return Group(*lines)
