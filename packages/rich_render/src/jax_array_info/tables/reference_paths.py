"""Reference paths in tables, folded if they differ in one index and wrapped between their steps."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from jax_array_info_core.reports.tree_paths import path_pieces
from jax_array_info_core.text import clipped, printable

_MIN_FOLDED = 3
"""Minimum number of paths, with consecutive indices, that are folded into one."""

_MOST_INDICES = 50
"""Indices of a path that are folded, the first ones."""

_QUOTED = r"'(?:[^'\\]++|\\.)*+'|\"(?:[^\"\\]++|\\.)*+\""
_INDEX = re.compile(rf"{_QUOTED}|\[(\d+)\]")
"""A key in quotes, or an index."""
_STEP = re.compile(rf"(?:\[(?:{_QUOTED}|[^\]'\"])*+\]?|\.?(?:<[^<>]*>|[^\s.\[<])+|\S)\s*|\s+")
"""A key in brackets, an attribute or a word, with the spaces after it."""


def folded_paths(paths: Iterable[str]) -> list[str]:
    """Return paths, with those that differ in one index folded: ``meter.hist['hidden'][0:20]``.

    A number in a key counts as an index, as in trees: ``params['layers_0-23']``.

    A folded path takes the place of its first path.
    """
    folded = list(dict.fromkeys(map(clipped, paths)))
    most = max((len(_indices(path)) for path in folded), default=0)
    for place in reversed(range(min(most, _MOST_INDICES))):
        folded = list(_folded_at(place, folded))
    return folded


def _indices(path: str) -> list[tuple[int, int]]:
    """Return beginning and end of each index, and of each number in a key."""
    found = []
    for match in _INDEX.finditer(path):
        if match[1]:
            found.append(match.span(1))
            continue
        end = match.start() + 1
        for number, piece in enumerate(path_pieces(match[0][1:-1])):
            start, end = end, end + len(piece)
            if number % 2:
                found.append((start, end))
    return found


def _folded_at(place: int, paths: Sequence[str]) -> Iterator[str]:
    """Yield paths, with those folded that have consecutive indices at a place."""
    runs: dict[tuple[str, str] | str, list[int]] = {}
    for path in paths:
        found = _indices(path)
        if len(found) <= place:
            runs[path] = []
        else:
            start, end = found[place]
            runs.setdefault((path[:start], path[end:]), []).append(int(path[start:end]))
    for around, numbers in runs.items():
        if isinstance(around, str):
            yield around
            continue
        before, after = around
        for _, group in groupby(enumerate(sorted(numbers)), key=lambda entry: entry[1] - entry[0]):
            run = [number for _, number in group]
            if len(run) < _MIN_FOLDED:
                yield from (f"{before}{number}{after}" for number in run)
            else:
                text = f"{run[0]}:{run[-1] + 1}" if before.endswith("[") else f"{run[0]}-{run[-1]}"
                yield before + text + after


class PathTable(Table):
    """A table that wraps its other columns before its last column, of paths, breaks inside a key."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for column, width in zip(self.columns, self._divided(console, options), strict=True):
            column.width = width
        yield from super().__rich_console__(console, options)

    def _divided(self, console: Console, options: ConsoleOptions) -> Sequence[int | None]:
        """Return the widths of the columns; Nones if all fits, or if a key has to break."""
        endless = options.update(width=sys.maxsize)

        def measured(renderable: RenderableType) -> Measurement:
            return Measurement.get(console, endless, renderable)

        for column in self.columns:
            column.width = None
        *others, paths = (measured(Group(str(column.header), *column.cells)) for column in self.columns)
        wanted = sum(other.maximum for other in others)
        needed = sum(other.minimum for other in others)
        room = options.max_width - (measured(self).maximum - wanted - paths.maximum)
        if wanted + paths.maximum <= room or needed + paths.minimum > room:
            return [None] * len(self.columns)
        widths = [other.maximum for other in others]
        of_paths = min(max(paths.minimum, room - wanted, room // 3), paths.maximum, room - needed)
        while sum(widths) > room - of_paths:
            spare = [now - other.minimum for now, other in zip(widths, others, strict=True)]
            widths[spare.index(max(spare))] -= 1
        return [*widths, of_paths]


class PathLines:
    """Lines of a cell that wrap between the steps of paths, and inside a key only if it is too wide alone."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = list(lines)

    def _steps(self, encoding: str) -> list[list[str]]:
        return [_STEP.findall(printable(line, encoding)) for line in self._lines]

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        lines = self._steps(options.encoding)
        least = max((cell_len(step.rstrip()) for steps in lines for step in steps), default=0)
        most = max((cell_len("".join(steps)) for steps in lines), default=0)
        return Measurement(least, most).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for steps in self._steps(options.encoding):
            line = ""
            for step in steps:
                if line and cell_len(line + step.rstrip()) > options.max_width:
                    yield Text(line.rstrip())
                    line = ""
                line += step
            yield Text(line.rstrip())
