"""Where a traced value's sharding is known: by its type, by the program's own hand, by the compiler.

A value whose type does not tell is asked about when its program is compiled: a question travels
through JAX's transformations as the parameter of a primitive (``primitives.py``) and meets the
answer where XLA partitions the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import compat
from ..arrays.report import ONLY_THE_COMPILER_KNOWS, array_report
from ..compat import values
from ..delivery import deliver, next_number
from ..reports.array import ArrayReport
from .requests import Question

NOT_COMPILED = "not compiled"

Show = Callable[[ArrayReport], None]


def report_when_known(value: Any, name: str | None, show: Show) -> None:
    """Deliver the report of a value as soon as its sharding is known.

    That is at once, but for a traced value that only the compiler can tell about.
    """
    if not values.is_tracer(value):
        deliver(array_report(value, name), show)
        return
    question = _open_question(value, name, show)
    if question is not None:
        from .primitives import ask

        ask(value, question)


def tap_when_known(value: Any, name: str | None, show: Show) -> Any:
    """Do as ``report_when_known``, and return the value, through which the compiler is asked."""
    if not values.is_tracer(value):
        deliver(array_report(value, name), show)
        return value
    question = _open_question(value, name, show)
    if question is None:
        return value
    from .primitives import tap

    return tap(value, question)


def _open_question(value: Any, name: str | None, show: Show) -> Question | None:
    """Return what the compiler is to be asked about a traced value, None where it is not."""
    report = array_report(value, name)
    question = Question(report, value.dtype, show, next_number())
    if report.source == "unknown" and report.unknown_because != ONLY_THE_COMPILER_KNOWS:
        question.answer(lambda: report)
        return None
    is_open = report.source == "unknown" or (report.source == "manual" and _has_auto_axes(value))
    if is_open and not compat.will_not_compile():
        return question
    question.answer(lambda: question.unknown(NOT_COMPILED))
    # JAX keeps a trace and may compile it later, when Python does not run again.
    return question if is_open else None


def _has_auto_axes(value: Any) -> bool:
    """Return whether there are mesh axes about which the compiler decides."""
    return "Auto" in compat.mesh_axis_types(compat.type_mesh(value.aval))
