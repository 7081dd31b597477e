"""Facts about arrays, traced values and arrays of other libraries, and computations on arrays."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from ..base.quantities import LARGEST
from ..base.text import plain_shape, plain_text
from ..facts.reports.array import COMPILER_DECIDES, IN_A_KERNEL, IN_A_REDUCER, BatchAxes, Dim, Transformation
from ..geometry.layouts.dtypes import bits_of_name, bits_per_element, dtype_name, packed_nbytes
from ..geometry.layouts.spec import MeshAxes, some_axes, without_last
from . import private
from .jax_stack import unpartitioned_context
from .jitted import attribute_dicts
from .shardings import concrete_mesh, device_assignment, mesh_axes, sharding_facts
from .values import ArrayFacts, KnownSharding, is_array, is_array_type, is_sharding, is_tracer, type_name

if TYPE_CHECKING:
    import jax


def array_facts(value: Any, *, reads_value: bool = True) -> ArrayFacts | None:
    """Return the facts of a JAX array, a traced value or an abstract value; None for any other value.

    Args:
        value: The value.
        reads_value: Whether to read the value of a concrete 0-d array, which waits for its computation.
    """
    import jax

    if is_tracer(value):
        return traced_facts(value)
    cls, is_concrete = type(value), is_array(value)
    if not is_concrete and not issubclass(cls, (jax.ShapeDtypeStruct, jax.core.ShapedArray)):
        return None
    shape = plain_shape(value.shape)
    is_type = issubclass(cls, jax.core.ShapedArray)
    known = known_by_type(value) if is_type else _carried(value.sharding, shape)
    is_deleted = is_concrete and value.is_deleted()
    reads_value = reads_value and is_concrete and shape == () and not is_deleted
    return ArrayFacts(
        kind="array" if is_concrete else "abstract",
        type_name=type_name(value),
        shape=shape,
        dtype=dtype_name(value.dtype),
        bits=bits_per_element(value.dtype),
        weak_type=bool(getattr(value, "weak_type", False)),
        value=_scalar_text(value) if reads_value else None,
        is_deleted=is_deleted,
        is_unsharded=not is_concrete and not is_type and known.source == "unknown",
        known=known,
    )


def _carried(sharding: Any, shape: tuple[Dim, ...]) -> KnownSharding:
    """Return the sharding from a value's ``sharding`` attribute, unknown if it is not a JAX sharding."""
    if not is_sharding(sharding):
        return KnownSharding()
    return KnownSharding(source="array", sharding=sharding_facts(sharding, shape))


def _scalar_text(array: jax.Array) -> str | None:
    """Return the value of a concrete 0-d array as text, once it is computed; None if it cannot be read."""
    import jax

    copy = None if jax.numpy.issubdtype(array.dtype, jax.dtypes.extended) else host_copy(array)
    return None if copy is None else str(copy)


def host_copy(array: jax.Array) -> np.ndarray[Any, Any] | None:
    """Return the value of a concrete 0-d array, once it is computed; None if it cannot be read.

    Up to JAX 0.11, reading an array that is on several devices, or whose dtype numpy lacks, adds an array
    to ``jax.live_arrays()``. A temporary alias is read instead. An array that spans processes is not read.
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
        # The computation may have failed, a transfer guard may forbid the transfer, and up to JAX 0.6
        # the trace of a shard_map cannot be left. In each case the user's program continues.
        return None


def canonical_dtype_name(name: str) -> str:
    """Return the name of the dtype that JAX gives to a value of the host: float32 for float64, without x64.

    Args:
        name: Name of a dtype. That of a dtype that NumPy does not know, such as of keys, is returned.
    """
    import jax

    with contextlib.suppress(TypeError, ValueError, SyntaxError):
        return dtype_name(jax.dtypes.canonicalize_dtype(np.dtype(name)))
    return name


def is_committed(array: Any) -> bool:
    """Return whether an array was placed on its devices explicitly, so that JAX computes with it there."""
    committed = getattr(array, "committed", None)
    return bool(getattr(array, "_committed", True) if committed is None else committed)


def label_carrier(array: Any) -> Any:
    """Return the base array of a PRNG key array, which ``jax.live_arrays`` lists; any other array itself."""
    return getattr(array, "_base_array", array)


def buffer_key(value: Any) -> Hashable:
    """Return a key that arrays with the same buffers have in common; None for other values.

    It is the address of the data of an array on one device, and else the array itself: the buffers of an
    array on several devices cannot be compared without new arrays.
    """
    if not is_array(value) or value.is_deleted():
        return None
    array = label_carrier(value)
    if array.size and len(array.sharding.device_set) == 1:
        with contextlib.suppress(Exception):  # the backend has no addresses
            return next(iter(array.sharding.device_set)).id, array.unsafe_buffer_pointer()
    return id(array)


def shard_views(arrays: Sequence[jax.Array]) -> Iterator[tuple[jax.Array, jax.Array]]:
    """Yield each single-device array that ``array.addressable_shards`` created, with its ``array``.

    They share the buffers of ``array``. Reading the attribute would create them, so its cache is read.
    """
    # One call for all arrays is far faster than one per array, and most programs have no views.
    if not any("addressable_shards" in part for part in attribute_dicts(*arrays)):
        return
    for array in arrays:
        for part in attribute_dicts(array):
            for shard in part.get("addressable_shards", ()):
                view = getattr(shard, "_data", None)
                if view is not None and view is not array:
                    yield view, array


def shard_place(shard: Any) -> tuple[Any, tuple[tuple[int, int], ...] | None, int | None]:
    """Return the device of a ``jax.Shard``, its start and stop along each axis, and its replica id.

    The index and the replica id are None if the sharding does not define them. The data are not read.
    """
    shape = getattr(shard, "_global_shape", None)
    try:
        index = tuple(
            (piece.start or 0, dim if piece.stop is None else piece.stop)
            for piece, dim in zip(shard.index, shape or (), strict=True)
        )
        return shard.device, index, int(shard.replica_id)
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return shard.device, None, None


def traceback_of(array: Any) -> Any:
    """Return the traceback of an array's allocation, which is hashable; None where JAX recorded none."""
    try:
        return array.traceback
    except (AttributeError, RuntimeError):
        # The attribute is undocumented, and a deleted array may refuse access.
        return None


def has_tracebacks() -> bool:
    """Return whether this version of JAX records the traceback of each allocation."""
    return hasattr(private("array").ArrayImpl, "traceback")


def traceback_lines(traceback: Any) -> list[tuple[str, int, str]]:
    """Return file, line and function of each frame of such a traceback, innermost first."""
    return [(frame.file_name, frame.line_num, frame.function_name) for frame in traceback.frames]


def array_like(value: Any) -> ArrayFacts | None:
    """Return the facts of an array-like object; None unless its ``shape`` is a tuple and it has a dtype.

    JAX's own classes without a sharding, such as that of an argument of a lowered function, are abstract.
    """
    shape, dtype = attribute(value, "shape"), attribute(value, "dtype")
    if dtype is None or not issubclass(type(shape), tuple):
        return None
    shape = plain_shape(tuple.__iter__(shape))
    if any(isinstance(length, int) and length < 0 for length in shape):
        return None
    name, bits = _plain_dtype(dtype)
    known = _carried(attribute(value, "sharding"), shape)
    is_of_jax = str(type(value).__module__).partition(".")[0] == "jax"
    is_exact = bits_of_name(name) is not None and packed_nbytes(shape, bits) is not None
    nbytes = None if is_exact else attribute(value, "nbytes")
    return ArrayFacts(
        kind="abstract" if is_of_jax and known.source == "unknown" else "array-like",
        type_name=type_name(value),
        shape=shape,
        dtype=name,
        bits=bits,
        nbytes=nbytes if type(nbytes) is int and 0 <= nbytes <= LARGEST else None,
        weak_type=attribute(value, "weak_type") is True,
        known=known,
    )


def attribute(value: Any, name: str) -> Any:
    """Return an attribute of any object; None if it is missing or reading it raises."""
    try:
        return getattr(value, name, None)
    except Exception:
        # A user's property or ``__getattr__`` may raise anything.
        return None


def _plain_dtype(dtype: Any) -> tuple[str, int | None]:
    """Return the name and the bits of a numpy dtype, a class such as ``np.float32``, or a foreign dtype."""
    if not issubclass(type(dtype), np.dtype) and issubclass(type(dtype), type):
        try:
            numpy_dtype = np.dtype(dtype)
        except Exception:
            # The class may define its own ``dtype``, a descriptor that may raise anything.
            numpy_dtype = np.dtype(object)
        dtype = dtype if numpy_dtype.hasobject else numpy_dtype
    else:
        known = attribute(dtype, "numpy_dtype")  # of a dtype of TensorStore
        dtype = known if issubclass(type(known), np.dtype) else dtype
    if issubclass(type(dtype), np.dtype):
        return str(dtype), bits_per_element(dtype)
    itemsize = attribute(dtype, "itemsize")
    return plain_text(dtype), 8 * itemsize if type(itemsize) is int and itemsize >= 0 else None


_NOT_PARTITIONED = {"reducer": IN_A_REDUCER, "kernel": IN_A_KERNEL}


def traced_facts(value: Any) -> ArrayFacts:
    """Return the facts about a traced value that are known while JAX traces."""
    unpartitioned = unpartitioned_context()
    if unpartitioned:
        known = KnownSharding(unknown_because=_NOT_PARTITIONED[unpartitioned])
    else:
        known = _known_while_tracing(value)
    return ArrayFacts(
        kind="tracer",
        type_name=type_name(value),
        shape=plain_shape(value.shape),
        dtype=dtype_name(value.dtype),
        bits=bits_per_element(value.dtype),
        weak_type=bool(getattr(value, "weak_type", False)),
        called_under=_called_under(value),
        # Where XLA does not partition, the sharding in the type is meaningless.
        varying_axes=() if unpartitioned else _varying_axes(value),
        is_varying_known=not unpartitioned and _is_varying_known(),
        unreduced_axes=() if unpartitioned else _unreduced_axes(value),
        known=known,
    )


def _known_while_tracing(value: Any) -> KnownSharding:
    axes = _type_axes(value.aval)
    manual = {name for name, axis_type in zip(axes.names, axes.types, strict=False) if axis_type == "Manual"}
    batch = _batch_of(value)
    # The type of a batched value lacks the batched axes.
    known = KnownSharding() if batch else known_by_type(value.aval)
    if not manual and known.source == "unknown":
        return KnownSharding(unknown_because=COMPILER_DECIDES, batch=batch, is_pending=True)
    return KnownSharding(
        source="manual" if manual else "type",
        sharding=known.sharding,
        batch=batch,
        manual_axes=some_axes(axes, manual) if manual else None,
        is_pending=bool(manual) and "Auto" in axes.types,
    )


def known_by_type(aval: Any) -> KnownSharding:
    """Return the sharding in an abstract value's type.

    A type has a sharding only over Explicit mesh axes. On a mesh with Auto axes alone its spec is
    ``P(None)``, which is meaningless. With axes of both types, the sharding is incomplete and has no layout.
    The spec in a type has an entry for each array axis: the last ones of None, which the user need not have
    written, are left out. The devices are those of ``jax.set_mesh``; without it, they are not known.
    """
    import jax

    types = set(_type_axes(aval).types)
    if "Explicit" not in types:
        return KnownSharding()
    sharding = aval.sharding
    mesh = concrete_mesh(sharding.mesh)
    if mesh is not sharding.mesh:
        sharding = jax.sharding.NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)
    facts = sharding_facts(sharding, plain_shape(aval.shape), is_decided=types == {"Explicit"})
    described = facts.description
    if described is not None and described.spec is not None:
        spec = replace(described.spec, axes=without_last(described.spec.axes))
        facts = replace(facts, description=replace(described, spec=spec))
    return KnownSharding(source="type", sharding=facts)


def _type_axes(aval: Any) -> MeshAxes:
    """Return the mesh axes in an abstract value's type; none without a mesh, as always in JAX 0.4.38."""
    mesh = getattr(getattr(aval, "sharding", None), "mesh", None)
    return MeshAxes((), ()) if mesh is None else mesh_axes(mesh)


def _varying_axes(value: Any) -> tuple[str, ...]:
    """Return the manual mesh axes over which a value varies inside shard_map, sorted.

    They are ``aval.vma`` in JAX 0.6–0.9 and ``aval.mat.varying`` since 0.10.
    """
    aval = value.aval
    varying = getattr(getattr(aval, "mat", None), "varying", None) or getattr(aval, "vma", ())
    return tuple(sorted(map(str, varying or ())))


def _is_varying_known() -> bool:
    """Return whether JAX tracks varying axes here: inside shard_map since 0.6, unless check_vma is False."""
    state = getattr(private("config"), "_check_vma", None)
    return getattr(state, "value", False) is True


def _unreduced_axes(value: Any) -> tuple[str, ...]:
    """Return the manual mesh axes over which a value is a partial sum inside shard_map, since JAX 0.10."""
    return tuple(sorted(map(str, getattr(getattr(value.aval, "mat", None), "unreduced", ()))))


def _batch_of(value: Any) -> BatchAxes | None:
    """Return the batched axes of a value under vmap; None if there are none."""
    batch: BatchAxes | None = None
    for transformation, tracer, inner in _layers(value):
        if transformation == "shard_map":
            break  # outside shard_map, the value has another shape
        axis = getattr(tracer, "batch_dim", None)
        if isinstance(axis, int) and hasattr(inner, "shape"):
            batch = (batch or BatchAxes(axes=(), shape=())).inside(axis, plain_shape(inner.shape))
    return batch


def _called_under(value: Any) -> Transformation:
    """Return ``jit`` for a value that is staged, else the innermost transformation around it.

    If nothing is staged, the last tracer wraps a concrete value.
    """
    transformations, _, inner = zip(*_layers(value), strict=True)
    is_concrete = is_array_type(inner[-1]) or isinstance(inner[-1], (bool, int, float, complex))
    return transformations[0] if is_concrete else "jit"


def _layers(value: Any) -> Iterator[tuple[Transformation, Any, Any]]:
    """Yield the transformation of each nested tracer, the tracer, and the value that it wraps.

    Tracers of vmap, autodiff and shard_map wrap a value, which may be a tracer too. A tracer of jit comes
    last and wraps None.
    """
    while is_tracer(value):
        tracer = value
        if hasattr(tracer, "batch_dim"):
            transformation, value = "vmap", tracer.val
        elif hasattr(tracer, "primal"):
            transformation, value = "autodiff", tracer.primal
        else:
            transformation, value = "shard_map", getattr(tracer, "val", None)
        yield cast(Transformation, transformation), tracer, value


def is_ref(value: Any) -> bool:
    """Return whether a traced value is a Ref."""
    return type(value.aval).__name__ == "AbstractRef"


T = TypeVar("T")


def call_apart(function: Callable[[], T]) -> T:
    """Call a function with JAX's default settings and in 64 bits, and return its result.

    The function runs in a thread of its own, where the traces, the mesh and the other contexts of the calling
    thread do not apply. Transfer guards and ``jax_disable_jit`` do not apply either.
    """
    import jax
    import jax.experimental

    # Up to JAX 0.7, the function is experimental.
    is_stable = hasattr(jax, "enable_x64")
    enable_x64 = jax.enable_x64 if is_stable else jax.experimental.enable_x64  # type: ignore[attr-defined]
    outcome: Future[T] = Future()

    def call() -> None:
        try:
            with enable_x64(True), jax.transfer_guard("allow"), jax.disable_jit(False):
                outcome.set_result(function())
        except BaseException as error:
            outcome.set_exception(error)

    # A daemon: if the caller is interrupted while a device hangs, the program can still exit.
    threading.Thread(target=call, name="jax_array_info", daemon=True).start()
    return outcome.result()


def per_shard(function: Callable[[Any], Any], mesh: Any, spec: Any, out_spec: Any) -> Any:
    """Return ``jax.shard_map`` of a function, without its check that replicas are equal.

    Args:
        function: A function of a shard.
        mesh: Mesh of the array.
        spec: PartitionSpec of the array.
        out_spec: PartitionSpec of the result.
    """
    import jax

    if hasattr(jax, "shard_map"):
        return jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=out_spec, check_vma=False)
    from jax.experimental.shard_map import shard_map  # up to JAX 0.5

    return shard_map(function, mesh=mesh, in_specs=spec, out_specs=out_spec, check_rep=False)
