"""What each version of jax calls things.

The only module that compares versions, tolerates what a version lacks, or touches what jax keeps
private. jax is imported by the first function that needs it, so that importing the core does not.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .errors import LayoutError
from .layout import Processes

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


def is_bare_xla_sharding(value: object) -> bool:
    """Return whether a value is XLA's own sharding, which knows positions but no devices."""
    return type(value).__name__ == "HloSharding" and hasattr(value, "tile_assignment_devices")


def is_array_type(value: object) -> bool:
    """Return whether a value is an array of jax or numpy, or stands for one: never a container."""
    import jax

    return isinstance(value, (jax.Array, np.ndarray, np.generic, jax.ShapeDtypeStruct, jax.core.Tracer))


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


class Placement(NamedTuple):
    """What a layout needs to know of some devices."""

    ids: np.ndarray[Any, Any]
    """Their ids."""
    platform: str
    processes: Processes
    """Which are whose, where there are several processes."""


def placement(devices: Sequence[Any]) -> Placement:
    """Return ids, platform and processes of some devices.

    Raises:
        LayoutError: there are none.
    """
    if not devices:
        raise LayoutError("a sharding without devices holds nothing: its mesh is empty")
    ids = np.fromiter(map(attrgetter("id"), devices), np.int64, len(devices))
    owners = np.fromiter(map(attrgetter("process_index"), devices), np.int64, len(devices))
    processes: Processes = ()
    if (owners != owners[0]).any():
        processes = tuple(
            (int(owner), tuple(np.sort(ids[owners == owner]).tolist())) for owner in np.unique(owners)
        )
    return Placement(ids, devices[0].platform, processes)


class MeshPlacement(NamedTuple):
    """What a layout needs to know of a mesh."""

    sizes: dict[str, int]
    """Size of each axis, in order."""
    ids: np.ndarray[Any, Any] | None
    """Ids of its devices in its shape; None where it has none, and they are numbered 0…n−1."""
    platform: str | None
    processes: Processes


@functools.lru_cache(maxsize=64)
def mesh_placement(mesh: Any) -> MeshPlacement:
    """Return axes, device ids, platform and processes of a Mesh or AbstractMesh.

    Remembered for each mesh, as JAX itself keeps them: reading ids is what costs at 65,536 devices.
    """
    sizes = {str(name): int(size) for name, size in mesh.shape.items()}
    if is_abstract_mesh(mesh):
        return MeshPlacement(sizes, None, None, ())
    found = placement([] if mesh.empty else mesh.devices.ravel().tolist())
    return MeshPlacement(sizes, found.ids.reshape(mesh.devices.shape), found.platform, found.processes)


def spec_entries(spec: Any) -> tuple[Any, ...]:
    """Return the entries of a PartitionSpec; from jax 0.10 on, some are not iterable."""
    return tuple(getattr(spec, "_partitions", spec))


def is_unconstrained(entry: object) -> bool:
    """Return whether an entry of a PartitionSpec is ``UNCONSTRAINED``; where jax is not loaded, none is."""
    jax = sys.modules.get("jax")
    return jax is not None and entry is jax.sharding.PartitionSpec.UNCONSTRAINED


def named_dtype(name: str) -> np.dtype[Any]:
    """Return the dtype of a name, without jax.

    Raises:
        TypeError: arrays on devices have no dtype of this name. (numpy itself raises other errors, too.)
    """
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, name, name))
    numeric = dtype.kind in "biufc" and dtype.char not in "gG" and dtype.subdtype is None
    if not numeric and not hasattr(ml_dtypes, name):
        raise TypeError(f"{name!r} is no dtype of arrays on devices")
    return dtype


def device_assignment(sharding: Any, shape: Sequence[int]) -> list[Any]:
    """Return a sharding's devices in the order in which XLA numbers them."""
    devices = getattr(sharding, "_device_assignment", None)
    if devices is None:
        devices = sharding.devices_indices_map(tuple(shape))
    return list(devices)


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

    Up to jax 0.11, reading an array that is on several devices, or of a dtype that is not numpy's own,
    leaves one more live array behind, so a passing alias of it is read instead. Of an array that
    spans processes no alias is made.
    """
    import jax

    sharding = array.sharding
    if not array.is_fully_addressable:
        return None
    devices = np.array(device_assignment(sharding, array.shape))
    alias = jax.sharding.NamedSharding(
        jax.sharding.Mesh(devices, ("jax_array_info alias",)),
        jax.sharding.PartitionSpec(),
        memory_kind=sharding.memory_kind,
    )
    try:
        # Inside a trace, device_put would become part of the user's program.
        with jax.ensure_compile_time_eval():
            return np.asarray(jax.device_put(array, alias))
    except Exception:
        # The computation that makes it has failed, a transfer guard forbids to read it, or this is
        # the inside of shard_map up to jax 0.6, from where no trace can be left: whatever is raised
        # there, the user's program goes on without this value.
        return None


def label_carrier(array: Any) -> Any:
    """Return the array that ``jax.live_arrays`` lists for this one: for PRNG keys the one under them."""
    return getattr(array, "_base_array", array)


def has_started() -> bool:
    """Return whether jax has devices yet: asking it for arrays or devices would start it."""
    from jax._src import xla_bridge

    return bool(xla_bridge.backends_are_initialized())


def keep_collectives_on_loopback() -> None:
    """Let collectives between CPU processes listen on 127.0.0.1 alone, where jax lets them be told.

    Left alone, Gloo listens on the address that the machine's own name stands for.
    """
    from jax._src.lib import xla_client  # type: ignore[attr-defined]

    # jax looks the function up when it makes the backend, up to 0.4.38 in xla_extension.
    with contextlib.suppress(AttributeError):
        library: Any = xla_client._xla  # type: ignore[attr-defined]
        make = library.make_gloo_tcp_collectives
        library.make_gloo_tcp_collectives = functools.partial(make, hostname="127.0.0.1")
