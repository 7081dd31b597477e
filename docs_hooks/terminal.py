"""Terminal output as HTML frames and as plain text."""

from __future__ import annotations

import io
from collections.abc import Iterable
from html import escape

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from .running import Shown

THEME = TerminalTheme(
    (22, 27, 34),
    (230, 237, 243),
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

OPEN = '<div class="terminal" data-search-exclude tabindex="0" role="region" aria-label="output"><pre>'
CLOSE = "</pre></div>"


def frame(pieces: Iterable[Shown]) -> str:
    """Return the HTML of a block's output in order: frames for text, literal HTML for pictures."""
    html = OPEN
    for piece in pieces:
        if piece.html:
            picture = f'<div class="picture" data-search-exclude>{piece.html}</div>'
            html = f"{html.rstrip()}{CLOSE}{picture}{OPEN}"
        if piece.command:
            html += f'<span class="command">{escape(piece.command)}</span>\n'
        html += colored(piece.text)
    return f"{html.rstrip()}{CLOSE}".replace(OPEN + CLOSE, "")


def transcript(pieces: Iterable[Shown]) -> str:
    """Return a block's output in order as plain text, without colors and trailing spaces."""
    parts = [
        part
        for piece in pieces
        for part in (piece.command and f"$ {piece.command}", _plain(piece.plain), _plain(piece.text))
        if part
    ]
    return "".join(f"{part}\n" for part in parts)


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in Text.from_ansi(text.rstrip()).plain.splitlines())


def colored(text: str) -> str:
    """Return terminal text as HTML, escaped and with colors as inline styles."""
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
