"""Standard output that cannot be written: a full disk, or a pipe that nobody reads any more."""

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
        # Python writes what is left when it ends: let that go nowhere.
        with contextlib.suppress(OSError, ValueError, AttributeError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if problem := unwritable(error):
            with contextlib.suppress(OSError):  # stderr may be as full
                print(f"Error: {problem}", file=sys.stderr, flush=True)
        sys.exit(1)


def unwritable(error: OSError) -> str | None:
    """Return what to say of output that could not be written, None where nobody reads any more."""
    if error.errno == errno.EPIPE:
        return None
    return f"the output cannot be written: {error.strerror or error}"
