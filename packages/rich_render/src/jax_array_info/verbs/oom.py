"""Report on live arrays when a device runs out of memory."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from typing import TextIO

from jax_array_info_core import format_bytes, live_array_report
from jax_array_info_core.arrays.delivery import deliver
from jax_array_info_core.arrays.live.out_of_memory import KnownErrors, failed_program, out_of_memory_errors
from jax_array_info_core.arrays.origins.origins import UserLines
from jax_array_info_core.base.text import printable
from jax_array_info_core.compat.jax_stack import frames, is_staging
from jax_array_info_core.facts.pages import page
from jax_array_info_core.facts.pages.blocks import said
from jax_array_info_core.jobs.timeline.recorder import record_out_of_memory
from jax_array_info_core.reports import LiveArrayReport

from ..engine.render import on_console, shown_blocks
from ..style import WIDEST
from .around import Around
from .show import show_rendered

_reported = KnownErrors()
"""Errors that have been reported: nested blocks report each error once."""

_INSIDE = (
    "report_on_oom is inside a traced function, so it runs only during tracing and cannot catch errors of the"
    " compiled program: put it outside, as @report_on_oom() above @jax.jit, or as `with report_on_oom():`"
    " around the call"
)
_LARGE = re.compile(r"\b(\d{4,18}) bytes\b")
"""A number of bytes in an error, such as ``6597069766660 bytes``."""
_warned_at: dict[str, dict[str | tuple[str, type[Warning], int], int]] = {}
"""The registries of Python's warnings, by file: each line warns once."""


def report_on_oom(file: TextIO | None = None) -> _ReportOnOom:
    """Return a context manager and decorator that prints the live arrays when a device runs out of memory.

    >>> import contextlib, sys
    >>> import jax, jax.numpy as jnp
    >>> from jax_array_info import report_on_oom
    >>> weights = jnp.ones((512, 512))
    >>> @report_on_oom(sys.stdout)
    ... @jax.jit
    ... def step():
    ...     return jnp.zeros((2**25, 2**25))
    >>> with contextlib.suppress(jax.errors.JaxRuntimeError):
    ...     step()
    live arrays at RESOURCE_EXHAUSTED: Out of memory allocating 4.0 PiB.
    The program of step ran out of memory: print_program(step, *args) shows what it
    allocates.
                           allocated jax arrays
    ┏━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━┓
    ┃ size    ┃ shape      ┃ dtype   ┃ sharded ┃ made at             ┃
    ┡━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━┩
    │ 1.0 MiB │ (512, 512) │ float32 │         │ train.py:4 <module> │
    ├─────────┼────────────┼─────────┼─────────┼─────────────────────┤
    │ 1.0 MiB │            │         │         │                     │
    └─────────┴────────────┴─────────┴─────────┴─────────────────────┘

    If the block or the decorated function raises a ``RESOURCE_EXHAUSTED`` error, a line with the error and
    the table of ``print_array_stats(origins=True)`` are printed to ``file``. If a jitted function was called
    by its name, another line names it, and the call of ``print_program`` that shows its memory. The
    error may be the exception itself, its cause or context, or a member of an exception group. The exception
    propagates unchanged.
    Nested blocks report an error once. Nothing is printed for an error that was already being handled when
    the block was entered, or if the program exits normally, as with ``sys.exit(0)``. Within
    ``collect_reports``, the report is collected instead of printed.

    It decorates functions, coroutine functions and jitted functions (``jax.jit``, ``nnx.jit``,
    ``eqx.filter_jit``), also in the body of a class; below ``@staticmethod`` and ``@classmethod``. Attributes
    such as ``lower``, ``trace`` and ``clear_cache`` stay available.

    Put it outside ``jax.jit`` and other transformations. Inside, it covers only the tracing of the function,
    and a warning is issued. JAX dispatches asynchronously, so an error may be raised only where you wait for
    the result: put the block around that line too.

    Args:
        file: File to print to, in text mode. Defaults to ``sys.stderr``; if that is None, nothing is printed.

    Raises:
        UnsupportedValueError: (a ValueError) If ``file`` is not a file, for example because the parentheses
            of ``@report_on_oom()`` are missing.
    """
    return _ReportOnOom(file)


class _ReportOnOom(Around):
    name = "report_on_oom"
    lines = "the lines that allocate"

    def __enter__(self) -> None:
        if is_staging():
            _warn_of_tracing()
        super().__enter__()

    def tell(self, error: BaseException, handled: KnownErrors) -> None:
        tell_if_out_of_memory(error, self.file, handled)


def _warn_of_tracing() -> None:
    """Warn that the block is inside a traced function, once per line of the program."""
    lines = ((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name) for frame in frames())
    place = UserLines().origin(lines)
    file, line = (place.file, place.line) if place else ("<unknown>", 0)
    # The compilation goes on if warnings are errors, or if the program's hook for them fails.
    with contextlib.suppress(Exception):
        warnings.warn_explicit(_INSIDE, UserWarning, file, line, registry=_warned_at.setdefault(file, {}))


def tell_if_out_of_memory(
    error: BaseException, file: TextIO | None = None, handled: KnownErrors | None = None
) -> None:
    """Print the live arrays if an exception reports that a device is out of memory. Raise nothing.

    The traceback still refers to the local variables of the functions that failed, so their arrays are live.

    Args:
        error: The exception.
        file: File to print to. None is ``sys.stderr``; nothing is printed if the program has none.
        handled: Errors to ignore.
    """
    file = sys.stderr if file is None else file
    try:
        if _is_regular_exit(error):
            return
        record_out_of_memory(error)
        known = handled or KnownErrors()
        cause = next((cause for cause in out_of_memory_errors(error) if cause not in known), None)
        if cause is None or cause in _reported:
            return
        _reported.add(cause)
        reason, program = str(cause).partition("\n")[0], None
        with contextlib.suppress(Exception):  # without a name, the table is still useful
            program = failed_program(cause)
        deliver(live_array_report(origins=True), lambda report: _show(report, reason, program, file))
    except Exception as problem:
        # No failure here may hide the user's exception.
        with contextlib.suppress(Exception):
            words = f"{type(problem).__name__}: {problem}".partition("\n")[0]
            if file is not None:
                print(f"the live arrays could not be listed: {printable(words, 'ascii')}", file=file)


def _is_regular_exit(error: BaseException) -> bool:
    """Return whether the exception ends a program or a generator without a failure."""
    if isinstance(error, SystemExit):
        return error.code is None or (isinstance(error.code, int) and error.code == 0)
    return isinstance(error, GeneratorExit)


def _show(report: LiveArrayReport, reason: str, program: str | None, file: TextIO | None) -> None:
    if file is None:
        return  # None would be the standard output to rich and print
    lines = [f"live arrays at {_LARGE.sub(lambda match: format_bytes(int(match[1])), reason)}"]
    if program is not None:
        lines.append(
            f"The program of {program} ran out of memory: print_program({program}, *args) shows what it"
            " allocates."
        )
    sizes = set(map(int, re.findall(r"\d+", reason)))
    if any(group.local_nbytes in sizes for group in report.groups if group.local_nbytes):
        lines.append("Includes the array whose allocation failed.")
    blocks = [*said(lines, "warning", hang=0), *shown_blocks([*page(report)], "fit")]
    show_rendered(on_console(blocks, width=WIDEST), file=file)
