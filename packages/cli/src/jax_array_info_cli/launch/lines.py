"""Lines of a process' output, without Gloo's messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

LONGEST = 2**22
"""Bytes of a line that are kept until its end comes; a longer one becomes several."""


def split_lines(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of a stream, without their ends, as they come: those of each chunk together.

    A carriage return ends a line as well, so that each state of a progress bar is a line of its own;
    what stands between two of them is no line where it is empty. A line longer than ``LONGEST`` is broken.
    """
    rest = bytearray()
    after_return = False
    for chunk in chunks:
        lines: list[bytes] = []
        for piece in (chunk.removeprefix(b"\n") if after_return else chunk).splitlines(keepends=True):
            rest += piece
            if piece.endswith((b"\r", b"\n")) or len(rest) >= LONGEST:
                if rest != b"\r":
                    lines.append(bytes(rest).rstrip(b"\r\n"))
                rest.clear()
        after_return = chunk.endswith(b"\r")
        yield lines
    if rest:
        yield [bytes(rest)]


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
        is_gloos = not others or others.isdigit()
        # Else the end of this line is the program's, unless the whole message was in it.
        if is_gloos or (line.startswith(others) and others != line):
            self._unfinished -= 1
        return None if is_gloos else others
