"""Lines of untrusted text, wrapped to a width."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from rich.cells import cell_len
from rich.text import Text

from jax_array_info_core.base.text import clipped, printable
from jax_array_info_core.facts.pages.blocks import (
    AT_MOST,
    BECOMES,
    CHECK,
    FREE,
    REACHED,
    SKIPPED_COLUMNS,
    SKIPPED_ROWS,
    TIMES,
    USED,
    Entries,
    Look,
    Rule,
    Sentence,
)

from .. import style
from ..style import packed, path_lines, wrapped

_GAP = "  "
_LEAST_RULE = 2
"""Least length of a horizontal line between its title and its end."""
_IN_ASCII = dict(zip("─━│┃┏┳┓┡╇┩└┴┘", "-=||+++++++++", strict=True))
"""Lines and corners in stored output."""
LOOKS: dict[Look, str] = {
    "": "",
    "answer": "bold",
    "aside": style.ASIDE,
    "warning": style.WARNING,
    "alarm": f"bold {style.WARNING}",
    "length": style.LENGTH,
    "sharded": style.SHARDED_LENGTH,
    "varying": style.VARYING_LENGTH,
    "punctuation": style.PUNCTUATION,
}
"""Style of each look."""


class Writing:
    """How texts are written: with the marks and the characters of an encoding."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding
        marks = style.marks(encoding)
        self.rule = marks.horizontal
        self._marks = str.maketrans(
            {
                **(_IN_ASCII if marks.horizontal == "-" else {}),
                TIMES: marks.times,
                AT_MOST: marks.at_most,
                CHECK: marks.check,
                SKIPPED_ROWS: marks.skipped_rows,
                SKIPPED_COLUMNS: marks.skipped_columns,
                USED: marks.bar[0],
                REACHED: marks.bar[1],
                FREE: marks.bar[2],
                BECOMES: marks.becomes,
            }
        )

    def safe(self, text: str) -> str:
        """Return untrusted text for this encoding, without its middle if it is very long."""
        return printable(clipped(text).translate(self._marks), self.encoding)


class Lines:
    """Sentences, rules and lists on a page.

    Args:
        width: Maximum line length in characters.
        writing: How texts are written.
    """

    def __init__(self, width: int, writing: Writing) -> None:
        self.width = width
        self._safe = writing.safe
        self._rule = writing.rule
        self._lines: list[Text] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added."""
        return not self._lines

    def text(self) -> Text:
        """Return the lines."""
        return Text("\n", overflow="fold").join(self._lines)

    def write(self, block: Sentence) -> None:
        """Add a sentence. If it is longer than a line, its end begins one."""
        whole = block.text + block.end
        if block.end and cell_len(whole) + block.indent > self.width:
            self._write(block.text.rstrip(), block.indent, block.look, block.hang)
            self._write(block.end.lstrip(", "), block.indent + block.hang, block.look, block.hang)
        else:
            self._write(whole, block.indent, block.look, block.hang)

    def _write(self, words: str, indent: int, look: Look, hang: int) -> None:
        words = self._safe(words)
        first = min(indent, self.width // 2)
        start, *more = wrapped(words, max(1, self.width - first))
        self._lines.append(Text(" " * first + start, LOOKS[look]))
        if more:
            hang = hang if self.width - first > 4 * hang else 0
            self._write_below([words[len(start) :].strip()], first + hang, look)

    def write_verbatim(self, text: str) -> None:
        """Add lines as they are. Only those that are longer than the width are wrapped."""
        self._lines += [Text(self._safe(line)) for line in text.split("\n")]

    def write_rule(self, block: Rule) -> None:
        """Add a horizontal line with a title."""
        title = self._safe(block.title)
        room = self.width - cell_len(title) - 4
        if room < 0:
            self._write(title, 0, "alarm", 2)
        else:
            end = f" {block.end} {self._rule * 2}" if block.end else ""
            end = end if cell_len(end) + _LEAST_RULE <= room else ""
            line = Text(f"{self._rule * 2} {title} {self._rule * (room - cell_len(end))}", LOOKS["alarm"])
            self._lines.append(line.append(end, LOOKS["aside"]))

    def write_entries(self, block: Entries) -> None:
        """Add a list: aligned if that is asked for and fits, else entry by entry."""
        rows = [[*map(self._safe, row)] for row in block.rows]
        widths = [max(map(cell_len, column)) for column in zip_longest(*rows, fillvalue="")]
        fits = sum(len(_GAP) + width for width in widths if width) <= self.width
        for size, *words in rows:
            before = " " * (widths[0] - cell_len(size)) + size
            if block.in_columns and fits:
                pairs = zip([before, *words], widths, strict=False)
                padded = [cell + " " * (width - cell_len(cell)) for cell, width in pairs if width]
                self._write(_GAP.join(padded).rstrip(), len(_GAP), "", 2)
            else:
                self._write_entry(before, *words)

    def _write_entry(self, before: str, path: str, *facts: str) -> None:
        """Add an entry: in one line if it fits, else with the facts below the path."""
        margin = " " * min(len(_GAP), self.width // 2)
        first = margin + (before + _GAP if before else "")
        words = list(filter(None, facts))
        whole = _GAP.join(filter(None, (path, *words)))
        below = min(len(first) + len(_GAP), self.width // 3)
        room = max(1, self.width - len(first))
        if cell_len(whole) <= room:
            self._lines.append(Text(first + whole))
        elif path:
            start, *pieces = path_lines(path, room)
            self._lines.append(Text(first + start))
            self._lines += [Text(" " * len(first) + piece) for piece in pieces]
            self._write_below(words, below)
        else:
            start = wrapped(whole, room)[0]
            self._lines.append(Text(first + start))
            self._write_below([whole[len(start) :].strip()], below)

    def _write_below(self, facts: Sequence[str], indent: int, look: Look = "") -> None:
        """Add facts, as many in a line as fit."""
        lines = packed(filter(None, facts), _GAP, max(1, self.width - indent))
        self._lines += [Text(" " * indent + line, LOOKS[look]) for line in lines]
