"""Devices, memory kinds, meshes and the processes that own them."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import LayoutError, ProcessError
from ..layouts.layout import DevicePlacement, Processes
from ..layouts.spec import MeshAxes
from ..text import plain_text
from .values import DeviceFacts, is_abstract_mesh, private

if TYPE_CHECKING:
    from ..layouts.links import Places


def device_name(device: object) -> str:
    """Return the name of a device; ``TFRT_CPU_2``, as in JAX up to 0.9, becomes ``cpu:2`` as in newer JAX."""
    return plain_text(device).replace("TFRT_CPU_", "cpu:")


def device_placement(devices: Collection[Any]) -> DevicePlacement:
    """Return the ids, the platform and the processes of some devices.

    Raises:
        LayoutError: If ``devices`` is empty.
    """
    if not devices:
        raise LayoutError("the mesh is empty: a sharding needs at least one device")
    ids = np.fromiter(map(attrgetter("id"), devices), np.int64, len(devices))
    owners = np.fromiter(map(attrgetter("process_index"), devices), np.int64, len(devices))
    processes: Processes = ()
    if (owners != owners[0]).any():
        processes = tuple(
            (int(owner), tuple(np.sort(ids[owners == owner]).tolist())) for owner in np.unique(owners)
        )
    return DevicePlacement(ids, next(iter(devices)).platform, processes)


def device_places(devices: Sequence[Any]) -> Places:
    """Return where some devices are, in their order.

    A GPU with a ``slice_index`` is in an NVLink domain, which may have several processes: it counts as one
    host. A process of TPUs with coordinates or slices is one, too. Of other devices only the process is
    known: several processes may be on one host.

    Args:
        devices: The devices, at least one.
    """
    from ..layouts.links import Places, wraps_of  # arrays need neither
    from .topology_names import TPUS

    platform = devices[0].platform
    hosts = _numbers(devices, "process_index")
    slices = _numbers(devices, "slice_index")
    assert hosts is not None
    if platform == "gpu" and slices is not None:
        return Places(hosts=slices)
    coords = _numbers(devices, "coords") if platform == "tpu" else None
    if coords is None or coords.ndim != 2:
        slices = slices if platform == "tpu" else None
        return Places(hosts=hosts, slices=slices, are_processes=slices is None)
    everywhere = _slice_of(devices[0]) or devices
    chips = _numbers(everywhere, "coords")
    assert chips is not None
    sides = tuple((1 + chips.max(0)).tolist())
    # A mesh may have only a part of a slice. Then the sides are unknown.
    if len(np.unique(chips, axis=0)) != math.prod(sides):
        return Places(hosts=hosts, slices=slices, coords=coords)
    known = next((tpu for tpu in TPUS.values() if tpu.device_kind == devices[0].device_kind), None)
    axes = known.axes if known else len(sides)
    wraps = wraps_of(known.torus if known else None, sides[:axes]) + (False,) * (len(sides) - axes)
    return Places(hosts=hosts, slices=slices, coords=coords, sides=sides, wraps=wraps)


def _numbers(devices: Sequence[Any], name: str) -> np.ndarray[Any, Any] | None:
    """Return an attribute of some devices as an array; None if one lacks it, or it is not a number."""
    try:
        return np.array([getattr(device, name) for device in devices], np.int64)
    except (AttributeError, TypeError, ValueError):
        return None


def _slice_of(device: Any) -> list[Any]:
    """Return all devices of a TPU's slice; empty if its client does not list them."""
    try:
        number = getattr(device, "slice_index", None)
        return [one for one in device.client.devices() if getattr(one, "slice_index", None) == number]
    except Exception:
        return []


def device_facts(devices: Collection[Any], ids: Any, processes: Processes) -> DeviceFacts:
    """Return the facts about the devices of an array.

    Args:
        devices: The devices.
        ids: Their ids, a numpy array of any shape.
        processes: The device ids of each process; empty if all belong to one process.
    """
    local, single = local_first(devices), len(devices) == 1
    here = local.client.process_index()
    return DeviceFacts(
        ids=tuple(np.sort(ids, axis=None).tolist()),
        name=device_name(local) if single else None,
        is_default=not single or _is_first_device(local),
        default_memory_kind=default_memory_kind(local),
        visible=_visible_devices(local.platform),
        process=here if processes or local.process_index != here else None,
    )


def _visible_devices(platform: str) -> int | None:
    """Return the number of devices of a platform; None for a platform that is only a compilation target."""
    import jax

    try:
        return jax.device_count(platform)
    except RuntimeError:
        return None


def _is_first_device(device: Any) -> bool:
    """Return whether a device has the id of the first device of its platform, of all processes."""
    import jax

    try:
        return bool(device.id == jax.devices(device.platform)[0].id)
    except RuntimeError:
        return False  # a platform that is only a compilation target


def local_first(devices: Collection[Any]) -> Any:
    """Return the first device of this process, or the first of all if this process has none."""
    first = next(iter(devices))
    # The device's own backend has the process index; it may not be the default backend.
    here = first.client.process_index()
    return next((device for device in devices if device.process_index == here), first)


def default_memory_kind(device: Any) -> str | None:
    """Return a device's default memory kind; None if its backend has no memory kinds."""
    try:
        return str(device.default_memory().kind)
    except Exception:
        # Backends without memory kinds raise different errors, most of them XlaRuntimeError.
        return None


class MeshPlacement(NamedTuple):
    """A mesh as plain values."""

    axes: MeshAxes
    ids: np.ndarray[Any, Any] | None
    """Device ids in the shape of the mesh; None for an abstract mesh, whose devices are numbered 0…n−1."""
    platform: str | None
    processes: Processes


@functools.lru_cache(maxsize=64)
def mesh_placement(mesh: Any) -> MeshPlacement:
    """Return the axes, device ids, platform and processes of a Mesh or AbstractMesh.

    The result is cached, since reading 65,536 device ids is slow. JAX itself keeps meshes alive.
    """
    if is_abstract_mesh(mesh):
        return MeshPlacement(_axes(mesh), None, None, ())
    found = device_placement([] if mesh.empty else mesh.devices.ravel().tolist())
    return MeshPlacement(_axes(mesh), found.ids.reshape(mesh.devices.shape), found.platform, found.processes)


def _axes(mesh: Any) -> MeshAxes:
    sizes = {plain_text(name): int(size) for name, size in mesh.shape.items()}
    return MeshAxes(tuple(sizes), tuple(sizes.values()), mesh_axis_types(mesh))


def mesh_axis_types(mesh: Any) -> tuple[str, ...]:
    """Return ``Auto``, ``Explicit`` or ``Manual`` for each axis; an empty tuple if the mesh has no types.

    In JAX 0.4.38 and 0.5.3, the types are a dict from type to names.
    """
    types = getattr(mesh, "axis_types", None)
    if types is None:
        return ()
    if isinstance(types, dict):
        by_name = {
            name: axis_type
            for axis_type, names in types.items()
            for name in (names if isinstance(names, tuple) else (names,))
        }
        types = tuple(by_name.get(name) for name in mesh.axis_names)
    return tuple(getattr(axis_type, "name", str(axis_type)) for axis_type in types)


def mesh_axes(mesh: Any) -> MeshAxes:
    """Return the names, sizes and types of a mesh's axes."""
    return mesh_placement(mesh).axes


def concrete_mesh(mesh: Any) -> Any:
    """Return the mesh of ``jax.set_mesh`` whose abstract mesh this is, else the mesh itself.

    JAX refuses to run a program on other devices than those of ``jax.set_mesh``, which exists since 0.7.
    """
    import jax

    if not is_abstract_mesh(mesh) or not hasattr(jax, "set_mesh"):
        return mesh
    found: Any = getattr(private("mesh"), "get_concrete_mesh", lambda: None)()
    return found if getattr(found, "abstract_mesh", None) == mesh and not found.empty else mesh


def mesh_context(mesh: Any) -> AbstractContextManager[Any]:
    """Return a context in which specs without a mesh refer to a mesh, and ``jax.shard_map`` uses it.

    JAX has ``set_mesh`` since 0.7 and ``use_mesh`` since 0.5. Before, the mesh itself is the context.
    Up to JAX 0.4, an AbstractMesh has no effect.
    """
    import jax

    if is_abstract_mesh(mesh):
        enter = getattr(jax.sharding, "use_abstract_mesh", nullcontext)
    else:
        enter = getattr(jax, "set_mesh", None) or getattr(jax.sharding, "use_mesh", None)
    context: AbstractContextManager[Any] = mesh if enter is None else enter(mesh)
    return context


def process_index() -> int:
    """Return ``jax.process_index()`` without starting a backend.

    Before a backend is started, the index is the one given to ``jax.distributed.initialize``. It is 0 if
    JAX is not loaded.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return 0
    state = _distributed_state()
    return int(jax.process_index() if state is None or has_backends() else state.process_id)


def process_count() -> int:
    """Return the number of processes, as ``process_index`` does: without starting a backend."""
    jax = sys.modules.get("jax")
    if jax is None:
        return 1
    state = _distributed_state()
    if state is None or has_backends():
        return int(jax.process_count())
    return 1 if state.client is None else int(state.num_processes)


def local_devices(platform: str) -> list[Any]:
    """Return the devices of a platform in this process; none if JAX has not started its backends."""
    jax = sys.modules.get("jax")
    if jax is None or not has_backends():
        return []
    try:
        return list(jax.local_devices(backend=platform or None))
    except RuntimeError:
        return []  # no such backend: the report is from another machine


class Peers(NamedTuple):
    """The processes of a program, and the client that connects them."""

    client: Any
    """The client of ``jax.distributed``. It is private, but the same from JAX 0.4.38 to 0.12."""
    process: int
    """Index of this process."""
    process_count: int


def peers() -> Peers | None:
    """Return the processes connected by ``jax.distributed``; None if this process is the only one.

    Raises:
        ProcessError: If there are several processes, but they are not connected.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return None
    state = _distributed_state()
    if state is not None and state.client is not None:
        found = Peers(state.client, state.process_id, state.num_processes)
        return found if found.process_count > 1 else None
    if has_backends() and jax.process_count() > 1:
        raise ProcessError(
            f"the {jax.process_count()} processes are not connected: call jax.distributed.initialize in each"
        )
    return None


def _distributed_state() -> Any:
    """Return the state of ``jax.distributed``; None where a later version of JAX has moved it."""
    try:
        return private("distributed").global_state
    except (ImportError, AttributeError):
        return None


def has_backends() -> bool:
    """Return whether JAX has started its backends; True if a later version of JAX has moved this."""
    try:
        return bool(private("xla_bridge").backends_are_initialized())
    except (ImportError, AttributeError):
        return True


def keep_collectives_on_loopback() -> None:
    """Make collectives between CPU processes listen on 127.0.0.1 only, if this version of JAX supports it.

    By default, Gloo listens on the address to which the machine's host name resolves.
    """
    # JAX looks the function up when it creates the backend, up to 0.4.38 in xla_extension.
    with contextlib.suppress(AttributeError):
        library = private("lib").xla_client._xla
        make = library.make_gloo_tcp_collectives
        library.make_gloo_tcp_collectives = functools.partial(make, hostname="127.0.0.1")


@contextlib.contextmanager
def only_cpu() -> Iterator[None]:
    """Keep JAX on the CPU inside the block, unless it has already started its backends.

    An accelerator can belong to another process. After the block, the program can still start its own: the
    setting is restored, and a backend that was started on the CPU is cleared.
    """
    import jax

    if has_backends():
        yield
        return
    platforms = jax.config.jax_platforms
    jax.config.update("jax_platforms", "cpu")
    try:
        yield
    finally:
        if has_backends():
            import jax.extend.backend

            jax.extend.backend.clear_backends()
        jax.config.update("jax_platforms", platforms)


_LONGEST_PIECE = 2**20  # JAX 0.4.38 fails at messages of 4 MiB
_LONGEST_TRANSFER = 5.0  # seconds to read a piece that has been written
_LONGEST_WAIT = 0.5  # seconds of one call of C++, during which Python handles no signal


class KeyValueStore:
    """One folder of the store. Its keys are paths, with slashes."""

    def __init__(self, client: Any, folder: str) -> None:
        self._client = client
        self._folder = folder

    def set(self, key: str, text: str) -> None:
        """Write a short text, and replace any earlier text."""
        self._client.key_value_set(f"{self._folder}/{key}", text, allow_overwrite=True)

    def get(self, key: str, seconds: float) -> str | None:
        """Return a short text once it is written; None after the time limit. Ctrl-C ends the wait."""
        until = time.monotonic() + seconds
        left = seconds
        while True:
            milliseconds = max(1, int(min(left, _LONGEST_WAIT) * 1000))
            try:
                return str(self._client.blocking_key_value_get(f"{self._folder}/{key}", milliseconds))
            except RuntimeError as error:
                # An XlaRuntimeError, or a JaxRuntimeError since JAX 0.8: only the message has the status.
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise
            left = until - time.monotonic()
            if left <= 0:
                return None

    def entries(self, key: str) -> dict[str, str]:
        """Return the short texts currently below a key, by the rest of their keys."""
        prefix = f"{self._folder}/{key}/"
        return {path.removeprefix(prefix): text for path, text in self._client.key_value_dir_get(prefix)}

    def delete(self, key: str) -> None:
        """Remove a text, if it exists, and all texts below its key."""
        self._client.key_value_delete(f"{self._folder}/{key}")

    def write(self, key: str, text: str) -> None:
        """Write a long text in pieces. The first character marks the last piece (``.``) or not (``+``)."""
        for start in range(0, len(text), _LONGEST_PIECE):
            end = start + _LONGEST_PIECE
            self.set(f"{key}/{start // _LONGEST_PIECE}", ("." if end >= len(text) else "+") + text[start:end])

    def read(self, key: str, seconds: float) -> str | None:
        """Return a long text once it is written; None if a piece is removed or late."""
        pieces = ["+"]
        while pieces[-1].startswith("+"):
            piece = self.get(f"{key}/{len(pieces) - 1}", max(seconds, _LONGEST_TRANSFER))
            if piece is None:
                return None
            pieces.append(piece)
        return "".join(piece[1:] for piece in pieces)
