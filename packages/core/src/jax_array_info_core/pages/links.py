"""Text with links, which only pages can follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..reports import SourceLine
from .program_words import folded_text

Target = str | tuple[str, int]
"""What a link leads to: the path of an argument or output, the words of a place, or a file and a line."""


class Link(NamedTuple):
    """Words that lead to something on the same page."""

    words: str
    target: Target


Pieces = tuple[str | Link, ...]
"""A text in pieces."""


def line_target(line: SourceLine) -> Target:
    """Return the target for a line."""
    return line.file, line.line


def words_of(piece: str | Link) -> str:
    """Return the words of a piece."""
    return piece if isinstance(piece, str) else piece.words


def text_of_pieces(pieces: Pieces) -> str:
    """Return the text without links."""
    return "".join(map(words_of, pieces))


def folded_pieces(texts: Sequence[Pieces]) -> Pieces:
    """Return texts that differ only in the indices of paths as one; its links are those of the first."""
    folded = []
    for column in zip(*texts, strict=True):
        words, first = folded_text([*map(words_of, column)]), column[0]
        folded.append(words if isinstance(first, str) else first._replace(words=words))
    return tuple(folded)
