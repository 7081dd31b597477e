"""Devices of a TPU or GPU topology that is not here, and programs lowered for them."""

from __future__ import annotations

import contextlib
import copy
import glob
import importlib.metadata
import importlib.util
import itertools
import math
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import TopologyError
from ..text import plain_text, printable
from .devices import default_memory_kind
from .shardings import is_named
from .topology_names import GPUS, GPUS_PER_HOST, TPUS, Topology, misfit, target_config
from .values import is_abstract_mesh, is_mesh, is_sharding, private, type_name

# Without these, libtpu asks Google Cloud for the TPU of this machine, and prints what it does not find. Any
# valid value will do: a topology has its own type and hosts.
_NO_TPU_HERE = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    # Rematerializations are warnings, which libtpu does not print by default.
    "TPU_STDERR_LOG_LEVEL": "1",
}
# Without it, libtpu keeps a lock, and no other process can use the TPU of this machine.
_SHARED_LIBTPU = {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
# Without it, the plugin looks for a GPU and for NVIDIA's libraries, which compilation does not need.
_NO_CUDA_CHECK = {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
_CUDA_PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")
# JAX's default is 2 devices for a chip of v4, but a program on v4 has one.
_CHIP_CONFIG = {"v4": {"chip_config_name": "megacore"}}
_GOOGLE_VENDOR = "0x1ae0"
_FIRST_JAX_FOR_GPUS = (0, 10)
COMPILE_ONLY = "CompileOnlyPyClient"
"""The class of the client of devices that can only be compiled for."""

_lock = threading.Lock()
_settings: dict[str, str] = {}
"""The environment variables with which libtpu was loaded here."""


def libtpu_log_level() -> str | None:
    """Return the level at which libtpu was set to log when it was loaded here; None if it was not."""
    return _settings.get("TPU_STDERR_LOG_LEVEL")


def topology_devices(topology: Topology) -> list[Any]:
    """Return the devices of a topology, which can only be compiled for.

    No accelerator of this machine is started, locked or allocated on.

    Raises:
        TopologyError: If the compiler is not installed, or rejects the topology.
    """
    find = _gpus if topology.is_gpu else _tpus
    require_support(topology)
    _require_compiler(topology)
    with _lock:
        try:
            devices = find(topology)
        except (RuntimeError, ValueError) as error:
            raise TopologyError(f"topology {topology.text}: {_first_line(error)}") from error
    if len(devices) != topology.device_count:
        raise TopologyError(
            f"topology {topology.text} has {topology.device_count} devices, but {len(devices)} in this "
            "version of its compiler: use another version of JAX, or another topology"
        )
    return devices


def topology_of(device: Any) -> Topology | None:
    """Return the topology of a device that can only be compiled for.

    None for a device that is here, and for one of several slices.
    """
    client: Any = getattr(device, "client", None)
    if type(client).__name__ != COMPILE_ONLY:
        return None
    devices = client.devices()
    for kind, gpu in GPUS.items():
        if gpu.name == device.device_kind:
            return Topology(kind, (len(devices),), len(devices))
    for kind, tpu in TPUS.items():
        if tpu.device_kind == device.device_kind:
            sides = tuple(1 + max(side) for side in zip(*(one.coords for one in devices), strict=True))
            is_whole = math.prod(sides) * tpu.devices_per_chip == len(devices)
            return Topology(kind, sides[: tpu.axes], len(devices)) if is_whole else None
    return None


def mesh_order(devices: Sequence[Any], sizes: Mapping[str, int], *, splits_axes: bool = False) -> Any:
    """Return devices as an array in the shape of a mesh, in the order of ``jax.make_mesh``.

    Args:
        devices: The devices, as many as the mesh has.
        sizes: Size of each mesh axis by name.
        splits_axes: Whether several mesh axes can share a side of the torus. On v5e, they always can, as in
            ``jax.make_mesh``.

    Raises:
        NotImplementedError: If the mesh axes cannot be assigned to the sides of the torus.
    """
    from jax.experimental import mesh_utils

    splits_axes = splits_axes or devices[0].device_kind == TPUS["v5e"].device_kind
    return mesh_utils.create_device_mesh([*sizes.values()], devices, allow_split_physical_axes=splits_axes)


def usual_order(devices: Sequence[Any], sizes: Mapping[str, int]) -> list[Any] | None:
    """Return the devices of a mesh in the order of ``jax.make_mesh``; None if it refuses them.

    Args:
        devices: The devices of the mesh, in any order.
        sizes: Size of each mesh axis by name.
    """
    here = set(devices)
    try:
        listed = [device for device in devices[0].client.devices() if device in here]
    except AttributeError:
        listed = []
    if len(listed) != len(devices):
        listed = sorted(devices, key=lambda device: device.id)
    try:
        return list(mesh_order(listed, sizes).ravel())
    except Exception:
        # No assignment of the axes to the sides of the torus, or devices that mesh_utils does not know.
        return None


def require_support(topology: Topology) -> None:
    """Raise an error if this version of JAX cannot compile for a topology."""
    version = jax_version()
    if topology.is_gpu and tuple(map(int, version.split(".")[:2])) < _FIRST_JAX_FOR_GPUS:
        raise TopologyError(
            f"topology {topology.text}: on JAX {version}, the compiler for GPUs does not return the program. "
            "Use JAX 0.10 or later, or a TPU"
        )


def jax_version() -> str:
    """Return JAX's version."""
    import jax

    return str(jax.__version__)


def _require_compiler(topology: Topology) -> None:
    """Raise an error that says what to install, if the compiler for a topology is not here."""
    if topology.is_gpu and _cuda_plugin() is None:
        raise TopologyError(
            f"topology {topology.text} needs JAX's CUDA plugin, which is not installed: "
            f'pip install "{_required("jax-cuda12-plugin")}" (license: Apache-2.0). No GPU is needed'
        )
    if not topology.is_gpu and not _has_libtpu():
        raise TopologyError(
            f"topology {topology.text} needs Google's compiler for TPUs, which is not installed: "
            f'pip install "{_required("libtpu")}" (license: Google Cloud Platform Terms of Service). '
            "No TPU is needed"
        )


def _tpus(topology: Topology) -> list[Any]:
    """Return the devices of a TPU topology."""
    from jax.experimental import topologies

    here = {} if _has_tpu() else _NO_TPU_HERE
    is_loaded = private("lib").xla_client.pjrt_plugin_loaded("tpu")
    with _environment({**here, **_SHARED_LIBTPU}):
        if not is_loaded:
            _settings.update({name: os.environ[name] for name in here})
        config = _CHIP_CONFIG.get(topology.kind, {})
        return list(topologies.get_topology_desc(topology.text, "tpu", **config).devices)


def _has_libtpu() -> bool:
    """Return whether libtpu is installed, as JAX finds it."""
    path = os.environ.get("TPU_LIBRARY_PATH")
    return bool(path and os.path.isfile(path)) or importlib.util.find_spec("libtpu") is not None


def _has_tpu() -> bool:
    """Return whether this machine has a TPU, without starting it."""
    vendors = map(Path, glob.glob("/sys/bus/pci/devices/*/vendor"))
    try:
        return any(vendor.read_text().strip() == _GOOGLE_VENDOR for vendor in vendors)
    except OSError:
        return True


def _gpus(topology: Topology) -> list[Any]:
    """Return the devices of a GPU topology."""
    from jax.experimental import topologies

    gpus = min(topology.device_count, GPUS_PER_HOST)
    options = {
        "target_config": target_config(GPUS[topology.kind]),
        "topology": f"1x{topology.device_count // gpus}x{gpus}",
    }
    with _environment(_NO_CUDA_CHECK):
        try:
            found = topologies.get_topology_desc(topology.text, "cuda", **options)
        except NotImplementedError:
            # JAX drops a plugin that finds no GPU.
            description = _cuda_factory()(topology.text, **options)
            found = topologies.TopologyDescription(description._make_compile_only_devices())
    return list(found.devices)


def _cuda_plugin() -> str | None:
    """Return the name of the CUDA plugin that is installed."""
    return next((name for name in _CUDA_PLUGINS if importlib.util.find_spec(name)), None)


def _cuda_factory() -> Any:
    """Return the CUDA plugin's function for topologies, without adding its backend to those of JAX."""
    cuda = str(_cuda_plugin()).split("_")[1]
    bridge = private("xla_bridge")
    backends = bridge._backend_factories
    had_backend = "cuda" in backends
    importlib.import_module(f"jax_plugins.xla_{cuda}").initialize()
    if not had_backend:
        backends.pop("cuda", None)
    return bridge._topology_factories["cuda"]


def _required(package: str) -> str:
    """Return the requirement that JAX has for a package, such as ``libtpu==0.0.50.*``."""
    version = importlib.metadata.version("jax")
    if package != "libtpu":
        return f"{package}=={version}"
    for requirement in importlib.metadata.requires("jax") or ():
        if found := re.match(r"libtpu ?(==[\w.*]+)", requirement):
            return f"libtpu{found[1]}"
    return "libtpu"


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables that are not set, inside a with block."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _first_line(error: Exception) -> str:
    """Return the first line of an error of a compiler, without the code of its kind."""
    line = next((line for line in plain_text(error).splitlines() if line.strip()), type(error).__name__)
    return printable(re.sub(r"^[A-Z_]+: ", "", line.strip()))


_SHARDINGS = ("in_shardings", "out_shardings", "intermediate_shardings")
# Autotuning would measure kernels on a GPU, and Triton is compiled for the GPU that is here.
_GPU_OPTIONS = (("xla_gpu_autotune_level", 0), ("xla_gpu_enable_triton_gemm", False))
_CALLBACK_ERROR = "is different from the lowering platform"


class Lowering(NamedTuple):
    """A program that is lowered for a topology."""

    lowered: Any
    """A ``jax.stages.Lowered``. Its ``compile`` returns a program for the topology, which cannot run."""

    traced_on: str | None
    """Devices with which the function was traced: a platform such as ``CPU``, or another topology. None if
    they are those of the topology."""


def lowered_for_topology(traced: Any, topology: Topology) -> Lowering:
    """Lower a traced function for a topology.

    The mesh is placed on a TPU as ``jax.make_mesh`` places it; a mesh whose devices are not in the order of
    their ids keeps its order. A mesh of the topology itself is kept.

    Args:
        traced: A ``jax.stages.Traced``.
        topology: The topology.

    Raises:
        TopologyError: If the topology does not have as many devices as the program, or needs a
            compiler that is not installed.
    """
    require_support(topology)
    lowered = _lowered(traced, topology)
    try:
        places = lowered_devices(lowered)
        own = topology_of(places[0]) if places else None
        if own == topology:
            return Lowering(lowered, None)
        platform = str(places[0].platform).upper() if places else "CPU"
        return Lowering(_on_topology(lowered, topology), own.text if own else platform)
    except (AttributeError, KeyError) as error:
        raise TopologyError(
            f"topology {topology.text}: not supported on JAX {jax_version()}, which lacks {error}: "
            "use a newer JAX"
        ) from error


def _lowered(traced: Any, topology: Topology) -> Any:
    """Lower a traced function for the platform of a topology, on the devices of its arguments."""
    try:
        lowered = traced.lower(lowering_platforms=("cuda" if topology.is_gpu else "tpu",))
    except ValueError as error:
        if _CALLBACK_ERROR not in str(error):
            raise
        raise TopologyError(_callback_problem(topology)) from error
    if lowered._lowering.compile_args.get("host_callbacks"):  # up to JAX 0.5
        raise TopologyError(_callback_problem(topology))
    return lowered


def _callback_problem(topology: Topology) -> str:
    """Return the message for a program that calls back into Python."""
    return (
        f"topology {topology.text}: JAX cannot compile a host callback for it: remove jax.debug.print, "
        "jax.debug.callback, io_callback and pure_callback from the function"
    )


def _on_topology(lowered: Any, topology: Topology) -> Any:
    """Return a lowered program with the devices of a topology."""
    arguments = dict(lowered._lowering.compile_args)
    shardings = [*itertools.chain.from_iterable(arguments[name] or () for name in _SHARDINGS)]
    places = lowered_devices(lowered)
    count = len(places) or int(arguments["num_devices"])
    if count != topology.device_count:
        subject = "the mesh" if _meshes(shardings) else "the program"
        raise TopologyError(misfit(topology, count, subject))
    devices = topology_devices(topology)
    ordered = _in_mesh_order(devices, places, _meshes(shardings), topology)
    placed = _Placement(dict(zip(places, ordered, strict=False)), ordered)
    for name in _SHARDINGS:
        if arguments[name] is not None:
            arguments[name] = tuple(map(placed.sharding, arguments[name]))
    arguments["context_mesh"] = placed.mesh(arguments["context_mesh"])
    arguments["backend"] = devices[0].client
    device_list = private("lib").xla_client.DeviceList(tuple(ordered))
    if "device_assignment" not in arguments:
        return copied(lowered, compile_args=arguments, _executable=None, _device_list=device_list)
    arguments["device_assignment"] = device_list  # up to JAX 0.7
    return copied(lowered, compile_args=arguments, _executable=None)


def copied(lowered: Any, **changed: Any) -> Any:
    """Return a copy of a lowered program with other private attributes of its computation."""
    result, computation = copy.copy(lowered), copy.copy(lowered._lowering)
    for name, value in changed.items():
        setattr(computation, name, value)
    result._lowering = computation
    return result


def lowered_devices(lowered: Any) -> list[Any]:
    """Return the devices for which a program is lowered, in XLA's order.

    Empty for an abstract mesh, and where this version of JAX does not have them.
    """
    computation = getattr(lowered, "_lowering", None)
    arguments = getattr(computation, "compile_args", None) or {}
    assigned = arguments.get("device_assignment", getattr(computation, "_device_list", None))
    return [] if assigned is None else list(assigned)


def with_compiler_options(lowered: Any, topology: Topology | None) -> Any:
    """Return a lowered program with the options of a compiler that has no device."""
    if topology is None or not topology.is_gpu:
        return lowered
    options = (*_GPU_OPTIONS, *lowered._lowering._compiler_options_kvs)
    return copied(lowered, _compiler_options_kvs=options, _executable=None)


def _meshes(shardings: Sequence[Any]) -> list[Any]:
    """Return the meshes of shardings, the largest first."""
    found = [one.mesh for one in shardings if is_sharding(one) and is_named(one)]
    return sorted(found, key=lambda mesh: -mesh.size)


def _in_mesh_order(
    devices: Sequence[Any], places: Sequence[Any], meshes: Sequence[Any], topology: Topology
) -> list[Any]:
    """Return the devices of a topology in the order of the program's devices."""
    if topology.is_gpu or not meshes or meshes[0].size != len(devices):
        return list(devices)  # XLA accepts GPUs in order only
    ids = [device.id for device in places]
    if ids != sorted(ids):
        ranks = np.argsort(np.argsort(ids))
        return [devices[rank] for rank in ranks]
    try:
        return list(mesh_order(devices, meshes[0].shape).ravel())
    except (ValueError, NotImplementedError):
        # No assignment of the mesh's axes to the axes of the torus.
        return list(devices)


class _Placement:
    """Devices of a topology in the places of others."""

    def __init__(self, moved: Mapping[Any, Any], ordered: Sequence[Any]) -> None:
        self._moved = moved
        self._ordered = ordered

    def mesh(self, mesh: Any) -> Any:
        """Return a mesh on the topology; anything else unchanged."""
        import jax

        if not is_mesh(mesh) or getattr(mesh, "empty", False):
            return mesh
        shape = tuple(mesh.shape.values())
        if is_abstract_mesh(mesh):
            if mesh.size != len(self._ordered):
                return mesh
            devices = np.array(self._ordered, object).reshape(shape)
        else:
            moved = [self._moved[device] for device in mesh.devices.flat]
            devices = np.array(moved, object).reshape(shape)
        types = getattr(mesh, "axis_types", None)
        # In JAX 0.4.38 and 0.5.3, the types are a dict that the constructor does not always accept.
        if types is None or isinstance(types, dict):
            return jax.sharding.Mesh(devices, mesh.axis_names)
        return jax.sharding.Mesh(devices, mesh.axis_names, axis_types=types)

    def sharding(self, sharding: Any) -> Any:
        """Return a sharding on the topology; JAX's markers of an unspecified one unchanged."""
        import jax

        if not is_sharding(sharding):
            return sharding
        if is_named(sharding):
            return jax.sharding.NamedSharding(
                self.mesh(sharding.mesh),
                sharding.spec,
                memory_kind=_memory_kind(sharding),
                _logical_device_ids=getattr(sharding, "_logical_device_ids", None),
            )
        devices = [self._moved[device] for device in sharding._device_assignment]
        if len(devices) == 1:
            return jax.sharding.SingleDeviceSharding(devices[0], memory_kind=_memory_kind(sharding))
        if hasattr(sharding, "_hlo_sharding"):
            kinds = {"memory_kind": _memory_kind(sharding)}
            return type(sharding)(devices, sharding._hlo_sharding, **kinds)
        raise AttributeError(f"a way to place a {type_name(sharding)}")


def _memory_kind(sharding: Any) -> str | None:
    """Return the memory kind of a sharding; None for the default of its devices."""
    kind = sharding.memory_kind
    if kind is None or is_abstract_mesh(getattr(sharding, "mesh", None)):
        return None
    default = default_memory_kind(next(iter(sharding.device_set)))
    return None if kind == default else str(kind)
