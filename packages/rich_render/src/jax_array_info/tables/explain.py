"""Reports that are said in sentences."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from jax_array_info_core import (
    ShardReport,
    XlaReport,
    format_bytes,
    format_devices,
    format_spec,
)
from jax_array_info_core.text import printable

from .. import style
from ..pictures.text import array_picture
from .traced import _KINDS


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
