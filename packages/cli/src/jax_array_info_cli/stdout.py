"""Failures of standard output: a full disk or a closed pipe."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def written_or_refused(exit_code: int = 1) -> Iterator[None]:
    """Flush standard output at the end. If that fails, print one line and exit with this code.

    A reader that closes the pipe early, such as ``head``, gets no message.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:
            raise  # an error of some other file
        # Python flushes stdout again at exit: discard what is left.
        with contextlib.suppress(OSError, ValueError, AttributeError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if problem := unwritable(error):
            with contextlib.suppress(OSError):  # stderr may be on the same full disk
                print(f"Error: {problem}", file=sys.stderr, flush=True)
        sys.exit(exit_code)


def unwritable(error: OSError) -> str | None:
    """Return the message for output that cannot be written, or None if the reader closed the pipe."""
    if error.errno == errno.EPIPE:
        return None
    return f"the output cannot be written: {error.strerror or error}"
