"""Reports that are said in sentences."""

from __future__ import annotations

from rich.console import Group, RenderableType

from jax_array_info_core import (
    ShardReport,
    XlaReport,
    format_bytes,
    format_devices,
    format_spec,
)

from .. import style
from ..pictures.text import array_picture
from .traced import _KINDS


def shard_line(report: ShardReport) -> RenderableType:
    """Return what one device holds of an array."""
    index = ", ".join(f"{start}:{stop}" for start, stop in report.index)
    size = "" if report.nbytes is None else f", {format_bytes(report.nbytes)}"
    others = [device for device in report.holders if device != report.device_id]
    copies = f", the same as {format_devices(report.platform, others)}" if others else ""
    return style.written(
        f"{format_devices(report.platform, [report.device_id])} holds [{index}]{size}{copies}"
    )


def xla_explanation(report: XlaReport, *, use_color: bool = False, width: int = 80) -> RenderableType:
    """Return what a sharding means that XLA wrote: its spec, its pattern in words, its picture."""
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
    """Return what a sharding means that XLA wrote, in words."""
    lines: list[RenderableType] = [style.written(report.text, look="bold")]
    if report.kind in _KINDS:
        lines.append(style.written(_KINDS[report.kind]))
    if report.mesh is not None:
        mesh = ", ".join(f"{name}={size}" for name, size in report.mesh.shape.items())
        if report.spec is not None:
            form = format_spec(report.spec)
            shells = f", for shells {form}" if form not in ("", str(report.spec)) else ""
            lines.append(style.written(f"on the mesh {mesh}: {report.spec}{shells}"))
        elif report.kind == "tiled":
            lines.append(style.written(f"no PartitionSpec on the mesh {mesh} means this", look=style.WARNING))
    lines += map(style.written, report.patterns)
    lines += [style.written(f"uneven: {problem}", look=style.WARNING) for problem in report.uneven]
    return lines
