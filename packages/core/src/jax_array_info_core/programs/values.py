"""Arguments and outputs of a program, with the requested and the actual sharding."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..arrays.paths import key_path_keys, path_text
from ..compat.shardings import describe_sharding, host_memory_kind, is_named
from ..compat.stages import Leaf
from ..errors import ArrayInfoError
from ..layouts.dtypes import bits_per_element, dtype_name
from ..layouts.spec import MeshAxes, effective_axes, effective_spec
from ..layouts.xla import parse_xla_sharding, spec_of_xla
from ..quantities import counted
from ..reports.array import Dim, ShardingDescription
from ..reports.program import ProgramValue
from ..text import plain_shape

_IN_VARIABLE = re.compile(r"(?P<name>\w+)\[(?:(?P<number>\d+)|'(?P<key>\w+)')\]")
"""JAX's name of an argument that a function takes as one of several."""


def argument_values(leaves: Sequence[Leaf], mesh: MeshAxes | None) -> tuple[ProgramValue, ...]:
    """Return the arguments of a program.

    Args:
        leaves: The arguments, as JAX's stages describe them.
        mesh: Mesh of the program, for shardings without a spec.
    """
    paths = _distinct([_argument_path(leaf) for leaf in leaves])
    return tuple(_value(path, leaf, mesh) for path, leaf in zip(paths, leaves, strict=True))


def output_values(
    leaves: Sequence[Leaf], mesh: MeshAxes | None, arguments: Sequence[ProgramValue]
) -> tuple[ProgramValue, ...]:
    """Return the outputs of a program, each with the argument that it resembles and the axes that it lacks.

    Args:
        leaves: The outputs, as JAX's stages describe them.
        mesh: Mesh of the program, for shardings without a spec.
        arguments: The arguments of the program.
    """
    paths = _distinct([path_text(["outputs", *key_path_keys(leaf.keys)]) for leaf in leaves])
    values = [_value(path, leaf, mesh) for path, leaf in zip(paths, leaves, strict=True)]
    by_end = _by_end(arguments)
    return tuple(_compared(value, by_end) for value in values)


def _argument_path(leaf: Leaf) -> str:
    """Return the path of an argument: its name and its keys.

    JAX calls one of ``*rest`` ``rest[0]``, and one of ``**options`` ``options['key']``.
    """
    found = _IN_VARIABLE.fullmatch(leaf.name or "")
    name = [leaf.name] if found is None else [found["number"] or found["key"]]
    if found is not None and found["number"]:
        name.insert(0, found["name"])
    return path_text([*name, *key_path_keys(leaf.keys)])


def _distinct(paths: Sequence[str]) -> list[str]:
    """Return paths with a number after those that occur before."""
    seen: dict[str, int] = {}
    found = []
    for path in paths:
        seen[path] = seen.get(path, 0) + 1
        found.append(path if seen[path] == 1 else f"{path}#{seen[path]}")
    return found


def _value(path: str, leaf: Leaf, mesh: MeshAxes | None) -> ProgramValue:
    shape = plain_shape(leaf.shape)
    asked = None if leaf.asked is None else described(leaf.asked, len(shape), mesh)
    got = None if leaf.got is None else described(leaf.got, len(shape), mesh)
    sharding = leaf.asked if leaf.got is None else leaf.got
    return ProgramValue(
        path=path,
        shape=shape,
        dtype=dtype_name(leaf.dtype),
        nbytes=_device_nbytes(shape, leaf.dtype, sharding),
        asked=asked,
        got=got,
        reason=None if asked is None or got is None else _difference(asked, got, len(shape)),
        is_pruned=leaf.is_pruned,
        memory_kind=None if sharding is None else sharding.memory_kind,
        is_in_host_memory=sharding is not None and host_memory_kind(sharding) is not None,
    )


def described(sharding: Any, ndim: int, mesh: MeshAxes | None) -> ShardingDescription:
    """Return the description of a sharding, with an equivalent spec of the program's mesh if there is one.

    Args:
        sharding: Any sharding.
        ndim: Number of axes of the array.
        mesh: Mesh of the program.
    """
    description = describe_sharding(sharding, ndim)
    if description.spec is None and description.text is not None and mesh is not None:
        try:
            spec = spec_of_xla(parse_xla_sharding(description.text), mesh.shape)
        except ArrayInfoError:
            spec = None
        if spec is not None:
            return replace(description, spec=spec, mesh=mesh)
    return description


def _device_nbytes(shape: tuple[Any, ...], dtype: Any, sharding: Any) -> int | None:
    """Return the bytes of the largest shard."""
    if not all(isinstance(dim, int) for dim in shape):
        return None
    if sharding is not None:
        try:
            shape = tuple(sharding.shard_shape(shape))
        except ValueError:
            if not is_named(sharding):
                return None
            sizes = sharding.mesh.shape
            axes = effective_axes(describe_sharding(sharding, len(shape)).spec, sizes, len(shape))  # type: ignore[arg-type]
            counts = [math.prod(sizes[name] for name in names) for names in axes]
            shape = tuple(-(-dim // count) for dim, count in zip(shape, counts, strict=True))
    bits = bits_per_element(dtype)
    return None if bits is None else -(-math.prod(shape) * bits // 8)


def _difference(asked: ShardingDescription, got: ShardingDescription, ndim: int) -> str | None:
    """Return why a sharding is not the requested one; None if the two are equivalent."""
    if asked.spec is None or got.spec is None or asked.mesh is None or got.mesh is None:
        return None if asked == got or (asked.text, asked.type) == (got.text, got.type) else "XLA chose it"
    if asked.spec.unconstrained:
        return f"the spec leaves {counted(len(asked.spec.unconstrained), 'axis', 'axes')} to the compiler"
    same = effective_axes(asked.spec, asked.mesh.shape, ndim) == effective_axes(
        got.spec, got.mesh.shape, ndim
    )
    return None if same and asked.spec.unreduced == got.spec.unreduced else "XLA chose another sharding"


_End = tuple[tuple[Dim, ...], str]


def _by_end(arguments: Sequence[ProgramValue]) -> dict[_End, list[ProgramValue]]:
    """Return the arguments by shape and last key."""
    found: dict[_End, list[ProgramValue]] = {}
    for argument in arguments:
        if "/" in argument.path:
            found.setdefault((argument.shape, argument.path.rpartition("/")[2]), []).append(argument)
    return found


def _compared(value: ProgramValue, by_end: dict[_End, list[ProgramValue]]) -> ProgramValue:
    """Return an output with the argument of the same shape and the same end of the path, if axes are lost.

    An output whose sharding was requested has it on purpose.
    """
    alike = by_end.get((value.shape, value.path.rpartition("/")[2])) if "/" in value.path else None
    if not alike or value.asked is not None:
        return value
    like = max(alike, key=lambda argument: _common_end(argument.path, value.path))
    used, wanted = _axes(value.got), _axes(like.got)
    if used is None or wanted is None or not used < wanted:
        return value
    lost = tuple(name for name in _mesh_names(like) if name in wanted - used)
    spec = like.got.spec if like.got is not None else None
    reason = (
        f"{', '.join(map(repr, lost))} {'is' if len(lost) == 1 else 'are'} lost: {like.path} is "
        f"{spec}. Pass out_shardings to keep {'it' if len(lost) == 1 else 'them'}."
    )
    return replace(value, like=like.path, lost_axes=lost, reason=reason)


def _axes(sharding: ShardingDescription | None) -> set[str] | None:
    """Return the mesh axes over which a value is sharded; None if they are unknown."""
    if sharding is None or sharding.spec is None or sharding.mesh is None:
        return None
    spec = effective_spec(sharding.spec, sharding.mesh.shape)
    return {name for names in spec.axes for name in names}


def _mesh_names(value: ProgramValue) -> tuple[str, ...]:
    return value.got.mesh.names if value.got is not None and value.got.mesh is not None else ()


def _common_end(path: str, other: str) -> int:
    """Return the number of keys that two paths have in common at their ends."""
    pairs = zip(reversed(path.split("/")), reversed(other.split("/")), strict=False)
    return next((number for number, (a, b) in enumerate(pairs) if a != b), min(path.count("/"), 99) + 1)
