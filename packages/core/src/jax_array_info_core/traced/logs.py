"""Warnings about what went wrong in a look, which never stop the program that is looked at."""

from __future__ import annotations

import contextlib
import logging

_logger = logging.getLogger("jax_array_info")


def log_problem(problem: str, *, with_traceback: bool = True) -> None:
    """Log a warning about the exception that is being handled, where the log can be written.

    ``logging`` itself raises where stderr is closed.

    Args:
        problem: What went wrong.
        with_traceback: Whether the traceback follows.
    """
    with contextlib.suppress(Exception):
        _logger.warning("%s", problem, exc_info=with_traceback)
