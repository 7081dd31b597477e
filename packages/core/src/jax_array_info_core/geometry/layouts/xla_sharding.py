"""Shardings in XLA's notation, with tiles or with a named mesh."""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...base.errors import LayoutError
from ...base.quantities import format_number
from .layout import MAX_AXES, MAX_DEVICES
from .notation import Scanner


@dataclass(frozen=True, slots=True)
class XlaSharding:
    """A sharding in XLA's notation, such as ``{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}``."""

    kind: Literal["replicated", "manual", "unreduced", "unknown", "maximal", "tiled"]
    """Form of the sharding. ``maximal``: one device holds the whole array. ``unreduced``: each device holds a
    partial sum of the whole array. ``tiled``: each device holds one tile, and several devices may hold
    replicas of it."""

    tiles: tuple[int, ...] = ()
    """Number of tiles along each array axis, followed by the sizes of the subgroups."""

    subgroups: tuple[str, ...] = ()
    """Types of the last dimensions of ``tiles``, which are not array axes: ``replicated``, ``manual``,
    ``unreduced`` or ``maximal``."""

    iota: tuple[int, ...] = ()
    """Shape into which the devices 0…n−1 are arranged. ``permutation`` transposes this arrangement, and the
    devices are assigned to the tiles in the resulting order. Empty if the devices are in ``listed``."""

    permutation: tuple[int, ...] = ()
    """Permutation of the axes of ``iota``; empty for the identity."""

    listed: tuple[int, ...] = ()
    """Device of each tile, in version 1 of the notation; empty if the devices are given by ``iota``."""

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of shards along each array axis."""
        return self.tiles[: len(self.tiles) - len(self.subgroups)]

    @property
    def device_ids(self) -> NDArray[np.int64]:
        """Device ids, of shape ``(*counts, replicas)`` for a tiled sharding.

        For a maximal sharding, the array has a single id; for all others, it is empty.

        Raises:
            LayoutError: (a ValueError) If there are more than 1,048,576 devices.
        """
        if not self.tiles:
            return np.array(self.listed, np.int64)
        if self.listed:
            return np.array(self.listed, np.int64).reshape([*self.counts, -1])
        if math.prod(self.iota) > MAX_DEVICES:
            raise LayoutError(
                f"{format_number(math.prod(self.iota))} devices exceed the limit of {MAX_DEVICES}"
            )
        return arranged(self.iota, self.permutation).reshape([*self.counts, -1])

    @property
    def partial_sums(self) -> int:
        """Number of partial sums of each tile; 1 for a sharding that is not unreduced."""
        sizes = self.tiles[len(self.counts) :]
        return math.prod(
            size for size, kind in zip(sizes, self.subgroups, strict=True) if kind == "unreduced"
        )

    @property
    def holders(self) -> NDArray[np.int64]:
        """Device ids of a tiled sharding, of shape ``(*counts, partial_sums * replicas)``."""
        axes = len(self.counts)
        last = sorted(range(axes, len(self.tiles)), key=lambda dim: self.subgroups[dim - axes] != "unreduced")
        ids = self.device_ids.reshape(self.tiles).transpose([*range(axes), *last])
        return ids.reshape([*self.counts, -1])

    def leading(self, ndim: int) -> XlaSharding:
        """Return the sharding of the first ``ndim`` axes, or this sharding if a later axis is sharded."""
        extra = self.counts[ndim:]
        if not extra or set(extra) != {1}:
            return self
        return replace(self, tiles=(*self.counts[:ndim], *self.tiles[len(self.counts) :]))

    def __str__(self) -> str:
        if self.kind == "maximal":
            return f"{{maximal device={self.listed[0]}}}"
        if self.kind != "tiled":
            return f"{{{self.kind}}}"
        devices = commas(self.listed) if self.listed else f"<=[{commas(self.iota)}]"
        if self.permutation:
            devices += f"T({commas(self.permutation)})"
        last = ""
        if self.subgroups == ("replicated",):
            last = " last_tile_dim_replicate"
        elif self.subgroups:
            last = f" last_tile_dims={{{', '.join(self.subgroups)}}}"
        return f"{{devices=[{commas(self.tiles)}]{devices}{last}}}"


def commas(numbers: tuple[int, ...]) -> str:
    """Return numbers as text: ``4,2``."""
    return ",".join(map(str, numbers))


def arranged(dims: Sequence[int], permutation: Sequence[int]) -> NDArray[np.int64]:
    """Return the devices 0…n−1 in an arrangement such as ``[4,2]T(1,0)``; no permutation is the identity."""
    ids = np.arange(math.prod(dims)).reshape(dims)
    return ids.transpose(permutation) if permutation else ids


# XLA writes names in quotes without escapes. A name ends before a quote, "=" and the size of the axis.
_MESH_AXIS = r"(?P<quote>['\"]?).+?(?P=quote)=(?=\s*\d+\s*[,\]])"
_GROUP = r",\s*(?:manual|unreduced|replicated)\s*="


class NamedMesh(NamedTuple):
    """The mesh of a sharding: its axes, and the order of its devices."""

    sizes: dict[str, int]
    """Number of devices along each axis by name."""

    dims: tuple[int, ...]
    """Shape into which the devices 0…n−1 are arranged; ``permutation`` transposes the arrangement."""

    permutation: tuple[int, ...]
    """Permutation of the axes of ``dims``."""

    listed: tuple[int, ...] = ()
    """The devices, if they are listed instead."""

    @property
    def is_in_order(self) -> bool:
        """Whether the devices are 0…n−1."""
        return not self.listed and len(self.dims) == 1

    @property
    def device_ids(self) -> NDArray[np.int64]:
        """The devices, flat."""
        return np.array(self.listed) if self.listed else arranged(self.dims, self.permutation).ravel()


class MeshPart(NamedTuple):
    """A mesh axis or a part of it: of x of size 8, ``'x':(2)2`` is the middle one of sizes 2, 2 and 2."""

    axis: str
    before: int
    """Product of the sizes of the more significant parts."""
    after: int
    """``before`` times the size of the part."""
    position: int
    """Position in the text."""


def read_named_sharding(scanner: Scanner) -> XlaSharding | None:
    """Read a sharding with named mesh axes, without the outer braces. Return None if the form is another.

    Raises:
        NotationError: (a ValueError) If the sharding is not valid.
    """
    if scanner.take(r"(?:maximal_mesh|single_device)\s*\[\s*device_id\s*="):
        device = scanner.number()
        scanner.expect(r"\]", "']'")
        return XlaSharding("maximal", listed=(device,))
    mesh = read_mesh(scanner)
    if mesh is None:
        return None
    scanner.expect(",", "','")
    for kind in ("replicated", "manual", "unreduced"):
        if scanner.take(rf"{kind}\b(?!\s*=)"):
            return XlaSharding(kind)
    scanner.expect(r"\[", "'[', 'replicated', 'manual' or 'unreduced'")

    def dimension() -> tuple[MeshPart, ...]:
        scanner.expect(r"\{", "'{'")
        return read_parts(scanner, mesh)

    dimensions = scanner.listed(dimension, "]")
    groups: dict[str, tuple[MeshPart, ...]] = {}
    while group := scanner.take(_GROUP):
        # Another reduction than a sum is named: unreduced=max{'x'}.
        scanner.expect(r"(?:[a-z]+\s*)?\{", "'{'")
        groups[re.sub(r"\W", "", group)] = read_parts(scanner, mesh)
    return _sharding(scanner, mesh, dimensions, groups)


def read_mesh(scanner: Scanner) -> NamedMesh | None:
    """Read a mesh and the order of its devices; None if the text does not begin with a mesh.

    Raises:
        NotationError: (a ValueError) If the mesh is not valid.
    """
    if scanner.take(r"mesh\s*\[") is None:
        return None
    sizes: dict[str, int] = {}

    def axis() -> None:
        before = scanner.position
        text = scanner.expect(_MESH_AXIS, "the name of a mesh axis, '=' and its size")[:-1]
        name = text[1:-1] if text[0] in "'\"" else text
        if name in sizes:
            scanner.fail(f"mesh axis '{name}' is listed twice", before)
        sizes[name] = scanner.number(least=1)

    scanner.listed(axis, "]")
    count = math.prod(sizes.values())
    if scanner.take(r",\s*device_ids\s*=\s*\(") is None:
        return NamedMesh(sizes, (count,), (0,))
    start = scanner.position
    if scanner.take(r"\["):
        dims, permutation = read_arrangement(scanner)
        if math.prod(dims) != count:
            scanner.fail(
                f"{format_number(math.prod(dims))} devices in a mesh of {format_number(count)}", start
            )
        scanner.expect(r"\)", "')'")
        return NamedMesh(sizes, dims, permutation or tuple(range(len(dims))))
    listed = scanner.listed(scanner.number, ")")
    if len(listed) != count or sorted(listed) != list(range(count)):
        scanner.fail(f"expected a permutation of the devices 0 to {format_number(count - 1)}", start)
    return NamedMesh(sizes, (count,), (0,), listed)


def read_arrangement(scanner: Scanner) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Read an arrangement of devices after its bracket: of ``[4,2]T(1,0)``, (4, 2) and (1, 0)."""
    dims = scanner.listed(lambda: scanner.number(least=1), "]")
    permutation: tuple[int, ...] = ()
    if scanner.take(r"T\s*\("):
        at = scanner.position
        permutation = scanner.listed(scanner.number, ")")
        if sorted(permutation) != list(range(len(dims))):
            scanner.fail(f"expected a permutation of the {len(dims)} axes of [{commas(dims)}]", at)
    return dims, permutation


def read_parts(scanner: Scanner, mesh: NamedMesh) -> tuple[MeshPart, ...]:
    """Read mesh axes and parts of them, from behind the opening brace.

    Raises:
        NotationError: If one is not part of the mesh.
    """
    # The longest name first: one name may be the beginning of another.
    names = "|".join(re.escape(name) for name in sorted(mesh.sizes, key=len, reverse=True))
    reference = rf"(?P<quote>['\"]?)(?:{names})(?P=quote)(?=\s*[:,}}])"
    parts = scanner.listed(lambda: _part(scanner, mesh, reference), "}")
    return tuple(part for part in parts if part is not None)


def _part(scanner: Scanner, mesh: NamedMesh, reference: str) -> MeshPart | None:
    """Read a mesh axis or a part of it; None for ``?``, which XLA prints where it may shard further."""
    if scanner.take(r"\?"):
        return None
    start = scanner.position
    text = (
        scanner.expect(reference, f"a mesh axis: {', '.join(mesh.sizes)}")
        if mesh.sizes
        else scanner.fail("the mesh has no axes")
    )
    name = text if text in mesh.sizes else text[1:-1]
    size = mesh.sizes[name]
    if scanner.take(r":\s*\(") is None:
        return MeshPart(name, 1, size, start)
    before = scanner.number(least=1)
    scanner.expect(r"\)", "')'")
    after = before * scanner.number(least=1)
    if size % after:
        scanner.fail(f"this part does not divide mesh axis '{name}' of size {format_number(size)}", start)
    return MeshPart(name, before, after, start)


class DividedMesh:
    """A mesh whose axes are divided where one of some parts begins or ends."""

    def __init__(self, scanner: Scanner, mesh: NamedMesh, parts: Sequence[MeshPart]) -> None:
        self.pieces: dict[tuple[str, int], int] = {}
        """Size of each piece, by its axis and where it begins, in the order of the mesh."""
        self.used: set[tuple[str, int]] = set()
        self._scanner = scanner
        for name, size in mesh.sizes.items():
            ends = {1, size}.union(*((part.before, part.after) for part in parts if part.axis == name))
            for before, after in itertools.pairwise(sorted(ends)):
                if after % before:
                    last = max(part.position for part in parts if part.axis == name)
                    scanner.fail(f"parts of mesh axis '{name}' overlap", last)
                self.pieces[name, before] = after // before

    def taken(self, parts: Sequence[MeshPart]) -> list[tuple[str, int]]:
        """Return the pieces of some parts, which no other parts may have."""
        taken: list[tuple[str, int]] = []
        for part in parts:
            pieces = [
                key for key in self.pieces if key[0] == part.axis and part.before <= key[1] < part.after
            ]
            if self.used.intersection(pieces):
                self._scanner.fail(f"mesh axis '{part.axis}' is used twice", part.position)
            self.used.update(pieces)
            taken += pieces
        return taken


def _sharding(
    scanner: Scanner,
    mesh: NamedMesh,
    dimensions: Sequence[tuple[MeshPart, ...]],
    groups: dict[str, tuple[MeshPart, ...]],
) -> XlaSharding:
    """Return the sharding in the tiled form."""
    parts = [part for listed in (*dimensions, *groups.values()) for part in listed]
    divided = DividedMesh(scanner, mesh, parts)
    pieces = divided.pieces
    tiled = [divided.taken(listed) for listed in dimensions]
    sets = {group: set(divided.taken(listed)) for group, listed in groups.items()}
    # The axes that are not mentioned hold replicas.
    sets["replicated"] = sets.get("replicated", set()) | (pieces.keys() - divided.used)
    # Within a subgroup, the order of the axes has no meaning.
    grouped = {
        group: [key for key in pieces if key in sets[group]]
        for group in ("manual", "unreduced", "replicated")
        if sets.get(group)
    }
    if not any(tiled) and len(grouped) < 2:
        only = next(iter(grouped), "replicated")
        if only != "unreduced":
            return XlaSharding("manual" if only == "manual" else "replicated")
    order = [key for keys in (*tiled, *grouped.values()) for key in keys]
    tiles = tuple(math.prod(pieces[key] for key in keys) for keys in (*tiled, *grouped.values()))
    if max(len(tiles), len(pieces), len(mesh.dims)) > MAX_AXES:
        scanner.fail(f"more than {MAX_AXES} array axes or mesh axes")
    numbers = {key: number for number, key in enumerate(pieces)}
    placed = _placed(mesh, list(pieces.values()), [numbers[key] for key in order])
    if placed is None:
        scanner.fail(f"more than {MAX_DEVICES} devices")
    return XlaSharding("tiled", tiles, tuple(grouped), *placed)


def _placed(
    mesh: NamedMesh, sizes: Sequence[int], order: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
    """Return ``iota``, ``permutation`` and ``listed`` of the tiled form; None for too many devices.

    Args:
        mesh: The mesh.
        sizes: Sizes of the pieces of the mesh axes, in the order of the mesh.
        order: The pieces in the order of the tiles.
    """
    arranged = [mesh.dims[axis] for axis in mesh.permutation]
    shared = None if mesh.listed else _refined(arranged, sizes)
    if shared is None:
        if math.prod(sizes) > MAX_DEVICES:
            return None
        ids = mesh.device_ids.reshape(tuple(sizes)).transpose(order)
        return (), (), tuple(ids.ravel().tolist())
    # The shared factors of each axis of the arrangement, and those of each piece of the mesh.
    of_axis = dict(zip(mesh.permutation, _runs(arranged, shared), strict=True))
    of_piece = _runs(sizes, shared)
    iota = [factor for axis in range(len(mesh.dims)) for factor in of_axis[axis]]
    places = {factor: place for place, factor in enumerate(iota)}
    permutation = [places[factor] for piece in order for factor in of_piece[piece]]
    return (*_merged([shared[factor] for factor in iota], permutation), ())


def _refined(first: Sequence[int], second: Sequence[int]) -> list[int] | None:
    """Return factors such that each number of both lists is the product of a run of them; None without."""
    products = (itertools.accumulate(numbers, operator.mul) for numbers in (first, second))
    ends = sorted({1}.union(*products))
    if any(after % before for before, after in itertools.pairwise(ends)):
        return None
    return [after // before for before, after in itertools.pairwise(ends)]


def _runs(numbers: Sequence[int], factors: Sequence[int]) -> list[list[int]]:
    """Return the indices of the factors of each number; empty for 1."""
    indices = iter(range(len(factors)))
    runs: list[list[int]] = []
    for number in numbers:
        run: list[int] = []
        while math.prod(factors[index] for index in run) < number:
            run.append(next(indices))
        runs.append(run)
    return runs


def _merged(iota: Sequence[int], permutation: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return an equal arrangement with as few axes as possible, as XLA prints it."""
    runs: list[list[int]] = []
    for axis in permutation:
        if runs and runs[-1][-1] + 1 == axis:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    merged = sorted(runs)
    sizes = tuple(math.prod(iota[axis] for axis in run) for run in merged)
    return sizes, tuple(merged.index(run) for run in runs) if len(runs) > 1 else ()
