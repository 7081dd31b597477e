"""Arguments and outputs of a program, of JAX's stages."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..base.errors import ArrayInfoError
from ..base.quantities import counted
from ..base.text import plain_shape
from ..compat.jaxprs import JaxprConstraint
from ..compat.shardings import describe_sharding, host_memory_kind, is_named
from ..compat.stages import ProgramLeaf
from ..facts.reports.array import ShardingDescription, same_sharding
from ..facts.reports.program_values import (
    ProgramValue,
)
from ..geometry.layouts.dtypes import bits_per_element, dtype_name, packed_nbytes
from ..geometry.layouts.spec import MeshAxes, shard_dims
from ..geometry.layouts.xla import parse_xla_sharding, spec_of_xla
from .paths import distinct_paths, key_path_keys, path_text

_IN_VARIABLE = re.compile(r"(?P<name>\w+)\[(?:(?P<number>\d+)|'(?P<key>\w+)')\]")
"""JAX's name of an argument that a function takes as one of several."""


def argument_values(leaves: Sequence[ProgramLeaf], mesh: MeshAxes | None) -> tuple[ProgramValue, ...]:
    """Return the arguments of a program.

    Args:
        leaves: The arguments, as JAX's stages describe them.
        mesh: Mesh of the program, for shardings without a spec.
    """
    paths = distinct_paths([_argument_path(leaf) for leaf in leaves])
    is_single = mesh is None or math.prod(mesh.sizes) == 1
    return _values(paths, leaves, mesh, [is_single or leaf.is_pruned for leaf in leaves])


def output_values(leaves: Sequence[ProgramLeaf], mesh: MeshAxes | None) -> tuple[ProgramValue, ...]:
    """Return the outputs of a program.

    Args:
        leaves: The outputs, as JAX's stages describe them.
        mesh: Mesh of the program, for shardings without a spec.
    """
    paths = distinct_paths([path_text(["outputs", *key_path_keys(leaf.keys)]) for leaf in leaves])
    return _values(paths, leaves, mesh, [False] * len(leaves))


def _values(
    paths: Sequence[str], leaves: Sequence[ProgramLeaf], mesh: MeshAxes | None, whole: Sequence[bool]
) -> tuple[ProgramValue, ...]:
    """Return arguments or outputs. Thousands of them differ in their paths only."""
    describe = functools.cache(functools.partial(_value, mesh))
    kinds = (leaf._replace(keys=(), name=None, label=None) for leaf in leaves)
    return tuple(
        replace(describe(kind, is_whole), path=path)
        for path, kind, is_whole in zip(paths, kinds, whole, strict=True)
    )


def with_requested(
    outputs: Sequence[ProgramValue], requested: Sequence[JaxprConstraint | None]
) -> tuple[ProgramValue, ...]:
    """Return the outputs, with the shardings that the function itself requests and that they have.

    XLA did not choose the sharding of an output that comes from a ``shard_map`` or a constraint as it is.

    Args:
        outputs: Outputs of the program.
        requested: What each of them is requested to be inside the function.
    """
    described = []
    for output, request in zip(outputs, requested, strict=True):
        if (
            request is not None
            and output.asked is None
            and output.is_asked_known
            and request.shape == output.shape
        ):
            asked = describe_sharding(request.sharding, len(output.shape))
            if same_sharding(asked, output.got):
                output = replace(output, asked=asked)
        described.append(output)
    return tuple(described)


def _argument_path(leaf: ProgramLeaf) -> str:
    """Return the path of an argument: its name and its keys.

    JAX calls one of ``*rest`` ``rest[0]``, and one of ``**options`` ``options['key']``.
    """
    match = _IN_VARIABLE.fullmatch(leaf.name or "")
    name = [leaf.name] if match is None else [match["number"] or match["key"]]
    if match is not None and match["number"]:
        name.insert(0, match["name"])
    return path_text([*name, *key_path_keys(leaf.keys)])


def _value(mesh: MeshAxes | None, leaf: ProgramLeaf, is_whole: bool) -> ProgramValue:
    """Return an argument or an output without its path.

    Args:
        mesh: Mesh of the program.
        leaf: The leaf, as JAX's stages describe it.
        is_whole: Whether a device has all of a leaf without a sharding. Else its bytes are unknown, such as
            those of the outputs of a program that was refused.
    """
    shape = plain_shape(leaf.shape)
    asked = None if leaf.asked is None else described(leaf.asked, len(shape), mesh)
    got = None if leaf.got is None else described(leaf.got, len(shape), mesh)
    sharding = leaf.asked if leaf.got is None else leaf.got
    return ProgramValue(
        path="",
        shape=shape,
        dtype=dtype_name(leaf.dtype),
        bits=bits_per_element(leaf.dtype),
        nbytes=_device_nbytes(shape, leaf.dtype, sharding) if sharding is not None or is_whole else None,
        asked=asked,
        is_asked_known=leaf.is_asked_known,
        got=got,
        reason=None if asked is None or got is None else _difference(asked, got),
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
    shard = shape if sharding is None else shard_shape(shape, sharding)
    return None if shard is None else packed_nbytes(shard, bits_per_element(dtype))


def shard_shape(shape: tuple[Any, ...], sharding: Any) -> tuple[int, ...] | None:
    """Return the shape of the largest shard, padded where it is uneven; None if it is unknown.

    On a mesh with Manual axes, ``shape`` is that of a local value, which a spec can shard further.
    """
    if not all(isinstance(dim, int) for dim in shape):
        return None
    if not is_named(sharding):
        try:
            return tuple(sharding.shard_shape(shape))
        except (ValueError, NotImplementedError):
            return None
    # JAX itself refuses uneven shards, and each mesh with Manual axes.
    spec = describe_sharding(sharding, len(shape)).spec
    return shard_dims(shape, spec, sharding.mesh.shape)  # type: ignore[arg-type]


def _difference(asked: ShardingDescription, got: ShardingDescription) -> str | None:
    """Return why a sharding is not the requested one; None if the two are equivalent."""
    if asked.spec is not None and got.spec is not None and asked.spec.unconstrained:
        return f"the spec leaves {counted(len(asked.spec.unconstrained), 'axis', 'axes')} to the compiler"
    if same_sharding(asked, got):
        return None
    return "XLA chose it" if None in (asked.spec, got.spec) else "XLA chose another sharding"
