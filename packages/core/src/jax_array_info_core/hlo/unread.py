"""Lines of a program that could not be read, and whether they may send bytes to other devices."""

from __future__ import annotations

import re

# A type has spaces only if it is a tuple.
START = r"\s*+(ROOT )?%?([^\s=(),{}]++) = ((?!\()\S++|\(.*?\)(?= [a-z][\w-]*+\()) ([a-z][\w-]*+)\("
"""Pattern of an instruction up to its operands: ``ROOT``, its name, its type and its operation."""

_START = re.compile(START)
_SENDS = re.compile(r"all-|collective|reduce-scatter|send|recv|custom-call")
_GROUPS = re.compile(r"\b(?:replica_groups|source_target_pairs)=")
_ROW = re.compile(r'\d+ [{"]')
"""Start of a row of the tables of stack frames."""

_LONGEST = 300
"""Characters of a line."""
_LONGEST_TYPE = 100


def clipped(line: str) -> str:
    """Return the beginning of a line, with its operation after a long tuple of types."""
    line = line.strip()
    if len(line) > _LONGEST and (start := _START.match(line)) and start.end(3) > _LONGEST_TYPE:
        line = f"{line[:_LONGEST_TYPE]}...) {line[start.start(4) :]}"
    return line[:_LONGEST]


def may_send(line: str) -> bool:
    """Return whether an unread line may send bytes: a collective, a send, a recv or a custom call.

    Pallas kernels are custom calls, and can copy to other devices. A line whose operation is not known may
    send, too.
    """
    start = _START.match(line)
    if start is None:
        return _ROW.match(line) is None
    return bool(_SENDS.search(start[4]) or _GROUPS.search(line))
