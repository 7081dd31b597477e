"""The report of a traced value: at once where its type tells the sharding, else when it is compiled.

A value whose type does not tell is asked about when its program is compiled: a question travels
through JAX's transformations as the parameter of a primitive (``primitives.py``) and meets the
answer where XLA partitions the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import compat
from ..arrays.report import array_report
from ..compat import values
from ..compat.tracers import traced_facts
from ..delivery import deliver
from ..reports.array import ArrayReport
from ..reports.unknown_reasons import NOT_COMPILED
from ..text import plain_text
from .primitives import ask_compiler
from .questions import Question

Show = Callable[[ArrayReport], None]


def report_when_known(value: Any, name: str | None, show: Show) -> None:
    """Deliver the report of a value as soon as its sharding is known.

    That is at once, but for a traced value that only the compiler can tell about.
    """
    question = _open_question(value, name, show)
    if question is not None:
        ask_compiler(value, question, taps=False)


def tap_when_known(value: Any, name: str | None, show: Show) -> Any:
    """Do as ``report_when_known``, and return the value, through which the compiler is asked."""
    question = _open_question(value, name, show)
    return value if question is None else ask_compiler(value, question, taps=True)


def _open_question(value: Any, name: str | None, show: Show) -> Question | None:
    """Return what the compiler is to be asked about a value; None where its report is delivered."""
    if not values.is_tracer(value):
        deliver(array_report(value, name), show)
        return None
    facts = traced_facts(value)
    question = Question(facts, None if name is None else plain_text(name), show)
    if not facts.known.is_open:
        question.answer(lambda: facts.known)
        return None
    if compat.will_not_compile():
        # JAX keeps a trace and may compile it later, when Python does not run again.
        question.stay_unknown(NOT_COMPILED)
    return question
