"""The changes of shardings that can be tried, those first to which the reasons of collectives point."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..layouts.spec import Spec
from ..pages.folds import path_pieces
from ..reports.advice import RemedyKind
from ..reports.program import ProgramReport, ProgramValue

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
    is_differentiated: bool = True
    """Whether there may be a gradient: a constraint then pins that of its cotangent, too."""


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


def specs(shape: Sequence[int], sizes: Mapping[str, int]) -> Iterator[Axes]:
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
        if not any(
            length % math.prod(sizes[name] for name in own) for length, own in zip(shape, axes, strict=True)
        ):
            yield axes


def moves(one: Axes, other: Axes, names: Iterable[str]) -> int:
    """Return the number of mesh axes that shard another dimension."""
    return sum(_place(one, name) != _place(other, name) for name in names)


def _place(axes: Axes, name: str) -> int:
    return next((dim for dim, own in enumerate(axes) if name in own), -1)


def _parts(axes: Axes, sizes: Mapping[str, int]) -> int:
    return math.prod(sizes.get(name, 1) for own in axes for name in own)


def weights_of(report: ProgramReport) -> Weights:
    """Return the bytes that a program sends, by the lines and the arguments that its reasons name."""
    lines: dict[tuple[str, int], int] = defaultdict(int)
    paths: dict[str, int] = defaultdict(int)
    total = 0
    for one in report.collectives:
        nbytes = one.total_nbytes or one.sent_nbytes
        total += nbytes
        own, named = {one.origin}, {one.path}
        for because in one.because:
            own.add(because.origin)
            for operand in because.operands:
                own |= {operand.axis_origin.origin, *operand.axis_origin.via}
                named |= {operand.name, operand.axis_origin.path}
        for place in {(line.file, line.line) for line in own if line is not None}:
            lines[place] += nbytes
        for path in named - {None}:
            paths[str(path)] += nbytes
    for file, line in [*lines]:  # an operand that another line makes: "max of step.py:19"
        lines[file, line] += sum(
            nbytes for path, nbytes in paths.items() if path.endswith(f" of {_name(file)}:{line}")
        )
    return Weights(lines, paths, total)


def _name(file: str) -> str:
    return file.replace("\\", "/").rpartition("/")[2]


def edits_in_order(
    report: ProgramReport, values: Sequence[SiteValue], weights: Weights, *, has_places: bool = True
) -> list[Edit]:
    """Return the changes to try: of each place the first, then of each the second, the most bytes first.

    The first of a place are those that shard the most, and move the fewest mesh axes.

    Args:
        report: The program.
        values: The expressions of its source that can have a constraint.
        weights: The bytes that it sends, by what the reasons point to.
        has_places: Whether arguments and outputs can change, too.
    """
    sizes = {name: size for name, size in report.mesh.shape.items() if size > 1} if report.mesh else {}
    queues = [*_constraints(values, weights, sizes)]
    if has_places:
        queues += [*_arguments(report, weights, sizes), *_outputs(report, weights, sizes)]
    queues.sort(key=lambda queue: -queue[0])
    rounds = itertools.zip_longest(*(edits for _, edits in queues))
    return [*dict.fromkeys(edit for each in rounds for edit in each if edit is not None)]


_Queue = tuple[int, list[Edit]]


def _constraints(
    values: Sequence[SiteValue], weights: Weights, sizes: Mapping[str, int]
) -> Iterator[_Queue]:
    """Yield the constraints on each expression of a line that the reasons name, with its bytes."""
    for value in values:
        weight = weights.lines.get((value.site.file, value.site.line), 0)
        if not weight or value.nbytes < LEAST_NBYTES:
            continue
        found = []
        for axes in specs(value.shape, sizes):
            moved = min((moves(own, axes, sizes) for own in value.present), default=1)
            if (not value.is_differentiated) <= moved <= _MOST_MOVES:
                found.append((-_parts(axes, sizes), moved, Edit("constraint", axes, site=value.site)))
        if found:
            yield weight, [edit for *_, edit in sorted(found, key=lambda one: one[:2])]


def _axes(value: ProgramValue) -> Axes:
    """Return the mesh axes of each dimension of an argument or an output."""
    spec = value.got.spec if value.got is not None else None
    own = spec.axes if spec is not None else ()
    return (*own, *[()] * (len(value.shape) - len(own)))


def _arguments(report: ProgramReport, weights: Weights, sizes: Mapping[str, int]) -> Iterator[_Queue]:
    """Yield the other shardings of arguments, those of equal layers together."""
    groups: dict[tuple[object, ...], list[ProgramValue]] = defaultdict(list)
    shapes: dict[tuple[object, ...], list[ProgramValue]] = defaultdict(list)
    for one in report.arguments:
        if one.is_pruned or not one.shape or _whole_nbytes(one) < LEAST_NBYTES:
            continue
        groups[path_pieces(one.path)[::2], one.shape, one.dtype, _axes(one)].append(one)
        shapes[one.shape, one.dtype].append(one)
    few = len(groups) <= 4
    for found in groups.values():
        paths, own = tuple(one.path for one in found), _axes(found[0])
        weight = max(weights.paths.get(path, 0) for path in paths)
        if not weight and not few:
            continue
        changed = [
            (moves(own, axes, sizes), -_parts(axes, sizes), Edit("argument", axes, arguments=paths))
            for axes in specs(found[0].shape, sizes)
            if 0 < moves(own, axes, sizes) <= _MOST_MOVES and _parts(axes, sizes) >= _parts(own, sizes)
        ]
        if changed:
            yield weight, [edit for *_, edit in sorted(changed, key=lambda one: one[:2])]
    for found in shapes.values():  # such as the moments of an optimizer, and the parameters
        edits = []
        for axes in dict.fromkeys(map(_axes, found)) if len({*map(_axes, found)}) > 1 else ():
            paths = tuple(one.path for one in found if _axes(one) != axes)
            outputs = tuple(
                one.path
                for one in report.outputs
                if (one.shape, one.dtype) == (found[0].shape, found[0].dtype)
            )
            edits += [
                Edit("argument", axes, arguments=paths),
                Edit("argument", axes, arguments=paths, outputs=outputs),
            ]
        if edits:
            yield weights.total, edits


def _outputs(report: ProgramReport, weights: Weights, sizes: Mapping[str, int]) -> Iterator[_Queue]:
    """Yield the shardings of outputs, those of equal layers together."""
    groups: dict[tuple[object, ...], list[ProgramValue]] = defaultdict(list)
    for one in report.outputs:
        if one.shape and _whole_nbytes(one) >= LEAST_NBYTES:
            groups[path_pieces(one.path)[::2], one.shape, one.dtype, _axes(one)].append(one)
    for found in groups.values():
        paths = tuple(one.path for one in found)
        edits = sorted(
            (-_parts(axes, sizes), Edit("output", axes, outputs=paths))
            for axes in specs(found[0].shape, sizes)
            if axes != _axes(found[0])
        )
        if edits:
            yield weights.total // 4, [edit for _, edit in edits]


def _whole_nbytes(value: ProgramValue) -> int:
    return math.prod(value.shape) * (value.bits or 8) // 8
