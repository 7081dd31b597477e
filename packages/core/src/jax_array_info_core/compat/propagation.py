"""Programs for Shardy's propagation: lowered for any mesh, as bytecode."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from ..errors import UnsupportedValueError
from ..layouts.spec import Spec, mesh_sizes
from .shardings import has_devices, is_named
from .stages import Stages
from .values import is_mesh, is_sharding

OLDEST = (0, 10, 1)
"""Before this version of JAX, Shardy lacks passes, ends the process, or tells no origins."""

PLATFORMS = ("_lowering", "_platforms")
"""Private attributes on the way from a lowered program to its platforms."""


def require_shardy(stages: Stages | None = None) -> None:
    """Raise UnsupportedValueError if Shardy is missing or switched off, or the stages are compiled alone."""
    import jax

    if jax.__version_info__ < OLDEST:
        raise UnsupportedValueError(
            f"why a value is sharded needs JAX 0.10.1 or later: this is {jax.__version__}"
        )
    if not getattr(jax.config, "jax_use_shardy_partitioner", True):
        raise UnsupportedValueError("Shardy is off: set jax_use_shardy_partitioner to True")
    if stages is not None and stages.traced is None and stages.lowered is None:
        raise UnsupportedValueError(
            "a Compiled has no origins: pass the function, or a jax.stages.Traced or Lowered"
        )


def lowered_for_propagation(stages: Stages, values: Sequence[Any]) -> tuple[Stages, str]:
    """Return the stages with a lowered program, and its platform.

    A program of a mesh without devices is lowered for TPUs.

    Args:
        stages: The stages of the program, as far as they exist.
        values: The leaves of its arguments.

    Raises:
        UnsupportedValueError: If Shardy is missing or switched off, or the program is compiled already.
    """
    import jax

    require_shardy(stages)
    given: list[Any] = [getattr(value, "sharding", None) for value in values]
    shardings = [one for one in given if is_sharding(one)]
    device = next((next(iter(one.device_set)) for one in shardings if has_devices(one)), None)
    is_abstract = any(is_named(one) and not has_devices(one) for one in shardings)
    platform = "tpu" if is_abstract else str((device or jax.devices()[0]).platform)
    if stages.lowered is None:
        platforms = {"lowering_platforms": (platform,)} if is_abstract else {}
        try:
            stages = stages._replace(lowered=stages.traced.lower(**platforms))
        except ValueError as error:  # an AbstractMesh in the function's own shardings
            if "lowering_platforms" not in str(error):
                raise
            stages = stages._replace(lowered=stages.traced.lower(lowering_platforms=("tpu",)))
    known = platforms_of(stages.lowered)
    return stages, str(known[0]) if known else platform


def platforms_of(lowered: Any) -> Sequence[str]:
    """Return the platforms that a program is lowered for; empty if they are unknown.

    Args:
        lowered: A ``jax.stages.Lowered``.
    """
    found = lowered
    for name in PLATFORMS:
        found = getattr(found, name, None)
    return found or ()


def module_bytecode(lowered: Any) -> bytes:
    """Return a lowered program as bytecode of MLIR, with its locations.

    Args:
        lowered: A ``jax.stages.Lowered``.
    """
    stream = io.BytesIO()
    lowered.compiler_ir("stablehlo").operation.write_bytecode(stream)
    return stream.getvalue()


def module_name(lowered: Any) -> str:
    """Return the name of the module of a lowered program.

    Args:
        lowered: A ``jax.stages.Lowered``.
    """
    return str(lowered.compiler_ir("stablehlo").operation.attributes["sym_name"].value)


def argument_locations(lowered: Any) -> list[str]:
    """Return the location of each argument of a lowered program, which has its name: ``loc("params['w']")``.

    Arguments that JAX adds come first, and those that it removes are missing.

    Args:
        lowered: A ``jax.stages.Lowered``.
    """
    functions = (one.operation for one in lowered.compiler_ir("stablehlo").body)
    main = next(one for one in functions if str(one.attributes["sym_name"]) == '"main"')
    return [str(one.location) for one in main.regions[0].blocks[0].arguments]


def mesh_of_jax(mesh: Any) -> Any:
    """Return a mesh as JAX takes it: of a mapping, an AbstractMesh whose axes are of type Auto.

    Args:
        mesh: A Mesh, an AbstractMesh, or the size of each mesh axis by name.
    """
    import jax

    if is_mesh(mesh):
        return mesh
    sizes = mesh_sizes(mesh)
    if not hasattr(jax.sharding, "AxisType"):  # up to JAX 0.5
        older: Any = jax.sharding.AbstractMesh
        return older(tuple(sizes.items()))
    types = (jax.sharding.AxisType.Auto,) * len(sizes)
    return jax.sharding.AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=types)


def sharded_struct(leaf: Any, mesh: Any, spec: Spec, memory_kind: str | None) -> Any:
    """Return a ShapeDtypeStruct with a NamedSharding.

    Args:
        leaf: An array or a ShapeDtypeStruct.
        mesh: A mesh of JAX.
        spec: The spec.
        memory_kind: Memory of the sharding; None for that of the devices.
    """
    import jax

    entries: list[Any] = [names[0] if len(names) == 1 else names or None for names in spec.axes]
    for dim in spec.unconstrained:
        entries[dim] = jax.sharding.PartitionSpec.UNCONSTRAINED
    unreduced: dict[str, Any] = {"unreduced": set(spec.unreduced)} if spec.unreduced else {}
    try:
        found = jax.sharding.PartitionSpec(*entries, **unreduced)
    except TypeError:
        raise UnsupportedValueError(f"{spec}: this version of JAX has no unreduced mesh axes") from None
    try:
        sharding = jax.sharding.NamedSharding(mesh, found, memory_kind=memory_kind)
    except ValueError as error:  # the devices of the mesh lack this memory
        raise UnsupportedValueError(str(error)) from None
    weak_type = bool(getattr(leaf, "weak_type", False))
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=weak_type)
