"""The first line of a program: its name, the number of devices, and donated arguments."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from ..layouts.layout import MAX_DEVICES
from .attributes import read_attributes
from .module import Alias

_HEADER = re.compile(r"HloModule ([^\s,]+)((?s:.*))")
_ALIAS = re.compile(r"\{([\d, ]*)\}: \((\d{1,9}), \{([\d, ]*)\}(?:, [\w-]+)?\)")
_DONOR = re.compile(r"\((\d{1,9}), \{([\d, ]*)\}\)")
_INDEX = re.compile(r"\d{0,9}")


class Header(NamedTuple):
    """The first line of a program."""

    name: str
    """Name of the module."""

    aliases: tuple[Alias, ...]
    """Outputs that reuse the memory of an argument."""

    buffer_donors: tuple[int, ...]
    """Parameters that are donated without a fixed output."""

    device_count: int
    """``num_partitions`` times ``replica_count``."""

    is_understood: bool
    """Whether all of the line that matters was read."""


def read_header(line: str) -> Header | None:
    """Return the facts of the first line; None if a line is not the first one of a program."""
    match = _HEADER.fullmatch(line)
    if match is None:
        return None
    attributes, is_understood = read_attributes(match[2])
    aliases: list[Alias] = []
    rows, is_whole = _rows(_ALIAS, attributes.get("input_output_alias", "{}"))
    for output, number, index in rows:
        place, parameter = _single(output), _parameter(number, index)
        if place is None or parameter is None:
            is_whole = False
        else:
            aliases.append(Alias(place, parameter))
    donated, are_whole = _rows(_DONOR, attributes.get("buffer_donor", "{}"))
    donors = [_parameter(number, index) for number, index in donated]
    counts = [attributes.get(name, "1") for name in ("num_partitions", "replica_count")]
    count = math.prod(int(text) if text.isdecimal() and len(text) < 10 else 0 for text in counts)
    is_count = 0 < count <= MAX_DEVICES
    return Header(
        match[1],
        tuple(aliases),
        tuple(one for one in donors if one is not None),
        count if is_count else 1,
        is_understood and is_whole and are_whole and None not in donors and is_count,
    )


def _rows(pattern: re.Pattern[str], text: str) -> tuple[list[tuple[str, ...]], bool]:
    """Return the elements of a list in braces, and whether there is nothing else in it."""
    found = [match.groups() for match in pattern.finditer(text)]
    return found, not pattern.sub("", text).strip("{}, ")


def _single(index: str) -> int | None:
    """Return the place in a flat tuple: 0 for a result that is not a tuple. None for nested tuples."""
    return int(index or 0) if _INDEX.fullmatch(index) else None


def _parameter(number: str, index: str) -> int | None:
    """Return the number of a parameter.

    On TPU, JAX passes thousands of arguments as one tuple: then it is the place in this tuple.
    """
    if not index:
        return int(number)
    return _single(index) if number == "0" else None
