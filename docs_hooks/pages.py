"""Markdown pages with the output of their code."""

from __future__ import annotations

import re

from .blocks import PageError, Python, blocks_of, line_of
from .running import BlockError, names_of, run_blocks
from .terminal import frame

TICKS = "``````"
OUTPUT = f"{TICKS}output"
"""First line of a fence of literal HTML."""


def page_with_outputs(source: str, code: object) -> str:
    """Return a page with the output of each block below it.

    A block that an output mentions has its file name above it.

    Args:
        source: Markdown source of the page.
        code: Cache key from ``running.code_as_it_is``.

    Raises:
        PageError: If a fence is invalid or a block fails.
    """
    found = blocks_of(source)
    blocks = tuple(block for _, block in found)
    try:
        frames = [frame(pieces) for pieces in run_blocks(blocks, code)]
    except BlockError as error:
        fence, block = found[error.number]
        raise PageError(f"{line_of(fence)}: a block fails:\n\n{block.source}\n{error}") from None
    printed = re.sub("<[^>]*>", "", "".join(frames))
    page, end = "", 0
    for (fence, block), name, html in zip(found, names_of(blocks), frames, strict=True):
        page += source[end : fence.start()]
        if isinstance(block, Python):
            title = f' title="{name}"' if block.file or f"{name}:" in printed else ""
            page += f"{fence['indent']}{fence['ticks']}python{title}\n{fence['code']}{fence['end']}\n\n"
        else:
            html = f'<div class="commands">{html}</div>'  # avoids the style of output below code
        page += output_fence(html, fence["indent"])
        end = fence.end()
    return page + source[end:]


def output_fence(html: str, indent: str = "") -> str:
    """Return a fence of literal HTML at the indentation of its block."""
    return "\n".join(f"{indent}{line}" for line in [OUTPUT, *html.split("\n"), TICKS]) if html else ""
