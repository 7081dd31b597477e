"""Line buffering of stdout and stderr, for Python and for C and C++ libraries."""

from __future__ import annotations

import contextlib
import ctypes
import io
import sys

_LINE_BUFFERED = 1
_SIZE = 2**16


def write_whole_lines() -> None:
    """Make Python and C write each line in one piece, as soon as it is complete.

    By default, C writes to a pipe in blocks that end anywhere, so lines of Python and Gloo would mix.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)
    library = ctypes.CDLL(None)
    # The C library of macOS has another name for stdout: leave its buffering unchanged.
    with contextlib.suppress(ValueError):
        stdout = ctypes.c_void_p.in_dll(library, "stdout")
        # Under PYTHONUNBUFFERED, C has a buffer of one byte and keeps it unless it gets another. C flushes
        # after Python has exited, so the buffer is never freed.
        library.malloc.restype = ctypes.c_void_p
        buffer = ctypes.c_void_p(library.malloc(ctypes.c_size_t(_SIZE)))
        library.setvbuf(stdout, buffer, _LINE_BUFFERED, ctypes.c_size_t(_SIZE))
