"""The page of a code of findings: its meaning, why it matters, what to do, and an example."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..reports.codes import Code
from .blocks import Block, Rule, Sentence, Verbatim

_PIECE = re.compile(
    r"\n*#+ (?P<title>.+)\n+|(?P<ticks>`{3,}).*\n(?P<code>(?s:.*?))\n(?P=ticks)\n|(?P<line>.*)\n"
)
"""A heading with the blank lines around it, code in a fence, or a line of text: a paragraph or an item."""


def explained_page(code: Code) -> Iterator[Block]:
    """Yield the meaning of a code, why it matters, what to do, and an example."""
    for piece in _PIECE.finditer(code.text):
        if piece["title"]:
            yield Rule(piece["title"])
        elif piece["code"]:
            yield Verbatim(piece["code"])
        else:
            words = re.sub(r"\[(.+?)\]\(.*?\)", r"\1", piece["line"]).replace("`", "")
            yield Sentence(words, hang=2 * words.startswith("- "))
