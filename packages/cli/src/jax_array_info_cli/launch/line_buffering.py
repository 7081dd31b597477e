"""Line buffering of stdout and stderr, which Python shares with libraries in C and C++."""

from __future__ import annotations

import contextlib
import ctypes
import io
import sys

_LINE_BUFFERED = 1
_SIZE = 2**16


def write_whole_lines() -> None:
    """Let Python and C write each line in one piece, as soon as it is whole.

    Into a pipe C would write blocks that begin and end anywhere: Python's lines would stand inside those of
    Gloo.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)
    library = ctypes.CDLL(None)
    # A C library that names it otherwise, as that of macOS, is left as it is.
    with contextlib.suppress(ValueError):
        stdout = ctypes.c_void_p.in_dll(library, "stdout")
        # Under PYTHONUNBUFFERED, C has a buffer of one byte, and keeps it unless it gets another. It writes
        # the last of it after Python has ended: the buffer is never given back.
        library.malloc.restype = ctypes.c_void_p
        buffer = ctypes.c_void_p(library.malloc(ctypes.c_size_t(_SIZE)))
        library.setvbuf(stdout, buffer, _LINE_BUFFERED, ctypes.c_size_t(_SIZE))
