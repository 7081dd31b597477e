"""Warnings about failed inspections. A failure does not stop the inspected program."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

_logger = logging.getLogger("jax_array_info")


def log_problem(problem: str, *, with_traceback: bool = True) -> None:
    """Log a warning about the exception that is being handled.

    Errors of ``logging`` itself, as with a closed stderr, are ignored.

    Args:
        problem: The message.
        with_traceback: Whether to append the traceback.
    """
    with contextlib.suppress(Exception):
        _logger.warning("%s", problem, exc_info=with_traceback)


@contextlib.contextmanager
def log_failed_delivery() -> Iterator[None]:
    """Log the errors of a report's delivery, so that the user's program continues."""
    try:
        yield
    except OSError as error:
        log_problem(f"a report could not be written: {error}", with_traceback=False)
    except Exception:
        log_problem("a report could not be shown")
