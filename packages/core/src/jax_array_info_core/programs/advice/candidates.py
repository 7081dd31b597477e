"""The changes of shardings that can be tried, those first to which the reasons of collectives point."""

from __future__ import annotations

import itertools
import math
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from ...base.grouping import by_key
from ...facts.pages.folds import path_pieces
from ...facts.reports.advice import RemedyKind
from ...facts.reports.array import Dim
from ...facts.reports.collectives import Collective
from ...facts.reports.left_out import Parts
from ...facts.reports.origin import SourceLine
from ...facts.reports.program import ProgramReport
from ...facts.reports.program_values import (
    ProgramValue,
)
from ...geometry.layouts.spec import Spec

Axes = tuple[tuple[str, ...], ...]
"""Mesh axes of each dimension."""

LEAST_NBYTES = 2**14
"""Bytes below which the sharding of a value is not changed."""
_MOST_MOVES = 2
"""Mesh axes that a change moves to another dimension, or adds, or takes away."""


class Site(NamedTuple):
    """An expression of the user's source whose value is an array of the program."""

    file: str
    """Path of the file."""
    line: int
    """Number of its first line, from 1."""
    column: int
    """Column at which it begins, from 0, in UTF-8 bytes as Python counts."""
    end_line: int
    """Number of its last line."""
    end_column: int
    """Column after its end, in UTF-8 bytes."""

    @property
    def size(self) -> tuple[int, int]:
        """Lines and bytes from its beginning to its end."""
        return self.end_line - self.line, self.end_column - self.column


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteValue:
    """The value of an expression."""

    site: Site
    shape: tuple[int, ...]
    """Shape as the expression has it: without the dimension of a ``vmap``."""
    nbytes: int
    """Bytes of the whole value."""
    present: tuple[Axes, ...] = ()
    """Its shardings, those of equal layers; empty if they are not known."""


class Edit(NamedTuple):
    """A change of shardings. It can be pickled."""

    kind: RemedyKind
    axes: Axes
    """Mesh axes of each dimension of what changes."""
    site: Site | None = None
    """The expression of a constraint."""
    arguments: tuple[str, ...] = ()
    """Paths of the arguments that change."""
    outputs: tuple[str, ...] = ()
    """Paths of the outputs that change."""

    @property
    def spec(self) -> Spec:
        """The sharding."""
        return Spec(self.axes)


class Weights(NamedTuple):
    """Bytes that the program sends, by what its collectives' reasons point to."""

    lines: Mapping[tuple[str, int], int]
    """By file and line."""
    paths: Mapping[str, int]
    """By path of an argument."""
    total: int
    """All of them."""


def specs(shape: Sequence[Dim], sizes: Mapping[str, int]) -> Iterator[Axes]:
    """Yield the shardings of a shape that divide it evenly: each mesh axis shards one dimension, or none.

    >>> [*specs((8, 3), {"x": 4})]
    [((), ()), (('x',), ())]
    """
    names = [name for name, size in sizes.items() if size > 1]
    for places in itertools.product(range(-1, len(shape)), repeat=len(names)):
        axes = tuple(
            tuple(name for name, place in zip(names, places, strict=True) if place == dim)
            for dim in range(len(shape))
        )
        counts = [math.prod(sizes[name] for name in dim_axes) for dim_axes in axes]
        if all(isinstance(size, int) and not size % count for size, count in zip(shape, counts, strict=True)):
            yield axes


def moves(before: Axes, after: Axes, names: Iterable[str]) -> int:
    """Return the number of mesh axes that shard another dimension."""
    return sum(_dim(before, name) != _dim(after, name) for name in names)


def _dim(axes: Axes, name: str) -> int:
    return next((dim for dim, names in enumerate(axes) if name in names), -1)


def _parts(axes: Axes, sizes: Mapping[str, int]) -> int:
    return math.prod(sizes.get(name, 1) for names in axes for name in names)


def pointed_at(collective: Collective) -> tuple[set[tuple[str, int]], set[str]]:
    """Return what the reasons of a collective name: lines, by file and number, and paths of arguments.

    A name such as ``max of step.py:19`` is that of an operand, which a line makes.
    """
    operands = [operand for because in collective.because for operand in because.operands]
    lines: list[SourceLine | None] = [collective.origin, *(because.origin for because in collective.because)]
    names = [collective.path]
    for operand in operands:
        lines += [operand.axis_origin.origin, *operand.axis_origin.via]
        names += [operand.name, operand.axis_origin.path]
    return {(line.file, line.line) for line in lines if line is not None}, {name for name in names if name}


def weights_of(report: ProgramReport) -> Weights:
    """Return the bytes that a program sends, by the lines and the arguments that its reasons name."""
    lines: Counter[tuple[str, int]] = Counter()
    paths: Counter[str] = Counter()
    total = 0
    for collective in report.collectives or ():
        nbytes = collective.total_nbytes or collective.sent_nbytes
        named_lines, named_paths = pointed_at(collective)
        lines.update(dict.fromkeys(named_lines, nbytes))
        paths.update(dict.fromkeys(named_paths, nbytes))
        total += nbytes
    for file, line in [*lines]:
        end = f" of {posixpath.basename(file)}:{line}"
        lines[file, line] += sum(nbytes for path, nbytes in paths.items() if path.endswith(end))
    return Weights(lines, paths, total)


def edits_in_order(
    report: ProgramReport,
    values: Sequence[SiteValue],
    weights: Weights,
    *,
    has_places: bool = True,
    parts: Parts | None = None,
) -> list[Edit]:
    """Return the changes to try: of each place the first, then of each the second, the most bytes first.

    The first of a place are those that move the fewest mesh axes, and of these, that shard the most.

    Args:
        report: The program.
        values: The expressions of its source that can have a constraint.
        weights: The bytes that it sends, by what the reasons point to.
        has_places: Whether arguments and outputs can change, too.
        parts: What keeps the kinds of changes that fail.
    """
    parts = Parts() if parts is None else parts
    sizes = {name: size for name, size in report.mesh.shape.items() if size > 1} if report.mesh else {}
    queues = parts.made("constraints to try", lambda: [*_constraints(values, weights, sizes)], [])
    if has_places:
        given = "shardings of arguments to try", lambda: [*_arguments(report, weights, sizes)]
        returned = "shardings of outputs to try", lambda: [*_outputs(report, weights, sizes)]
        queues += parts.made(*given, []) + parts.made(*returned, [])
    queues.sort(key=lambda queue: -queue[0])
    rounds = itertools.zip_longest(*(edits for _, edits in queues))
    return [*dict.fromkeys(edit for edits in rounds for edit in edits if edit is not None)]


_rank = itemgetter(0, 1)
_Queue = tuple[int, list[Edit]]
"""Bytes that may be saved at a place, and its changes in the order of the tries."""


def _constraints(values: Sequence[SiteValue], weights: Weights, sizes: Mapping[str, int]) -> Iterator[_Queue]:
    """Yield the constraints on each expression of a line that the reasons name.

    One that is as the sharding is can help, too: it is that of the gradient as well.
    """
    large = [value for value in values if value.nbytes >= LEAST_NBYTES]
    lines = by_key(((value.site.file, value.site.line, value.shape), value) for value in large)
    for (file, line, _), of_line in lines.items():
        weight = weights.lines.get((file, line), 0)
        edits = []
        for value in sorted(of_line, key=lambda value: value.site.size, reverse=True) if weight else ():
            ranked = []
            for axes in specs(value.shape, sizes):
                moved = min((moves(present, axes, sizes) for present in value.present), default=1)
                if moved <= _MOST_MOVES:
                    ranked.append((moved or 1.5, -_parts(axes, sizes), axes))
            ranked.sort(key=_rank)
            edits += [Edit("constraint", axes, site=value.site) for *_, axes in ranked]
        yield weight, edits


def _axes(value: ProgramValue) -> Axes:
    """Return the mesh axes of each dimension of an argument or an output."""
    spec = value.got.spec if value.got is not None else None
    axes = spec.axes if spec is not None else ()
    return (*axes, *[()] * (len(value.shape) - len(axes)))


def _alike(values: Iterable[ProgramValue]) -> Iterator[list[ProgramValue]]:
    """Yield values that are large enough, those together that differ in the numbers in their paths alone."""
    large = [value for value in values if not value.is_pruned and _whole_nbytes(value) >= LEAST_NBYTES]
    keys = ((path_pieces(value.path)[::2], value.shape, value.dtype, _axes(value)) for value in large)
    yield from by_key(zip(keys, large, strict=True)).values()


def _arguments(report: ProgramReport, weights: Weights, sizes: Mapping[str, int]) -> Iterator[_Queue]:
    """Yield the other shardings of arguments: of equal layers together, and of those of one shape."""
    groups = [*_alike(report.arguments)]
    for group in groups:
        paths, present = tuple(value.path for value in group), _axes(group[0])
        ranked = [
            (moved, -_parts(axes, sizes), axes)
            for axes in specs(group[0].shape, sizes)
            if 0 < (moved := moves(present, axes, sizes)) <= _MOST_MOVES
        ]
        weight = max(weights.paths.get(path, 0) for path in paths)
        yield weight, [Edit("argument", axes, arguments=paths) for *_, axes in sorted(ranked, key=_rank)]
    shapes = by_key(((value.shape, value.dtype), value) for group in groups for value in group)
    for shape, arguments in shapes.items():  # such as the moments of an optimizer, and the parameters
        different = dict.fromkeys(map(_axes, arguments))
        outputs = tuple(value.path for value in report.outputs if (value.shape, value.dtype) == shape)
        for axes in different if len(different) > 1 else ():
            paths = tuple(value.path for value in arguments if _axes(value) != axes)
            yield (
                weights.total,
                [Edit("argument", axes, arguments=paths, outputs=changed) for changed in ((), outputs)],
            )


def _outputs(report: ProgramReport, weights: Weights, sizes: Mapping[str, int]) -> Iterator[_Queue]:
    """Yield the shardings of outputs that are not requested, those of equal layers together."""
    for group in _alike(value for value in report.outputs if value.is_free):
        paths, present = tuple(value.path for value in group), _axes(group[0])
        ranked = [
            (-_parts(axes, sizes), moves(present, axes, sizes), axes)
            for axes in specs(group[0].shape, sizes)
            if axes != present
        ]
        edits = [Edit("output", axes, outputs=paths) for *_, axes in sorted(ranked, key=_rank)]
        yield weights.total // 4, edits


def _whole_nbytes(value: ProgramValue) -> int:
    """Return the bytes of a whole array; 0 for a scalar, and if a size is not a number."""
    return (value.shape and value.nbytes_of(value.shape)) or 0
