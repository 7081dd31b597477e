"""Any report → its renderable, and the renderable → text."""

from __future__ import annotations

from io import BytesIO, TextIOWrapper

from rich.console import Console, RenderableType

from jax_array_info_core import (
    ArrayReport,
    CompileCachesReport,
    DevicesReport,
    GrowthReport,
    LiveArrayReport,
    MemoryProfileReport,
    MemoryReport,
    MeshReport,
    Report,
    ShardingLayout,
    ShardReport,
    XlaReport,
)

from .pictures.text import LEAST_WIDTH, array_picture, mesh_picture
from .style import ForConsole, folding
from .tables.array import array_panel
from .tables.devices import memory_stats_table, memory_table
from .tables.explain import shard_line, xla_explanation
from .tables.growth import growth_table
from .tables.live import live_array_table
from .tables.profile import memory_profile_tables
from .tables.programs import compile_caches_table


def render(report: Report, *, width: int = 80, use_color: bool = False) -> RenderableType:
    """Return what the verbs print of a report, for a console of this width and of any encoding.

    A picture is never narrower than 20 characters. ``use_color`` fills its cells.
    """
    width = max(width, LEAST_WIDTH)
    match report:
        case ArrayReport():
            return array_panel(report)
        case LiveArrayReport():
            return live_array_table(report, width=width)
        case GrowthReport():
            return growth_table(report)
        case MemoryReport():
            return memory_table(report)
        case DevicesReport():
            return memory_stats_table(report, width=width)
        case MemoryProfileReport():
            return memory_profile_tables(report)
        case CompileCachesReport():
            return compile_caches_table(report)
        case ShardingLayout():
            return ForConsole(
                lambda _, options: folding(
                    array_picture(report, use_color=use_color, max_width=width, encoding=options.encoding)
                )
            )
        case MeshReport():
            return ForConsole(
                lambda _, options: folding(
                    mesh_picture(report, use_color=use_color, max_width=width, encoding=options.encoding)
                )
            )
        case ShardReport():
            return shard_line(report)
        case XlaReport():
            return xla_explanation(report, use_color=use_color, width=width)
    raise TypeError(f"not a report: {type(report)}")


def to_text(report: Report, *, width: int = 80, color: bool = False) -> str:
    """Return what the verbs print of a report, for logs: no line break at its end.

    Args:
        report: Any report, or a layout, which is drawn.
        width: Number of characters a line may have.
        color: Whether to write terminal escapes for colours, with which the cells of pictures are filled.
    """
    return text_of(render(report, width=width, use_color=color), width=width, color=color)


def text_of(
    renderable: RenderableType, *, width: int = 80, color: bool = False, encoding: str = "utf-8"
) -> str:
    """Return what rich draws as text, without a line break at its end."""
    console = Console(
        file=TextIOWrapper(BytesIO(), encoding),
        width=width,
        height=100,  # without a height, rich takes a dumb terminal for 80 columns wide
        force_terminal=color,
        color_system="truecolor" if color else None,
        no_color=not color,
        force_jupyter=False,
        legacy_windows=False,
    )
    with console.capture() as capture:
        console.print(renderable, highlight=False, crop=False)
    return capture.get().removesuffix("\n")
