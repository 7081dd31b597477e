"""Explanations of errors: the line, the operands, the rule, edits that work, and these as lines of text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...arrays.origins.origins import cell_number
from ...base import quantities
from ...base.quantities import format_bytes
from ...base.text import clipped, printable
from ...facts.pages.blocks import Look, Note
from ...facts.reports.origin import SourceLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """An array in the expression that raised."""

    expression: str
    """Source text, such as ``params["w"]``."""

    type: str = ""
    """Type with its sharding, as JAX prints it: ``f32[8@y,8]``; empty if it is not known."""

    made: str = ""
    """Source of the sharding: ``made at train.py:34``, ``argument of step``; empty if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A change of the source that removes the error."""

    code: str
    """Source text that replaces ``Explanation.expression`` in its line."""

    sent_nbytes: quantities.Size | None = None
    """Bytes that a device sends for it; None if they are not known."""

    is_at_least: bool = False
    """Whether ``sent_nbytes`` is a lower bound from the layouts: the expression was not compiled."""

    is_per_iteration: bool = False
    """Whether the expression is in the body of a loop, which sends the bytes in each iteration."""

    is_around: bool = False
    """Whether the code is a statement that stands around the expression instead, such as ``with …:``."""

    is_reserve: bool = False
    """Whether it is only of use if it compiles, and if no other edit sends as little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why JAX raised an error, and what to write instead."""

    kind: str
    """Name of the kind of error, such as ``ambiguous contraction``."""

    rule: str
    """The rule that was broken, as one sentence."""

    file: str = ""
    """Path of the file of the user's line; empty if there is none."""

    line: int | None = None
    """Number of the user's line in it."""

    function: str = ""
    """Name of the user's function."""

    expression: str = ""
    """Source text of the expression that raised, as it stands in the line; empty if it is not known."""

    operands: tuple[Operand, ...] = ()
    """Arrays in the expression, in its order."""

    edits: tuple[Edit, ...] = ()
    """Edits that each remove the error; none if no edit is known to work."""


MOST_LINES = 12
_MOST_OF_A_TEXT = 3
"""Maximum number of lines of a text, apart from the code of edits."""
_LEAST_WIDTH = 20
_WIDEST_COLUMN = 28
_LINE_BREAK = re.compile(r"\s*\n\s*")


def explanation_lines(explanation: Explanation, *, width: int = 80) -> list[Note]:
    """Return an explanation in at most 12 lines: the user's line, the operands, the rule and the edits.

    The last operands and edits are left out if there is no room for them. The code of an edit is complete.

    Args:
        explanation: The explanation.
        width: Maximum line length in characters.
    """
    operands, edits = [*explanation.operands], [*explanation.edits]
    while len(lines := [*_lines(explanation, operands, edits, max(width, _LEAST_WIDTH))]) > MOST_LINES:
        (operands if len(operands) > 2 or (operands and not edits[1:]) else edits).pop()
    return lines


def _lines(
    explanation: Explanation, operands: Sequence[Operand], edits: Sequence[Edit], width: int
) -> Iterator[Note]:
    yield from _wrapped(_title(explanation), width, "alarm")
    yield from _wrapped(explanation.expression, width, indent=4, most=2)
    rows = [(operand.expression, operand.type, operand.made) for operand in operands]
    columns = [[_plain(text) for text in column] for column in zip(*rows, strict=True)]
    widths = [min(max(map(len, column)), _WIDEST_COLUMN) for column in columns]
    for row in zip(*columns, strict=True):
        yield from _wrapped("  ".join(map(str.ljust, row, widths)), width, "aside", indent=6)
    yield from _wrapped(f"{explanation.rule.removesuffix('.')}.", width)
    if edits:
        yield Note("Write one of these instead:" if edits[1:] else "Write this instead:")
    for edit in edits:
        sent = _sent_words(edit)
        line = f"{_plain(edit.code)}  {sent}"
        for part in [line] if len(line) <= width - 4 else [edit.code, sent]:
            yield from _wrapped(part, width, "answer", indent=4, most=None)


def _sent_words(edit: Edit) -> str:
    """Return what an edit sends, as a comment; empty if that is not known."""
    if edit.is_around:
        return "# around it"
    if edit.sent_nbytes is None or (edit.is_at_least and not edit.sent_nbytes):
        return ""
    least = "at least " if edit.is_at_least else ""
    each = " and iteration" if edit.is_per_iteration else ""
    return f"# sends {least}{format_bytes(edit.sent_nbytes)} per device{each}"


def _title(explanation: Explanation) -> str:
    """Return the kind and the line: ``ambiguous contraction at train.py:34 step``."""
    file, line = explanation.file, explanation.line
    if line is None:
        return explanation.kind
    place = SourceLine(file=file, line=line, function=explanation.function, cell=cell_number(file))
    return f"{explanation.kind} at {place}"


def _plain(text: str) -> str:
    """Return a text of the user in one line that is safe in a terminal."""
    return printable(_LINE_BREAK.sub(" ", clipped(text)).strip())


def _wrapped(
    text: str, width: int, look: Look = "", *, indent: int = 0, most: int | None = _MOST_OF_A_TEXT
) -> Iterator[Note]:
    before = " " * indent
    lines = textwrap.wrap(
        _plain(text),
        width,
        initial_indent=before,
        subsequent_indent=f"{before}  ",
        max_lines=most,
        placeholder=" ...",
        break_on_hyphens=False,
    )
    return (Note(line, look) for line in lines)
