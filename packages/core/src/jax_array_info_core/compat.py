"""What each version of jax calls things.

The only module that compares versions, tolerates what a version lacks, or touches what jax keeps
private. jax is imported by the first function that needs it, so that importing the core does not.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import jax


def is_tracer(value: object) -> bool:
    """Return whether a value stands for another one inside a transformation."""
    import jax

    return isinstance(value, jax.core.Tracer)


def is_array(value: object) -> bool:
    """Return whether a value is a concrete jax.Array, PRNG key arrays included."""
    import jax

    return isinstance(value, jax.Array) and not is_tracer(value)


def is_shape_dtype_struct(value: object) -> bool:
    """Return whether a value is a ShapeDtypeStruct: a shape and dtype, perhaps a sharding, no data."""
    import jax

    return isinstance(value, jax.ShapeDtypeStruct)


def is_abstract_value(value: object) -> bool:
    """Return whether a value is the type of an array, as ``jax.typeof`` returns."""
    import jax

    return isinstance(value, jax.core.ShapedArray)


def is_extended(dtype: Any) -> bool:
    """Return whether a dtype is one of JAX's own, such as that of PRNG keys."""
    import jax

    return bool(jax.numpy.issubdtype(dtype, jax.dtypes.extended))


def bits_per_element(dtype: Any) -> int | None:
    """Return the bits that an element takes on a device: 4 for int4, which XLA packs.

    None for a dtype that does not tell its size.
    """
    import ml_dtypes

    itemsize: int | None = getattr(dtype, "itemsize", None)
    if itemsize == 1:
        # Of the types that numpy keeps in a byte, these two know the ones that are smaller.
        for info in (ml_dtypes.iinfo, ml_dtypes.finfo):
            with contextlib.suppress(ValueError, TypeError):
                return int(info(dtype).bits)
    return None if itemsize is None else 8 * itemsize


def mesh_axis_types(mesh: Any) -> tuple[str, ...]:
    """Return ``Auto``, ``Explicit`` or ``Manual`` for each axis; nothing where a mesh has no types.

    On jax 0.4.38 and 0.5.3 they are a mapping from the type to names.
    """
    types = getattr(mesh, "axis_types", None)
    if types is None:
        return ()
    if isinstance(types, dict):
        by_name = {
            name: kind
            for kind, names in types.items()
            for name in (names if isinstance(names, tuple) else (names,))
        }
        types = tuple(by_name.get(name) for name in mesh.axis_names)
    return tuple(getattr(kind, "name", str(kind)) for kind in types)


def is_abstract_mesh(mesh: object) -> bool:
    """Return whether a mesh has axes but no devices."""
    import jax

    return isinstance(mesh, jax.sharding.AbstractMesh)


@functools.lru_cache(maxsize=64)
def mesh_devices(mesh: Any) -> tuple[np.ndarray[Any, Any] | None, str | None]:
    """Return a mesh's device ids in its shape, and their platform; ``(None, None)`` for an AbstractMesh.

    Remembered for each mesh, as JAX itself keeps them: reading ids is what costs at 65,536 devices.
    """
    if is_abstract_mesh(mesh):
        return None, None
    flat = mesh.devices.ravel().tolist()
    ids = np.fromiter((device.id for device in flat), np.int64, len(flat))
    return ids.reshape(mesh.devices.shape), flat[0].platform


def spec_entries(spec: Any) -> tuple[Any, ...]:
    """Return the entries of a PartitionSpec; from jax 0.10 on, some are not iterable."""
    return tuple(getattr(spec, "_partitions", spec))


def device_assignment(sharding: Any, shape: Sequence[int]) -> list[Any]:
    """Return a sharding's devices in the order in which XLA numbers them."""
    devices = getattr(sharding, "_device_assignment", None)
    if devices is None:
        devices = sharding.devices_indices_map(tuple(shape))
    return list(devices)


def xla_tiling(sharding: Any, ndim: int) -> tuple[list[int], list[int]] | None:
    """Return into how many tiles XLA cuts each axis and the device positions tile by tile.

    None where the sharding has no such form, or where that form has subgroups other than replicas.
    """
    try:
        hlo = sharding._to_xla_hlo_sharding(ndim)
        if hlo.is_replicated():
            return [1] * ndim, list(range(sharding.num_devices))
        if hlo.is_tiled() and not hlo.is_manual() and not hlo.is_unknown():
            dims = list(hlo.tile_assignment_dimensions())
            positions = list(hlo.tile_assignment_devices())
            return (dims[:ndim], positions) if ndim <= len(dims) <= ndim + 1 else None
    except (AttributeError, NotImplementedError):
        pass
    return None


def xla_text(sharding: Any, ndim: int) -> str | None:
    """Return a sharding as XLA writes it, such as ``{devices=[8,1]<=[8]}``, where it has that form."""
    try:
        return str(sharding._to_xla_hlo_sharding(ndim))
    except (AttributeError, NotImplementedError):
        return None


def typed_sharding(aval: Any) -> Any:
    """Return the sharding that is part of an abstract value's type, None where the type does not say it.

    Only Explicit mesh axes are part of a type; over Auto ones it says ``P(None)``, which means
    nothing, and jax 0.4.38 has neither.
    """
    sharding = getattr(aval, "sharding", None)
    types = mesh_axis_types(sharding.mesh) if sharding is not None else ()
    return sharding if types and set(types) == {"Explicit"} else None


def varying_axes(value: Any) -> tuple[str, ...]:
    """Return the manual mesh axes over which a value varies inside shard_map, sorted.

    They are ``aval.vma`` on jax 0.6–0.9 and ``mat.varying`` of the type from 0.10 on.
    """
    aval = value.aval
    varying = getattr(getattr(aval, "mat", None), "varying", None) or getattr(aval, "vma", ())
    return tuple(sorted(map(str, varying or ())))


def is_manual(value: Any) -> bool:
    """Return whether a traced value lives where mesh axes are manual: in shard_map, or pmap from 0.8.3 on."""
    mesh = getattr(getattr(value.aval, "sharding", None), "mesh", None)
    return mesh is not None and "Manual" in mesh_axis_types(mesh)


def batch_of(value: Any) -> tuple[int, tuple[Any, ...]] | None:
    """Return the axis that vmap hides from the function and the shape with it, where the tracer tells."""
    axis = getattr(value, "batch_dim", None)
    shape = getattr(getattr(value, "val", None), "shape", None)
    return (axis, tuple(shape)) if isinstance(axis, int) and shape is not None else None


def visible_devices(platform: str) -> int | None:
    """Return how many devices of a platform the process sees; None for one that is only compiled for."""
    import jax

    try:
        return jax.device_count(platform)
    except RuntimeError:
        return None


def is_default_device(device: Any) -> bool:
    """Return whether JAX puts on a device what is not told where to go on its platform."""
    import jax

    chosen = jax.config.jax_default_device
    if chosen is None or isinstance(chosen, str):
        try:
            chosen = jax.local_devices(backend=chosen or device.platform)[0]
        except RuntimeError:
            return False
    return bool(device == chosen)


def local_device_first(sharding: Any) -> Any:
    """Return one of a sharding's devices, of this process where it has any."""
    local = getattr(sharding, "addressable_devices", None)
    return next(iter(local or sharding.device_set))


def is_sharding(value: object) -> bool:
    """Return whether a value is any ``jax.sharding.Sharding``."""
    import jax

    return isinstance(value, jax.sharding.Sharding)


def default_memory_kind(device: Any) -> str | None:
    """Return the memory that a device uses when none is asked for, None where its backend has no kinds."""
    try:
        return str(device.default_memory().kind)
    except Exception:
        # Whatever a backend without memory kinds raises (XlaRuntimeError, a RuntimeError, on most).
        return None


def host_copy(array: jax.Array) -> np.ndarray[Any, Any] | None:
    """Return the value of a concrete 0-d array, waiting for it; None where that cannot be had harmlessly.

    Up to jax 0.11, reading an array that is on several devices leaves one more live array behind, so
    a passing alias of it is read instead. Of an array that spans processes no alias is made.
    """
    import jax

    sharding = array.sharding
    if sharding.num_devices == 1 and array.is_fully_addressable:
        return np.asarray(array)
    if not array.is_fully_addressable:
        return None
    devices = np.array(device_assignment(sharding, array.shape))
    alias = jax.sharding.NamedSharding(
        jax.sharding.Mesh(devices, ("jax_array_info alias",)),
        jax.sharding.PartitionSpec(),
        memory_kind=sharding.memory_kind,
    )
    # Inside a trace, device_put would become part of the user's program.
    with jax.ensure_compile_time_eval():
        return np.asarray(jax.device_put(array, alias))


def label_carrier(array: Any) -> Any:
    """Return the array that ``jax.live_arrays`` lists for this one: for PRNG keys the one under them."""
    return getattr(array, "_base_array", array)
