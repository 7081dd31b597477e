"""The function that prints the compile caches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jax_array_info_core import (
    compile_caches_report,
)
from jax_array_info_core.delivery import deliver
from jax_array_info_core.reports.rows import check_max_rows

from ..tables.programs import compile_caches_table
from .show import show_rendered, silent_at_exit


@silent_at_exit
def print_compile_caches(
    *,
    clear: str | Callable[..., Any] | Iterable[str | Callable[..., Any]] = (),
    max_rows: int | None = 100,
) -> None:
    """Print a table of the jitted functions that are alive, the most entries first.

    ``entries`` are those of a function's call cache, one for each kind of arguments; ``compilations``
    how many different programs of it are alive, ``?`` where this jax does not tell (up to 0.5). Arrays
    whose specs are written differently but mean the same have two entries and one compilation. Nothing
    is compiled, run or kept alive.

    Args:
        clear: Functions whose caches are emptied before: a jitted function, a name, or several of these.
        max_rows: How many functions to show; what is left is one row more. None for all.

    Raises:
        FunctionNameError: (a LookupError) no live function has such a name; nothing has been emptied.
        UnsupportedValueError: (a ValueError) what shall be emptied is neither a name nor a jitted
            function.
        ValueError: ``max_rows`` is negative.
    """
    check_max_rows(max_rows)  # before anything is emptied
    deliver(
        compile_caches_report(clear),
        lambda report: show_rendered(compile_caches_table(report, max_rows=max_rows)),
    )
