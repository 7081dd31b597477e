"""Text lines for ``ShardReport`` and ``XlaReport``."""

from __future__ import annotations

from rich.console import Group, RenderableType

from jax_array_info_core import (
    ShardReport,
    XlaReport,
    format_bytes,
    format_devices,
    format_spec,
)
from jax_array_info_core.quantities import format_device_ids

from .. import style
from ..pictures.text import array_picture
from .words import index_words, mesh_words

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
    lines: list[RenderableType] = [style.written(report.text, look="bold")]
    if report.kind in _MEANINGS:
        lines.append(style.written(_MEANINGS[report.kind]))
    if report.mesh is not None:
        mesh = mesh_words(report.mesh)
        if report.spec is not None:
            form = format_spec(report.spec)
            option = f" (--spec {form})" if form not in ("", str(report.spec)) else ""
            lines.append(style.written(f"on mesh {mesh}: {report.spec}{option}"))
        elif report.kind == "tiled":
            lines.append(style.written(f"no PartitionSpec on mesh {mesh} is equivalent", look=style.WARNING))
    lines += map(style.written, report.patterns)
    lines += [style.written(f"uneven: {problem}", look=style.WARNING) for problem in report.uneven]
    return lines
