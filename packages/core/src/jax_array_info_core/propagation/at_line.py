"""The part of a propagation that is about one line, argument or output."""

from __future__ import annotations

import difflib
from dataclasses import replace

from ..errors import UnsupportedValueError
from ..reports.origin import Origin
from ..reports.propagation import PropagationReport
from ..text import plain_text


def at_line(report: PropagationReport, line: str) -> PropagationReport:
    """Return a report with what is about one line, or one argument or output, alone.

    Args:
        report: The report.
        line: The line, such as ``model.py:42``, or a path, such as ``params/wi`` or ``outputs``.

    Raises:
        UnsupportedValueError: (a ValueError) If the report has no such line and no such path.
    """
    text = plain_text(line)
    found = replace(
        report,
        arguments=tuple(one for one in report.arguments if one.path == text),
        outputs=tuple(one for one in report.outputs if one.path == text),
        values=tuple(one for one in report.values if _is_at(one.origin, text)),
        conflicts=tuple(
            one
            for one in report.conflicts
            if _is_at(one.origin, text) or any(each.name == text for each in one.operands)
        ),
        lost=tuple(
            one
            for one in report.lost
            if _is_at(one.origin, text) or _is_at(one.constraint, text) or one.operand == text
        ),
        replicated=tuple(one for one in report.replicated if _is_at(one.origin, text)),
    )
    if found.arguments or found.outputs or found.values or found.conflicts or found.lost:
        return found
    places = {one.origin.place for one in report.values if one.origin is not None}
    known = [*sorted(places), *(one.path for one in (*report.arguments, *report.outputs))]
    near = difflib.get_close_matches(text, known, 5, 0.5) or known[:5]
    raise UnsupportedValueError(
        f"the program has no line and no argument or output {text!r}: there are {', '.join(near)}"
    )


def _is_at(origin: Origin | None, text: str) -> bool:
    """Return whether a line is the one in a text, which can have the folders of the file."""
    if origin is None:
        return False
    return text in (origin.place, f"{origin.file}:{origin.line}") or f"{origin.file}:{origin.line}".endswith(
        f"/{text}"
    )
