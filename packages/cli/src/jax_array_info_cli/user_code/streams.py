"""Standard output that is kept for the report."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def printed_to_stderr() -> Iterator[None]:
    """Send what Python, native code and other programs print to standard error.

    This includes what is printed by exit handlers that are registered in the block.
    """
    with contextlib.redirect_stdout(sys.stderr), _descriptor_of_stderr():
        try:
            yield
        finally:
            # The last handler runs first, before those of the block.
            atexit.register(_leave_to_stderr)


@contextlib.contextmanager
def _descriptor_of_stderr() -> Iterator[None]:
    """Make file descriptor 1 a duplicate of 2."""
    try:
        saved = os.dup(1)
    except OSError:  # standard output is closed
        yield
        return
    try:
        _duplicate_stderr()
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def _duplicate_stderr() -> None:
    with contextlib.suppress(OSError):  # standard error is closed
        os.dup2(2, 1)


def _leave_to_stderr() -> None:
    """Send what exit handlers print to standard error: the report is written."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    sys.stdout = sys.stderr
    _duplicate_stderr()
