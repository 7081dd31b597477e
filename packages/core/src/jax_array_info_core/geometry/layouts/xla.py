"""XLA shardings, also as they are copied from programs, messages and types: layouts and partition specs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...base.quantities import format_number
from .layout import MAX_AXES, DevicePlacement, ShardingLayout
from .notation import Scanner, parse_array
from .spec import Spec, mesh_sizes
from .xla_sharding import XlaSharding, read_arrangement, read_mesh, read_named_sharding


def parse_xla_sharding(text: str) -> XlaSharding:
    """Parse a sharding in XLA's notation.

    A sharding with named mesh axes, as XLA prints it since JAX 0.11, is converted to the tiled form, without
    the names.

    Raises:
        NotationError: (a ValueError) If the text is not an XLA sharding. The message marks the error.

    >>> parse_xla_sharding("{devices=[2,2]<=[2,2]T(1,0)}").device_ids.tolist()
    [[[0], [2]], [[1], [3]]]
    >>> print(parse_xla_sharding("{mesh['x'=4,'y'=2], [{'y'}, {}, {'x'}]}"))
    {devices=[2,1,4]<=[4,2]T(1,0)}
    """
    scanner = Scanner(text)
    scanner.expect(r"\{", "'{'")
    sharding = read_named_sharding(scanner) or _xla_body(scanner)
    scanner.take(r"shard_(?:as|like)\s+\d+")
    _skip_metadata(scanner)
    scanner.expect(r"\}", "'}'")
    scanner.end()
    return sharding


_WITHOUT_TILES: tuple[Literal["replicated", "manual", "unreduced", "unknown"], ...] = (
    "replicated",
    "manual",
    "unreduced",
    "unknown",
)


def _skip_metadata(scanner: Scanner) -> None:
    """Move past the metadata of the operations that a sharding comes from, up to its closing brace."""
    depth = 0
    if scanner.take(r",?\s*metadata\s*=(?=\s*\{)") is None:
        return
    while piece := scanner.take(r'[^{}"]+|"(?:[^"\\]|\\.)*"|[{}]'):
        depth += (piece == "{") - (piece == "}")
        if depth == 0:
            return


def _xla_body(scanner: Scanner) -> XlaSharding:
    if scanner.take("maximal"):
        scanner.expect(r"device\s*=", "'device='")
        return XlaSharding("maximal", listed=(scanner.number(),))
    for form in _WITHOUT_TILES:
        if scanner.take(form):
            return XlaSharding(form)
    scanner.expect(r"devices\s*=\s*\[", "'devices=[', 'replicated', 'maximal', 'manual' or 'unknown'")
    start = scanner.position
    tiles = scanner.listed(lambda: scanner.number(least=1), "]")
    iota: tuple[int, ...] = ()
    permutation: tuple[int, ...] = ()
    listed: tuple[int, ...] = ()
    devices_at = scanner.position
    if scanner.take(r"<=\s*\["):
        iota, permutation = read_arrangement(scanner)
    else:
        listed = scanner.separated(scanner.number, ",")
        if len(set(listed)) < len(listed):
            scanner.fail("a device is listed twice", devices_at)
    subgroups: tuple[str, ...] = ()
    if scanner.take("last_tile_dim_replicate"):
        subgroups = ("replicated",)
    elif scanner.take(r"last_tile_dims\s*=\s*\{"):
        subgroups = scanner.listed(
            lambda: scanner.expect("replicated|manual|unreduced|maximal", "'replicated' or 'manual'"), "}"
        )
    if max(len(tiles), len(iota)) > MAX_AXES:
        scanner.fail(f"more than {MAX_AXES} tile or device dimensions", start)
    count = math.prod(iota) if iota else len(listed)
    if math.prod(tiles) != count:
        scanner.fail(f"{format_number(math.prod(tiles))} tiles, but {format_number(count)} devices", start)
    if len(subgroups) > len(tiles):
        scanner.fail(f"{len(subgroups)} subgroups, but {len(tiles)} tile dimensions", start)
    return XlaSharding("tiled", tiles, subgroups, iota, permutation, listed)


def mesh_of_xla(text: str) -> dict[str, int] | None:
    """Return the mesh in a sharding with named mesh axes: the size of each axis by name.

    None for a sharding in another form, and for a mesh that does not have the devices in order.

    >>> mesh_of_xla("{mesh['x'=4,'y'=2], [{'y'}, {}, {'x'}]}")
    {'x': 4, 'y': 2}
    """
    scanner = Scanner(text)
    scanner.take(r"\{")
    mesh = read_mesh(scanner)
    return mesh.sizes if mesh is not None and mesh.sizes and mesh.is_in_order else None


def spec_of_xla(sharding: XlaSharding, mesh: Any) -> Spec | None:
    """Return the PartitionSpec that is equivalent to an XLA sharding on a mesh; None if there is none.

    The spec ends with the last sharded axis: ``P(None, 'a')``, not ``P(None, 'a', None)``. It is unique
    up to mesh axes of size 1.

    Args:
        sharding: A parsed sharding.
        mesh: A Mesh, an AbstractMesh, or the size of each mesh axis by name.

    Raises:
        LayoutError: (a ValueError) If the sharding has more than 1,048,576 devices.

    >>> spec_of_xla(parse_xla_sharding("{devices=[4,2]<=[2,4]T(1,0)}"), {"x": 2, "y": 4})
    Spec(axes=(('y',), ('x',)), unconstrained=(), unreduced=())
    """
    mesh = mesh_sizes(mesh)
    if sharding.kind == "replicated":
        return Spec(())
    if sharding.kind == "unreduced":
        return Spec((), unreduced=tuple(sorted(name for name, size in mesh.items() if size > 1)))
    if sharding.kind != "tiled" or set(sharding.subgroups) - {"replicated", "unreduced"}:
        return None
    sizes = tuple(mesh.values())
    ids = sharding.device_ids.reshape(sharding.tiles)
    if sorted(ids.ravel().tolist()) != list(range(math.prod(sizes))):
        return None
    # The index of each device's tile along each dimension. The leading 1 allows for no dimensions at all.
    _, *places = np.unravel_index(np.argsort(ids, axis=None), (1, *ids.shape))
    rank = len(sharding.counts)
    spec = spec_of_places(places[:rank], mesh)
    unreduced = [
        name
        for along, subgroup in zip(places[rank:], sharding.subgroups, strict=True)
        if subgroup == "unreduced"
        for name in _axes_of(along, mesh) or ()
    ]
    return None if spec is None else replace(spec, unreduced=tuple(sorted(unreduced)))


def spec_of_places(places: Sequence[NDArray[np.int64]], mesh: Mapping[str, int]) -> Spec | None:
    """Return the PartitionSpec by which each device has its shard; None if there is none.

    Args:
        places: For each array axis, the index of the shard of each device, in the order of the mesh.
        mesh: Size of each mesh axis by name.

    >>> str(spec_of_places([np.array([0, 0, 1, 1]), np.array([0, 0, 0, 0])], {"x": 2, "y": 2}))
    "P('x',)"
    """
    axes = [_axes_of(along, mesh) for along in places]
    while axes and axes[-1] == ():
        axes.pop()
    known = [names for names in axes if names is not None]
    return Spec(tuple(known)) if len(known) == len(axes) else None


def _axes_of(places: NDArray[np.int64], mesh: Mapping[str, int]) -> tuple[str, ...] | None:
    """Return the mesh axes whose coordinates are the digits of an index by device; None if none are."""
    # It must be a mixed-radix number. Its digits, major to minor, are the coordinates along the mesh axes.
    digits = _mixed_radix(places.reshape(tuple(mesh.values())))
    return None if digits is None else tuple([*mesh][number] for number in digits)


def _mixed_radix(places: NDArray[np.int64]) -> list[int] | None:
    """Return the axes, major to minor, whose coordinates are the digits of ``places``; None if none are."""
    axes = [axis for axis, size in enumerate(places.shape) if size > 1]
    strides = {axis: int(places.take(1, axis=axis).flat[0]) for axis in axes}
    coordinates = np.ix_(*map(np.arange, places.shape))
    number = sum((coordinates[axis] * stride for axis, stride in strides.items()), np.zeros(1, np.int64))
    if not np.array_equal(np.broadcast_to(number, places.shape), places):
        return None
    return sorted((axis for axis in axes if strides[axis]), key=strides.__getitem__, reverse=True)


def xla_layout(
    shape: tuple[int, ...], sharding: XlaSharding, devices: DevicePlacement | None = None
) -> ShardingLayout | None:
    """Return the layout of an array under an XLA sharding.

    None if the sharding is for another number of axes, or if the devices of one tile hold more than
    replicas and partial sums of it, such as manual parts.

    Args:
        shape: Global shape of the array.
        sharding: The sharding, which numbers the devices 0…n−1.
        devices: Devices by these numbers; when None, the numbers are the device ids.
    """
    tiles: NDArray[np.int64] | None = None
    partial_sums = 1
    if sharding.kind == "maximal":
        tiles = sharding.device_ids.reshape([1] * len(shape) + [-1])
    elif sharding.kind in ("replicated", "unreduced") and devices is not None:
        tiles = np.arange(len(devices.ids)).reshape([1] * len(shape) + [-1])
        partial_sums = 1 if sharding.kind == "replicated" else tiles.size
    elif sharding.kind == "tiled" and len(sharding.counts) == len(shape):
        tiles = sharding.holders if set(sharding.subgroups) <= {"replicated", "unreduced"} else None
        partial_sums = sharding.partial_sums
    if tiles is None:
        return None
    if devices is None:
        return ShardingLayout(shape=shape, device_ids=tiles, partial_sums=partial_sums)
    return ShardingLayout(
        shape=shape,
        device_ids=devices.ids[tiles],
        platform=devices.platform,
        processes=devices.processes,
        partial_sums=partial_sums,
    )


_ONE = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}|(?:#sdy\.sharding\s*)?<[^<>]*>|[\s\S]*"
"""A sharding up to its closing brace; everything if it has none."""
_SDY = re.compile(r'(?:#sdy\.sharding\s*)?<\s*@(?:"[^"]*"|[\w.$-]+)\s*,(?P<axes>[^<>]*)>')


class Copied(NamedTuple):
    """A sharding that was copied."""

    sharding: XlaSharding
    """The sharding. If it names mesh axes of unknown sizes, these are assumed to be 2."""
    mesh: Mapping[str, int] | None = None
    """Size of each mesh axis by name; None if the text has none, or not the devices in order."""
    spec: Spec | None = None
    """Partition spec of a sharding that names mesh axes of unknown sizes; else None."""
    shape: tuple[int, ...] | None = None
    """Global shape, if the text is the type of an array."""


def parse_copied(text: str, mesh: Mapping[str, int] | None = None) -> tuple[Copied, ...]:
    """Parse a sharding, or a tuple of them, with or without what stands around it in a program.

    Args:
        text: A sharding of XLA such as ``{devices=[4,2]<=[8]}``, one of Shardy such as
            ``#sdy.sharding<@mesh, [{"x"}, {}]>``, or the type of an array such as ``float32[8@x,8]``.
        mesh: Size of each mesh axis by name, for a text that names axes without their sizes.

    Raises:
        NotationError: (a ValueError) If the text is in none of these forms. The message marks the error.

    >>> [str(one.sharding) for one in parse_copied("sharding={{replicated}, {devices=[4]<=[4]}}")]
    ['{replicated}', '{devices=[4]<=[4]}']
    >>> print(parse_copied('#sdy.sharding<@mesh, [{"x"}, {}]>')[0].spec)
    P('x',)
    """
    scanner = Scanner(re.sub(r"/\*index=\d+\*/", "", text))  # XLA numbers the elements of a tuple
    scanner.take(r'(?:[\w.]*sharding\s*=\s*)?(?:"|GSPMDSharding\s*\()?')
    opening = scanner.take(r"\{(?=\s*\{)|#sdy\.sharding_per_value\s*<\s*\[")
    closing = "}" if opening == "{" else "]>"
    parts = scanner.listed(lambda: scanner.take(_ONE), closing) if opening else (scanner.take(_ONE),)
    scanner.take(r'"?(?:,\s*[\w.]+\s*=.*)?\)?,?')  # further attributes of the operation
    scanner.end()
    return tuple(_read(part or "", mesh) for part in parts)


def _read(text: str, mesh: Mapping[str, int] | None) -> Copied:
    if text.startswith("{"):
        return Copied(parse_xla_sharding(text), mesh_of_xla(text))
    if re.match(r"\w+\s*\[", text):
        array = parse_array(text)
        entries = zip_longest(array.spec.axes, array.shape, fillvalue=())
        axes = ", ".join(f"{{{', '.join(map(repr, names))}}}" for names, _ in entries)
        return _of_axes(f"[{axes}]", mesh)._replace(shape=array.shape)
    match = _SDY.fullmatch(text) or Scanner(text).fail(
        "expected a sharding, such as {devices=[4,2]<=[8]},"
        ' #sdy.sharding<@mesh, [{"x"}, {}]> or float32[8@x,8]'
    )
    return _of_axes(re.sub(r"\}\s*p\d+", "}", match["axes"]), mesh)  # without priorities


def _of_axes(axes: str, mesh: Mapping[str, int] | None) -> Copied:
    """Return the sharding over the mesh axes of each array axis, such as ``[{"x"}, {}]``."""
    if mesh is None and re.search(r"""["']\s*:""", axes):
        Scanner(axes).fail("expected whole mesh axes: pass a mesh with their sizes", axes.index(":"))
    # The spec is the same for all sizes.
    sizes = {name: 2 for _, name in re.findall(r"""(["'])(.+?)\1""", axes)} if mesh is None else mesh
    named = ",".join(f"'{name}'={size}" for name, size in sizes.items())
    sharding = parse_xla_sharding(f"{{mesh[{named}], {axes.strip()}}}")
    return Copied(sharding, mesh, spec_of_xla(sharding, sizes) if mesh is None else None)
