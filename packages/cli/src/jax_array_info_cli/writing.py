"""What a command does whose output cannot be written: on a full disk, or as nobody reads any more."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def written_or_refused() -> Iterator[None]:
    """Write out at the end what was printed; where that fails, say so in a line and exit with 1.

    Who reads no further, as ``head`` does, needs no line.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        _drop_what_is_left()
        if error.errno != errno.EPIPE:
            with contextlib.suppress(OSError, AttributeError):  # stderr may be as full, or closed
                sys.stderr.write(f"Error: the output cannot be written: {error.strerror or error}\n")
                sys.stderr.flush()
        sys.exit(1)


def _drop_what_is_left() -> None:
    """Let what is still to be written go nowhere: Python tries it again when it ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
