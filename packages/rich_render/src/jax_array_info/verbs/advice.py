"""Function that prints changes of shardings that help."""

from __future__ import annotations

from typing import Any

from jax_array_info_core import advise_report
from jax_array_info_core.facts.pages.folds import MaxRows
from jax_array_info_core.reports import AdviceReport

from .explain import explain_errors
from .show import print_table, refuse_with, verb

BUDGET = "60s"
"""Time for the tries, by default."""


@verb
def print_advice(
    f: Any,
    /,
    *args: Any,
    budget: float | str = BUDGET,
    topology: str | None = None,
    trades: bool = False,
    max_rows: MaxRows = "fit",
    **kwargs: Any,
) -> None:
    """Print the changes of shardings that make a program better, each applied and measured.

    The first line is the answer: how many changes help, and what the first one saves. Each change has its
    place and the expression that stands there, the code to write instead, the figures that it changes, and
    how it was proved:

    - ``proved: this file with the edit, traced and compiled``: the changed source was compiled in a process
      of its own, and has these figures.
    - ``applied to the lowered program; not yet to the source``: the source cannot be edited here, as in a
      notebook. The program that JAX lowered was changed and compiled.

    A change helps if it makes the bytes sent, the memory or the FLOPs less by 5 %, and none of them more. If
    it makes one less and another more, it is a trade. ``24 changes tried, none helps`` is an answer, too. The
    time of a step is not known, nor what helps with other shapes.

    Args:
        f: A function, jitted or not; or an ``AdviceReport``, without other arguments.
        *args: Arguments of the function: arrays or ShapeDtypeStructs.
        budget: Time for the tries, in seconds or as text such as ``"60s"``.
        topology: TPU or GPU topology to compile for, such as ``"v5p:2x2x2"``. None for the devices of the
            arguments.
        trades: Whether to list the trades, each with its price.
        max_rows: Maximum number of changes. One more line has the number of the others. None shows all.
        **kwargs: Keyword arguments of the function.

    Raises:
        TopologyError: If the topology is unknown or its compiler is not installed.
        TypeError: If arguments are given with an ``AdviceReport``.
        UnsupportedValueError: (a ValueError) If ``f`` is not a function, or the budget is not a time.
        ValueError: If ``max_rows`` is negative.
    """
    if isinstance(f, AdviceReport):
        if args or kwargs or budget != BUDGET or topology is not None:
            refuse_with(AdviceReport, ["the other arguments"])
        report = f
    else:
        with explain_errors():
            report = advise_report(f, *args, budget=budget, topology=topology, **kwargs)
    print_table(report, trades=trades, max_rows=max_rows)
