"""Rendering of any report, as a Rich renderable or as text."""

from __future__ import annotations

from io import BytesIO, TextIOWrapper

from rich.console import Console, RenderableType

from jax_array_info_core import (
    ArrayReport,
    CheckReport,
    CompilationsReport,
    CompileCachesReport,
    DevicesReport,
    GrowthReport,
    LiveArrayReport,
    LogReport,
    MemoryProfileReport,
    MemoryReport,
    MeshReport,
    ProgramDiff,
    ProgramReport,
    Report,
    ReshardReport,
    ShardingLayout,
    ShardReport,
    TreeDiff,
    TreeReport,
    XlaReport,
)

from .pictures.text import LEAST_WIDTH, array_picture, mesh_picture
from .style import ForConsole, folding
from .tables.array import array_panel
from .tables.caches import compile_caches_table
from .tables.checks import check_table
from .tables.compilations import compilations_table
from .tables.devices import memory_stats_table, memory_table
from .tables.explain import shard_line, xla_explanation
from .tables.growth import growth_table
from .tables.live import live_array_table
from .tables.log import log_table
from .tables.profile import memory_profile_tables
from .tables.program import program_table
from .tables.program_diff import program_diff_table
from .tables.tree_changes import reshard_table, tree_diff_table
from .tables.trees import tree_table


def render(report: Report, *, width: int = 80, use_color: bool = False) -> RenderableType:
    """Return a report as a Rich renderable, for a console of this width and any encoding.

    Args:
        report: Any report. A layout is drawn.
        width: Maximum line length in characters. Pictures are at least 20 characters wide.
        use_color: Whether to fill the cells of pictures.
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
        case CompilationsReport():
            return compilations_table(report)
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
        case CheckReport():
            return check_table(report, width=width)
        case ShardReport():
            return shard_line(report)
        case TreeReport():
            return tree_table(report, width=width)
        case TreeDiff():
            return tree_diff_table(report)
        case LogReport():
            return log_table(report, width=width)
        case ProgramReport():
            return program_table(report, width=width)
        case ProgramDiff():
            return program_diff_table(report, width=width)
        case ReshardReport():
            return reshard_table(report)
        case XlaReport():
            return xla_explanation(report, use_color=use_color, width=width)
    raise TypeError(f"expected a report, got {type(report)}")


def to_text(report: Report, *, width: int = 80, color: bool = False) -> str:
    """Return a report as printed text, without a final line break.

    >>> from jax_array_info import planned_report, to_text
    >>> print(to_text(planned_report((16, 16), {"data": 4, "model": 2}, ("data", None))))
    ╭────────────────────────────────────────────────╮
    │ shape: (16, 16)                                │
    │ dtype: float32                                 │
    │ size: 1.0 KiB                                  │
    │ per device: 256.0 B (1/4, 2 replicas)          │
    │ NamedSharding: P('data', None)                 │
    │ axis 0 is sharded: device 0 contains 0:4 (1/4) │
    │                    Total size: 16              │
    │ mesh: data=4, model=2                          │
    │ replicated over: model (2 replicas)            │
    ╰────────────────────────────────────────────────╯

    Args:
        report: Any report. A layout is drawn.
        width: Maximum line length in characters. Pictures are at least 20 characters wide.
        color: Whether to use colors, written as terminal escapes. The cells of pictures are then filled.

    Raises:
        TypeError: If ``report`` is not a report.
    """
    return text_of(render(report, width=width, use_color=color), width=width, color=color)


def text_of(
    renderable: RenderableType, *, width: int = 80, color: bool = False, encoding: str = "utf-8"
) -> str:
    """Return a Rich renderable as text, without a line break at its end."""
    console = Console(
        file=TextIOWrapper(BytesIO(), encoding),
        width=width,
        height=100,  # without a height, Rich assumes 80 columns if TERM=dumb
        force_terminal=color,
        color_system="truecolor" if color else None,
        no_color=not color,
        force_jupyter=False,
        legacy_windows=False,
    )
    with console.capture() as capture:
        console.print(renderable, highlight=False, crop=False)
    return capture.get().removesuffix("\n")
