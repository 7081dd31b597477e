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
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def _leave_to_stderr() -> None:
    """Send what exit handlers print to standard error: the report is written."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
        os.dup2(2, 1)
    sys.stdout = sys.stderr
