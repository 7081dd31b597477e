"""The sources of a traced value's sharding: a concrete array, JAX, shard_map and the compiler."""

from __future__ import annotations

from typing import Any

from .. import compat
from ..compat.array_facts import ArrayFacts, Knowledge, ShardingFacts
from ..compat.devices import device_facts, placement
from ..compat.lowering import LoweringPlace
from ..compat.partition_specs import spec_entries
from ..compat.shardings import sharding_facts
from ..layouts.layout import Placement, ShardingLayout, mesh_layout
from ..layouts.spec import MeshAxes, some_axes
from ..layouts.xla import XlaSharding, parse_xla_sharding, spec_of_xla, xla_layout
from ..reports.array import BatchAxes, ShardingDescription
from ..reports.unknown_reasons import NOT_AVAILABLE
from ..text import plain_shape


def still_unknown(facts: ArrayFacts, because: str) -> Knowledge:
    """Return what was known while tracing, and why there is no more."""
    if facts.known.source != "unknown":
        return facts.known
    return Knowledge(unknown_because=because, batch=facts.known.batch)


def from_array(facts: ArrayFacts, array: Any, batch: BatchAxes | None) -> Knowledge:
    """Return the sharding of the concrete array for which a value stands, as under vmap or grad alone."""
    return Knowledge(
        source="array",
        sharding=sharding_facts(array.sharding, plain_shape(array.shape)),
        batch=batch,
        manual_axes=facts.known.manual_axes,
    )


def from_jax(facts: ArrayFacts, sharding: Any) -> Knowledge:
    """Return a sharding that JAX itself has read, where that is true.

    Inside shard_map it says ``P()``; under vmap it is that of another shape.
    """
    if facts.known.source == "manual":
        return facts.known
    if facts.known.batch or len(spec_entries(getattr(sharding, "spec", ()))) > len(facts.shape):
        return still_unknown(facts, NOT_AVAILABLE)
    return Knowledge(source="compiler", sharding=sharding_facts(sharding, facts.shape))


def from_compiler(
    facts: ArrayFacts, sharding_text: str, batch: BatchAxes | None, place: LoweringPlace, module: object
) -> Knowledge:
    """Return the sharding that XLA chose.

    Args:
        facts: What was read of the value while tracing.
        sharding_text: What XLA says; it numbers the devices 0…n−1.
        batch: The axes that vmap hides; the sharding is that of the whole value.
        place: What the program was lowered for.
        module: What the lowered program keeps alive, by which its compilation is found.
    """
    shape = batch.shape if batch else facts.shape
    # A PRNG key is an axis more to XLA, whole on each device.
    sharding = parse_xla_sharding(sharding_text).leading(len(shape))
    if place.mesh is not None and place.manual:
        return _inside_shard_map(facts, place.mesh, place.manual, sharding)
    devices, mesh = compat.compilation_of(module)
    description = _description(sharding, mesh, place.device_count)
    found = ShardingFacts(description=description)
    if len(devices) == place.device_count:
        placed = placement(devices)
        found = ShardingFacts(
            description=description,
            layout=_layout(tuple(map(int, shape)), sharding, description, placed),
            devices=device_facts(devices, placed.ids, placed.processes),
        )
    return Knowledge(
        source="compiler",
        sharding=found,
        batch=batch,
        manual_axes=facts.known.manual_axes,
    )


def _inside_shard_map(
    facts: ArrayFacts, mesh: MeshAxes, manual: frozenset[str], sharding: XlaSharding
) -> Knowledge:
    """Return that a value is one shard, with its sharding over the mesh axes that are not manual."""
    auto = some_axes(mesh, set(mesh.names) - manual)
    spec = spec_of_xla(sharding, auto.shape) if auto.names else None
    found = facts.known.sharding
    if spec is not None:
        found = ShardingFacts(description=ShardingDescription(type="NamedSharding", spec=spec, mesh=auto))
    return Knowledge(
        source="manual", sharding=found, batch=facts.known.batch, manual_axes=some_axes(mesh, manual)
    )


def _description(sharding: XlaSharding, mesh: MeshAxes | None, device_count: int) -> ShardingDescription:
    """Return XLA's sharding as JAX would describe it."""
    spec = spec_of_xla(sharding, mesh.shape) if mesh else None
    if spec is not None:
        return ShardingDescription(type="NamedSharding", spec=spec, mesh=mesh)
    if device_count == 1:
        return ShardingDescription(type="SingleDeviceSharding")
    return ShardingDescription(type="GSPMDSharding", text=str(sharding))


def _layout(
    shape: tuple[int, ...], sharding: XlaSharding, described: ShardingDescription, devices: Placement
) -> ShardingLayout | None:
    """Return which device holds what; by the spec where there is one, which tells partial sums, too."""
    if described.spec is None or described.mesh is None:
        return xla_layout(shape, sharding, devices)
    sizes = described.mesh.shape
    ids = devices.ids.reshape(described.mesh.sizes)
    return mesh_layout(shape, sizes, described.spec.axes, ids, devices.platform, devices.processes)
