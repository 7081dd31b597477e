"""Rendering of any report, as a Rich renderable or as text."""

from __future__ import annotations

from io import BytesIO, TextIOWrapper
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType

from jax_array_info_core.pages import page

from ..pictures.text import LEAST_WIDTH
from .console import on_console

if TYPE_CHECKING:
    from jax_array_info_core.reports import Report


def render(report: Report, *, width: int = 80, use_color: bool = False, **options: Any) -> RenderableType:
    """Return a report as a Rich renderable, for a console of this width and any encoding.

    Args:
        report: Any report. A layout is drawn.
        width: Maximum line length in characters. Pictures are at least 20 characters wide.
        use_color: Whether to fill the cells of pictures.
        **options: Further options of the table, such as ``max_rows``.
    """
    return on_console(page(report, **options), width=max(width, LEAST_WIDTH), use_color=use_color)


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
