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

    Where Python is told not to buffer, it tells C the same: then a message of Gloo comes in eight pieces
    from several threads, and a ``print`` in two, so that the one stands inside the other.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    # A C library that names it otherwise, as that of macOS, is left as it is.
    with contextlib.suppress(ValueError):
        stdout = ctypes.c_void_p.in_dll(library, "stdout")
        # C writes the last of it after Python has ended: the buffer is never given back.
        buffer = ctypes.c_void_p(library.malloc(ctypes.c_size_t(_SIZE)))
        library.setvbuf(stdout, buffer, _LINE_BUFFERED, ctypes.c_size_t(_SIZE))
