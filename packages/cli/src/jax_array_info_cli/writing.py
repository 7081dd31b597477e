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
        if error.filename is not None:
            raise  # it is about some file, not about the output
        _drop_what_is_left()
        if problem := unwritable(error):
            with contextlib.suppress(OSError, AttributeError):  # stderr may be as full, or closed
                sys.stderr.write(f"Error: {problem}\n")
                sys.stderr.flush()
        sys.exit(1)


def unwritable(error: OSError) -> str | None:
    """Return what to say of output that could not be written, None where nobody reads any more."""
    if error.errno == errno.EPIPE:
        return None
    return f"the output cannot be written: {error.strerror or error}"


def _drop_what_is_left() -> None:
    """Let what is still to be written go nowhere: Python tries it again when it ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
