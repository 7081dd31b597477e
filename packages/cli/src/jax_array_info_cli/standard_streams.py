"""Standard output and standard error that are closed, or cannot be written: a full disk, a closed pipe."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import Any

_STDERR = 2
_MOST_DESCRIPTORS = 1 << 16
"""A higher descriptor makes the kernel's table of them slow to copy."""
_MOST_COPIES = 16
"""Number of copies at the limit of open files."""


class _Lossy(io.FileIO):
    """A file that drops what cannot be written, because there is no other place to report it."""

    def write(self, data: Any) -> int:
        """Write data, and return the number of bytes that were written or dropped."""
        with contextlib.suppress(OSError):
            return super().write(data) or len(data)
        return len(data)


def secure_standard_streams() -> None:
    """Drop what standard error does not take, and open closed streams, whose place a file would get."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(descriptor)
    encoding = sys.stderr.encoding if sys.stderr else None
    raw = _Lossy(_STDERR, "w", closefd=False)
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=True)


def copy_out_of_reach(descriptor: int) -> int:
    """Return a copy of a descriptor, with a number that programs that close all others rarely reach.

    They close descriptors up to a number such as 256, or to the limit of open files.
    """
    import fcntl
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    number = min(soft, _MOST_DESCRIPTORS)
    with contextlib.suppress(OSError, ValueError):  # at the hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, number + 1), hard))
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, number)
    except OSError:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, number - _MOST_COPIES)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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
            print(f"Error: {problem}", file=sys.stderr)
        sys.exit(exit_code)


def unwritable(error: OSError) -> str | None:
    """Return the message for output that cannot be written, or None if the reader closed the pipe."""
    return None if error.errno == errno.EPIPE else f"the output cannot be written: {error.strerror or error}"
