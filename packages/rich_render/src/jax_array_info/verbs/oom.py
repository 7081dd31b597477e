"""What is printed when a program dies as a device has no memory left."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, TextIO, TypeVar

from rich.console import Group

from jax_array_info_core import LiveArrayReport, UnsupportedValueError, compat, live_array_report
from jax_array_info_core.compat.frames import frames
from jax_array_info_core.delivery import deliver
from jax_array_info_core.live.out_of_memory import KnownErrors, out_of_memory_errors
from jax_array_info_core.origins.origins import hidden_files, innermost
from jax_array_info_core.text import printable

from .. import style
from ..tables.live import live_array_table
from .decorating import run_within
from .show import show_rendered

_F = TypeVar("_F", bound=Callable[..., Any])

_told = KnownErrors()
"""The errors that need not be told again, as blocks are nested."""

_INSIDE = (
    "report_on_oom is inside a function that JAX traces, and sees nothing of the compiled program: put it"
    " outside, as @report_on_oom() above @jax.jit, or as `with report_on_oom():` around the call"
)
_warned_at: dict[str, dict[str | tuple[str, type[Warning], int], int]] = {}
"""The lines at which Python has warned of that, by their file."""


def report_on_oom(file: TextIO | None = None) -> _ReportOnOom:
    """Return a context manager that prints what was live when a device has no memory left.

    When an exception leaves the block, or the function that it decorates, and its traceback shows a
    RESOURCE_EXHAUSTED (it is one, was caused by one or raised while one was handled, not ``from None``),
    then the table of ``print_array_stats`` is printed, by size and with the lines that made the arrays. The
    exception goes on as it is. An error is told once, however many blocks it leaves; one that was being
    handled when the block was entered, and an exit without a failure, are not told. Within
    ``collect_reports`` the report is gathered.

    >>> import jax
    >>> @report_on_oom()
    ... @jax.jit
    ... def step(batch): ...

    It decorates any callable: functions, jitted ones (``jax.jit``, ``nnx.jit``, ``eqx.filter_jit``), bound
    methods, ``functools.partial``. Attributes such as ``lower``, ``trace`` and ``clear_cache`` stay
    reachable. The block around a coroutine function or a generator, also an asynchronous one, ends when its
    body does.

    Put it outside of ``jax.jit`` and the like. Inside, it only sees how JAX traces the function, and it warns
    you. If the program fails after the call has returned, the error is raised where you wait for the result,
    so put the block around that line too.

    Args:
        file: Where to print; ``sys.stderr`` when None, and nowhere where the program has none.

    Raises:
        UnsupportedValueError: (a ValueError) it is not a file, but the function to decorate, for example:
            write ``@report_on_oom()``.
    """
    if file is not None and not hasattr(file, "write"):
        raise UnsupportedValueError(
            f"is no file to print to, got {type(file)}: a function is decorated by @report_on_oom()"
        )
    return _ReportOnOom(file)


class _ReportOnOom:
    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        # An entry for each time that it is entered and not yet left.
        self._handled: list[KnownErrors] = []

    def __call__(self, function: _F) -> _F:
        """Return a callable of the same kind that runs within such a block.

        Raises:
            UnsupportedValueError: (a ValueError) it is a class, or not callable.
        """
        if isinstance(function, type):
            raise UnsupportedValueError(
                f"cannot decorate the class {function.__qualname__}: write @report_on_oom() above its methods"
            )
        if not callable(function):
            raise UnsupportedValueError(
                f"cannot decorate {type(function)}, which is not callable: write @report_on_oom() above"
                " @jax.jit and under @classmethod and @property"
            )
        return run_within(lambda: _ReportOnOom(self._file), function)

    def __enter__(self) -> None:
        if compat.is_staging():
            _warn_of_tracing()
        handled = KnownErrors()
        # Whatever the text of a user's exception raises: the block is not hindered.
        with contextlib.suppress(Exception):
            for error in out_of_memory_errors(sys.exception()):
                handled.add(error)
        self._handled.append(handled)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        handled = self._handled.pop()
        if error is not None:
            tell_if_out_of_memory(error, self._file, handled)


def _warn_of_tracing() -> None:
    """Warn, once for each line of the program, that the block is inside a traced function."""
    lines = ((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name) for frame in frames())
    place = innermost(lines, hidden_files())
    file, line = (place.file, place.line) if place else ("<unknown>", 0)
    # Where warnings are errors, or a program's hook for them fails, the compilation goes on.
    with contextlib.suppress(Exception):
        warnings.warn_explicit(_INSIDE, UserWarning, file, line, registry=_warned_at.setdefault(file, {}))


def tell_if_out_of_memory(
    error: BaseException, file: TextIO | None = None, handled: KnownErrors | None = None
) -> None:
    """Print what is live, if an exception says that a device has no memory left; raises nothing.

    Its traceback still holds what the functions held that it has left.

    Args:
        error: The exception.
        file: Where to print; ``sys.stderr`` when None, and nowhere where the program has none.
        handled: Errors that do not count.
    """
    file = sys.stderr if file is None else file
    try:
        if _is_no_failure(error):
            return
        known = handled or KnownErrors()
        cause = next((found for found in out_of_memory_errors(error) if found not in known), None)
        if cause is None or cause in _told:
            return
        _told.add(cause)
        reason = str(cause).partition("\n")[0]
        deliver(live_array_report(origins=True), lambda report: _show(report, reason, file))
    except Exception as problem:
        # Whatever it is, it must not hide the user's exception.
        with contextlib.suppress(Exception):
            words = f"{type(problem).__name__}: {problem}".partition("\n")[0]
            if file is not None:
                print(f"the live arrays could not be listed: {printable(words, 'ascii')}", file=file)


def _is_no_failure(error: BaseException) -> bool:
    """Return whether a program, or a generator, ends as it should."""
    if isinstance(error, SystemExit):
        return error.code is None or (isinstance(error.code, int) and error.code == 0)
    return isinstance(error, GeneratorExit)


def _show(report: LiveArrayReport, reason: str, file: TextIO | None) -> None:
    if file is None:
        return  # for rich and print that were the standard output
    lines = [f"live arrays at {reason}"]
    sizes = set(map(int, re.findall(r"\d+", reason)))
    if any(group.local_nbytes in sizes for group in report.groups if group.local_nbytes):
        lines.append("Includes the array whose allocation failed.")
    heading = style.written(*lines, look=style.WARNING)
    show_rendered(Group(heading, live_array_table(report)), file=file)
