"""Markdown pages with the output of their code."""

from __future__ import annotations

import difflib
import re

from .blocks import PageError, Placed, Python, blocks_of
from .running import BlockError, Shown, names_of, run_blocks
from .terminal import frame, transcript

TICKS = "``````"
OUTPUT = f"{TICKS}output"
"""First line of a fence of literal HTML."""


def page_with_text(source: str, code: object) -> str:
    """Return the Markdown of a page with the plain output of each block.

    A stored output that differs from the printed one only where it may vary stays as it is.

    Args:
        source: Markdown source of the page.
        code: Cache key from ``running.code_as_it_is``.

    Raises:
        PageError: If a fence is invalid, a block fails, or its output cannot be stored.
    """
    page, end = "", 0
    for placed, pieces in _run(source, code):
        printed = transcript(pieces)
        if not placed.agrees(printed):
            page += source[end : placed.fence.start()] + placed.with_output(printed)
            end = placed.end
    return page + source[end:]


def difference(stored: str, written: str) -> str:
    """Return the first line that differs, what to do and a diff; an empty string if the pages are equal."""
    old, new = stored.splitlines(), written.splitlines()
    lines = list(difflib.unified_diff(old, new, "stored output", "printed output", lineterm=""))
    if not lines:
        return ""
    number = next(
        (n for n, pair in enumerate(zip(old, new, strict=False), 1) if pair[0] != pair[1]), len(old)
    )
    advice = "the stored output differs from the printed output; nox -s docs -- --write writes it"
    return "\n".join([f"{number}: {advice}", *lines])


def page_with_frames(source: str, code: object) -> str:
    """Return a page of the site: the output of each block as in a terminal, in place of the stored output.

    A block that an output mentions has its file name above it. Arguments and errors are those of
    ``page_with_text``; the blocks do not run again.
    """
    found = _run(source, code)
    frames = [frame(pieces) for _, pieces in found]
    printed = re.sub("<[^>]*>", "", "".join(frames))
    page, end = "", 0
    for (placed, _), name, html in zip(
        found, names_of(placed.block for placed, _ in found), frames, strict=True
    ):
        fence, block = placed.fence, placed.block
        page += source[end : fence.start()]
        if isinstance(block, Python):
            title = f' title="{name}"' if block.file or f"{name}:" in printed else ""
            page += f"{fence['indent']}{fence['ticks']}python{title}\n{fence['code']}{fence['end']}\n\n"
        else:
            html = f'<div class="commands">{html}</div>'  # avoids the style of output below code
        page += output_fence(html, fence["indent"])
        end = placed.end
    return page + source[end:]


def output_fence(html: str, indent: str = "") -> str:
    """Return a fence of literal HTML at the indentation of its block."""
    return "\n".join(f"{indent}{line}" for line in [OUTPUT, *html.split("\n"), TICKS]) if html else ""


def _run(source: str, code: object) -> list[tuple[Placed, list[Shown]]]:
    found = blocks_of(source)
    try:
        return list(zip(found, run_blocks(tuple(placed.block for placed in found), code), strict=True))
    except BlockError as error:
        placed = found[error.number]
        raise PageError(f"{placed.line}: a block fails:\n\n{placed.block.source}\n{error}") from None
