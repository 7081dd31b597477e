"""Paths of leaves as keys, and the numbers in them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from ..quantities import format_device_ids

_QUOTED = re.compile(r"('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")[^/]*", re.DOTALL)
_NUMBER = re.compile(r"(?<![^/._])(0|[1-9][0-9]{0,17})(?![^/._])")
_MOST_NUMBERS = 50
"""Numbers of a path that can be indices, the first ones."""
_LONGEST_QUOTED = 2000
"""Paths longer than this, in characters, are split at each ``/``: the search for quotes is quadratic."""
_LONGEST_RANGES = 24
"""Maximum length of several ranges of numbers in one path, in characters."""


def path_keys(path: str) -> tuple[str, ...]:
    """Return the keys of a path, as they are written: quoted keys stay in quotes.

    >>> path_keys("params/'a/b'/0")
    ('params', "'a/b'", '0')
    """
    if len(path) > _LONGEST_QUOTED or ("'" not in path and '"' not in path):
        return tuple(path.split("/"))
    keys, start = [], 0
    while start <= len(path):
        quoted = _QUOTED.match(path, start)
        stop = quoted.end() if quoted else path.find("/", start)
        stop = len(path) if stop < 0 else stop
        keys.append(path[start:stop])
        start = stop + 1
    return tuple(keys)


def path_pieces(path: str) -> tuple[str, ...]:
    """Return a path as text, number, text, number, …, text.

    A number is a whole key, or stands between ``.``, ``_`` and the ends of a key.

    >>> path_pieces("layers/0/block_12/w2")
    ('layers/', '0', '/block_', '12', '/w2')
    """
    return tuple(_NUMBER.split(path, _MOST_NUMBERS))


def number_ranges(numbers: Collection[int], least: int) -> Iterator[tuple[str, list[int]]]:
    """Yield numbers as text, such as ``0-31`` or ``0-62:2``, with the numbers that the text stands for.

    Irregular numbers become several texts, one for each run of consecutive numbers.

    Args:
        numbers: Different numbers.
        least: Smallest number of them to write as one text; fewer are written one by one.
    """
    ordered = sorted(numbers)
    if len(ordered) < least:
        runs = [[number] for number in ordered]
    else:
        runs = [ordered]
        if len(format_device_ids(ordered)) > _LONGEST_RANGES:
            runs = list(_consecutive(ordered))
    for run in runs:
        is_consecutive = run[-1] - run[0] == len(run) - 1 > 0
        yield f"{run[0]}-{run[-1]}" if is_consecutive else format_device_ids(run), run


def _consecutive(ordered: list[int]) -> Iterator[list[int]]:
    run: list[int] = []
    for number in ordered:
        if run and number != run[-1] + 1:
            yield run
            run = []
        run.append(number)
    if run:
        yield run
