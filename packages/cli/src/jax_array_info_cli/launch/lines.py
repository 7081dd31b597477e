"""Lines of a process's output, without Gloo's messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

LONGEST = 2**22
"""Maximum bytes of a line. Longer lines are split."""


def split_lines(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines of a stream, a list per chunk, without line ends.

    A carriage return also ends a line, so each state of a progress bar is a separate line; an empty line
    that ends with one is dropped. Lines longer than ``LONGEST`` are split.
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
    """Removes Gloo's messages from a process's stdout.

    Gloo runs collectives between CPUs. For each group of devices it prints ``[Gloo] Rank 0 is connected to
    1 peer ranks. Expected number of connected peer ranks is : 1``. It writes the message in eight pieces
    from several threads at once, so messages may be interleaved.
    """

    def __init__(self) -> None:
        self._unfinished = 0

    def clean(self, line: bytes) -> bytes | None:
        """Return the program's part of a line, or None if all of it is Gloo's."""
        self._unfinished += line.count(_GLOO_BEGINNING)
        if not self._unfinished:
            return line
        others = _GLOO_PIECES.sub(b"", line)
        is_gloos = not others or others.isdigit()
        # Otherwise the end of this line is the program's, unless the line contained the entire message.
        if is_gloos or (line.startswith(others) and others != line):
            self._unfinished -= 1
        return None if is_gloos else others
