"""What a terminal shows, as HTML: a frame with the text and its colours."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable
from itertools import groupby

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from .blocks import Shown

THEME = TerminalTheme(
    (22, 27, 34),
    (222, 228, 236),
    [
        (13, 17, 23),
        (255, 123, 114),
        (86, 211, 100),
        (227, 179, 65),
        (121, 192, 255),
        (210, 168, 255),
        (86, 212, 221),
        (240, 246, 252),
    ],
    [
        (139, 148, 158),
        (255, 161, 152),
        (126, 231, 135),
        (242, 204, 96),
        (165, 214, 255),
        (226, 197, 255),
        (123, 230, 236),
        (255, 255, 255),
    ],
)

FRAME = '<div class="terminal" data-search-exclude tabindex="0" role="region" aria-label="output">'


def frame(pieces: Iterable[Shown]) -> str:
    """Return HTML for what a block left, in its order: a frame for text, pictures as they are."""
    parts = []
    for is_picture, group in groupby(pieces, key=lambda piece: bool(piece.html)):
        if is_picture:
            parts += [f'<div class="picture" data-search-exclude>{piece.html}</div>' for piece in group]
        else:
            lines = "".join(map(_lines, group)).rstrip("\n")
            parts.append(f"{FRAME}<pre>{lines}</pre></div>" if lines else "")
    return "".join(parts)


def _lines(piece: Shown) -> str:
    command = f'<span class="command">{html.escape(piece.command)}</span>\n' if piece.command else ""
    return command + coloured(piece.text)


def coloured(text: str) -> str:
    """Return what a terminal makes of the text as HTML: everything escaped, colours as styles."""
    if not text.strip():
        return ""
    console = Console(
        record=True,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        width=10_000,
        legacy_windows=False,
    )
    console.print(Text.from_ansi(text.rstrip()), soft_wrap=True, highlight=False, markup=False, emoji=False)
    return console.export_html(theme=THEME, code_format="{code}", inline_styles=True).rstrip("\n") + "\n"
