"""Lines of a process' output, without Gloo's messages."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import IO

LONGEST = 2**22
"""Bytes of a line that are kept until its end comes; a longer one becomes several."""


def split_lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream as they come, without their ends.

    A carriage return ends a line as well, so that each state of a progress bar is a line of its own;
    what stands between two of them is no line where it is empty. A line longer than ``LONGEST`` is broken.
    """
    text = io.TextIOWrapper(stream, encoding="latin-1", newline="")  # a character for each byte
    while line := text.readline(LONGEST):
        if line != "\r":
            yield line.rstrip("\r\n").encode("latin-1")


_GLOO_BEGINNING = b"[Gloo] Rank "
_GLOO_PIECES = re.compile(
    rb"(?:(?:\[Gloo\] Rank | is connected to | peer ranks\. |"
    rb"Expected number of connected peer ranks is : )\d*)+"
)


class GlooFilter:
    """Takes Gloo's messages out of a process' stdout.

    Gloo, which carries collectives between CPUs, says there for each group of devices ``[Gloo] Rank 0
    is connected to 1 peer ranks. Expected number of connected peer ranks is : 1``. It writes that in
    eight pieces, from several threads at once, so pieces of one message may stand inside another one.
    """

    def __init__(self) -> None:
        self._unfinished = 0

    def clean(self, line: bytes) -> bytes | None:
        """Return what is the program's of a line, None where all of it is Gloo's."""
        self._unfinished += line.count(_GLOO_BEGINNING)
        if not self._unfinished:
            return line
        others = _GLOO_PIECES.sub(b"", line)
        if others and not others.isdigit():
            # The end of this line is the program's, unless the whole message was in it.
            if line.startswith(others) and others != line:
                self._unfinished -= 1
            return others
        self._unfinished -= 1
        return None
