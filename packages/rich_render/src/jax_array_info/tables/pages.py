"""Pages of wrapped lines for a width and an encoding."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text

from jax_array_info_core.text import clipped, printable

from .. import style
from ..pictures.fitting import wrapped
from .trees import path_lines

_GAP = "  "


class Page:
    """Lines of untrusted text, wrapped to a width.

    Args:
        width: Maximum line length in characters.
        encoding: Encoding of the console. Characters that it lacks are escaped.
    """

    def __init__(self, width: int, encoding: str) -> None:
        self.width = width
        self.encoding = encoding
        self.marks = style.marks(encoding)
        self._lines: list[Text] = []

    def write(self, words: str, *, indent: int = 0, look: str = "") -> None:
        """Add a text. Its lines after the first are indented by two more characters."""
        words = self.safe(words)
        first = " " * min(indent, self.width // 2)
        room = self.width - len(first)
        if cell_len(words) <= room:
            self._lines.append(Text(first + words, look))
            return
        indented = first + (_GAP if room > 4 * len(_GAP) else "")
        start, *more = wrapped(words, max(1, room))
        self._lines.append(Text(first + start, look))
        rest = words[len(start) :].strip()
        if more:
            pieces = wrapped(rest, max(1, self.width - len(indented)))
            self._lines += [Text(indented + piece, look) for piece in pieces]

    def write_entry(self, before: str, path: str, *facts: str, note: str = "", indent: int = 2) -> None:
        """Add an entry of a list: in one line if it fits, else with the facts below the path.

        Args:
            before: Text before the path, such as its aligned bytes; may be empty.
            path: Path that is wrapped only after ``/`` and inside long keys; may be empty.
            facts: Texts after the path; empty ones are left out.
            note: Text in a line below, in the style of warnings.
            indent: Number of spaces before the first line.
        """
        margin = " " * min(indent, self.width // 2)
        first = margin + (self.safe(before) + _GAP if before else "")
        path, words = self.safe(path), _GAP.join(self.safe(fact) for fact in facts if fact)
        whole = _GAP.join(filter(None, (path, words)))
        below = min(len(first) + len(_GAP), self.width // 3)
        if len(first) + cell_len(whole) <= self.width:
            self._lines.append(Text(first + whole))
        else:
            room = max(1, self.width - len(first))
            start, *rest = path_lines(path, room) if path else wrapped(words, room)
            self._lines.append(Text(first + start))
            if path:
                self._lines += [Text(" " * len(first) + piece) for piece in rest]
                self._write_below(words, below)
            else:
                self._write_below(words[len(start) :].strip(), below)
        self._write_below(self.safe(note), below, style.WARNING)

    def _write_below(self, words: str, indent: int, look: str = "") -> None:
        if words:
            pieces = wrapped(words, max(1, self.width - indent))
            self._lines += [Text(" " * indent + piece, look) for piece in pieces]

    def safe(self, text: str) -> str:
        """Return untrusted text for this console, without its middle if it is very long."""
        return printable(clipped(text), self.encoding)

    def text(self) -> Text:
        """Return the page."""
        return Text("\n", overflow="fold").join(self._lines)
