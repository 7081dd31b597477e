"""Function that prints the compile caches of jitted functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jax_array_info.tables.folds import check_max_rows
from jax_array_info_core import (
    compile_caches_report,
)
from jax_array_info_core.reports import CompileCachesReport

from ..tables.compilations import compile_caches_table
from .show import print_table, silent_at_exit


@silent_at_exit
def print_compile_caches(
    report: CompileCachesReport | None = None,
    *,
    clear: str | Callable[..., Any] | Iterable[str | Callable[..., Any]] = (),
    max_rows: int | None = 100,
) -> None:
    """Print the compile caches of the live jitted functions, those with the most entries first.

    ``line`` is the line of a function's definition. ``entries`` is the number of entries in its call cache,
    one per combination of argument shapes, dtypes, weak types, shardings and static arguments.
    ``executables`` is the number of its distinct executables in memory, or ``?`` in JAX 0.5 and earlier and
    for ``jax.pmap``. Equivalent partition specs that are written differently have separate entries but share
    one executable. JAX's own functions share one row. The last row counts the executables that belong to no
    live jitted function: those of functions that no longer exist, those of transformed functions such as
    ``grad(jitted)``, and those compiled ahead of time.

    >>> import jax, jax.numpy as jnp
    >>> from jax_array_info import print_compile_caches
    >>> @jax.jit
    ... def step(x):
    ...     return x + 1
    >>> small, large = step(jnp.zeros(3)), step(jnp.zeros(4))
    >>> print_compile_caches()
                                  compile caches
    ┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━━┓
    ┃ function                            ┃ line       ┃ entries ┃ executables ┃
    ┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━┩
    │ step                                │ train.py:3 │       2 │           2 │
    ├─────────────────────────────────────┼────────────┼─────────┼─────────────┤
    │ 356 functions of JAX itself         │            │       3 │           3 │
    │ executables without a live function │            │         │           0 │
    └─────────────────────────────────────┴────────────┴─────────┴─────────────┘

    It compiles nothing, runs nothing and keeps no function alive.

    Args:
        report: A report to print. None reports on this process.
        clear: Functions whose caches are cleared first: a jitted function, a name, or several of these.
        max_rows: Maximum number of functions. One more row sums the remaining functions. None shows all.

    Raises:
        FunctionNameError: (a LookupError) If no live function has that name. No cache is cleared.
        UnsupportedValueError: (a ValueError) If an entry of ``clear`` is neither a name nor a jitted
            function. No cache is cleared.
        ValueError: If ``max_rows`` is negative.
    """
    check_max_rows(max_rows)  # before any cache is cleared
    print_table(
        compile_caches_report(clear) if report is None else report,
        lambda report, _: compile_caches_table(report, max_rows=max_rows),
    )
