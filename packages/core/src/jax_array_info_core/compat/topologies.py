"""Devices of a TPU or GPU topology that is not here, and their order in a mesh, as JAX places them."""

from __future__ import annotations

import contextlib
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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.errors import TopologyError
from ..base.text import plain_text, printable
from ..geometry.layouts.notation import format_mesh
from . import private
from .topology_names import GPUS, GPUS_PER_HOST, TPUS, Topology, require_devices, target_config

# Without these, libtpu asks Google Cloud for the TPU of this machine, and prints what it does not find. Any
# valid value will do: a topology has its own type and hosts.
_NO_TPU_HERE = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
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
            raise TopologyError(f"topology {topology.name}: {_first_line(error)}") from error
    if len(devices) != topology.device_count:
        raise TopologyError(
            f"topology {topology.name} has {topology.device_count} devices, but {len(devices)} in this "
            "version of its compiler: use another version of JAX, or another topology"
        )
    return devices


def topology_of(device: Any) -> Topology | None:
    """Return the topology of a device that can only be compiled for; None for a device that is here."""
    client: Any = getattr(device, "client", None)
    if type(client).__name__ != COMPILE_ONLY:
        return None
    devices = client.devices()
    for kind, gpu in GPUS.items():
        if gpu.name == device.device_kind:
            return Topology(kind, (len(devices),), len(devices))
    for kind, tpu in TPUS.items():
        if tpu.device_kind == device.device_kind:
            sides = tuple(1 + max(side) for side in zip(*(peer.coords for peer in devices), strict=True))
            # A device of a single slice has no index.
            slices = len({getattr(peer, "slice_index", 0) for peer in devices})
            is_whole = math.prod(sides) * tpu.devices_per_chip * slices == len(devices)
            return Topology(kind, sides[: tpu.axes], len(devices), slices) if is_whole else None
    return None


def require_support(topology: Topology) -> None:
    """Raise an error if this version of JAX cannot compile for a topology."""
    import jax

    if topology.is_gpu and jax.__version_info__ < _FIRST_JAX_FOR_GPUS:
        raise TopologyError(
            f"topology {topology.name}: on JAX {jax.__version__}, the compiler for GPUs does not return the "
            "program. Use JAX 0.10 or later, or a TPU"
        )


def _require_compiler(topology: Topology) -> None:
    """Raise an error that says what to install, if the compiler for a topology is not here."""
    if topology.is_gpu and _cuda_plugin() is None:
        raise TopologyError(
            f"topology {topology.name} needs JAX's CUDA plugin, which is not installed: "
            f'pip install "{_required("jax-cuda12-plugin")}" (license: Apache-2.0). No GPU is needed'
        )
    if not topology.is_gpu and not _has_libtpu():
        raise TopologyError(
            f"topology {topology.name} needs Google's compiler for TPUs, which is not installed: "
            f'pip install "{_required("libtpu")}" (license: Google Cloud Platform Terms of Service). '
            "No TPU is needed"
        )


def _tpus(topology: Topology) -> list[Any]:
    """Return the devices of a TPU topology."""
    from jax.experimental import topologies

    here = {} if _has_tpu() else _NO_TPU_HERE
    with _environment({**here, **_SHARED_LIBTPU}):
        options: dict[str, Any] = dict(_CHIP_CONFIG.get(topology.kind, {}))
        if topology.slice_count > 1:
            options["num_slices"] = topology.slice_count
        return list(topologies.get_topology_desc(topology.slice_text, "tpu", **options).devices)


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
            described = topologies.get_topology_desc(topology.text, "cuda", **options)
        except NotImplementedError:
            # JAX drops a plugin that finds no GPU.
            description = _cuda_factory()(topology.text, **options)
            described = topologies.TopologyDescription(description._make_compile_only_devices())
    return list(described.devices)


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
        if match := re.match(r"libtpu ?(==[\w.*]+)", requirement):
            return f"libtpu{match[1]}"
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


def ordered_devices(
    topology: Topology,
    sizes: Mapping[str, int],
    dcn: Mapping[str, int] | None = None,
    *,
    splits_axes: bool = False,
) -> tuple[Any, str]:
    """Return the devices of a topology as an array in the shape of a mesh, and the name of their order.

    Devices of one slice are in the order of ``jax.make_mesh``. Those of several slices are in the order of
    ``mesh_utils.create_hybrid_device_mesh``, which ``jax.make_mesh`` refers to.

    Args:
        topology: The topology.
        sizes: Size of each mesh axis by name, in the order of the mesh.
        dcn: Number of slices along each mesh axis that spans slices, such as ``{"data": 2}``. It divides the
            size of the axis; the rest of the axis is inside a slice. None for the only axis that can span all
            slices.
        splits_axes: Whether several mesh axes can share a side of the torus. On v5e, they always can, as in
            ``jax.make_mesh``.

    Raises:
        TopologyError: If the mesh has another number of devices than the topology, if its axes cannot be
            assigned to the slices or to the sides of the torus, or if the compiler is not installed.
    """
    require_devices(topology, math.prod(sizes.values()), "the mesh")
    slices = slices_along(topology, sizes, dcn)
    devices = topology_devices(topology)
    try:
        ordered = mesh_order(devices, sizes, slices, splits_axes=splits_axes)
    except (NotImplementedError, ValueError) as error:
        reason = printable(str(error)).partition(". ")[0].rstrip(".")
        fitting = " or ".join(map(format_mesh, _fitting(topology, devices, sizes, slices)))
        fix = f"a mesh of {printable(fitting)} fits" if fitting else "change the sizes"
        raise TopologyError(f"topology {topology.name}: {reason}: {fix}") from error
    if slices is None:
        return ordered, "mesh_utils.create_device_mesh" if splits_axes else "jax.make_mesh"
    spanning = {name: count for name, count in slices.items() if count > 1}
    return ordered, f"mesh_utils.create_hybrid_device_mesh with slices along {format_mesh(spanning)}"


_MOST_FITTING = 3
_MOST_TRIED = 8


def _fitting(
    topology: Topology, devices: Sequence[Any], sizes: Mapping[str, int], slices: Mapping[str, int] | None
) -> list[dict[str, int]]:
    """Return meshes with the same axes that fit a topology, those of the nearest sizes first."""
    across = [1 if slices is None else slices[name] for name in sizes]
    inside = topology.device_count // topology.slice_count
    sides = [side for side in (*topology.sides, inside // math.prod(topology.sides)) if side > 1]
    shapes = {
        tuple(
            count * math.prod(side for side, taken in zip(sides, owners, strict=True) if taken == axis)
            for axis, count in enumerate(across)
        )
        for owners in itertools.product(range(len(across)), repeat=len(sides))
    }
    fitting: list[dict[str, int]] = []
    for shape in sorted(shapes, key=lambda shape: (_distance(shape, [*sizes.values()]), shape))[:_MOST_TRIED]:
        mesh = dict(zip(sizes, shape, strict=True))
        with contextlib.suppress(NotImplementedError, ValueError):
            mesh_order(devices, mesh, slices)
            fitting.append(mesh)
    return fitting[:_MOST_FITTING]


def _distance(shape: Sequence[int], wanted: Sequence[int]) -> float:
    """Return how far the sizes of two meshes are apart, in factors of two."""
    return sum(abs(math.log2(size / other)) for size, other in zip(shape, wanted, strict=True))


def mesh_order(
    devices: Sequence[Any],
    sizes: Mapping[str, int],
    slices: Mapping[str, int] | None = None,
    *,
    splits_axes: bool = False,
) -> Any:
    """Return devices as an array in the shape of a mesh, in the order of JAX.

    Args:
        devices: The devices, as many as the mesh has.
        sizes: Size of each mesh axis by name.
        slices: Number of slices along each mesh axis; None for devices of one slice.
        splits_axes: Whether several mesh axes can share a side of the torus. On v5e, they always can, as in
            ``jax.make_mesh``.

    Raises:
        NotImplementedError: If the mesh axes cannot be assigned to the sides of the torus.
    """
    from jax.experimental import mesh_utils

    splits_axes = splits_axes or devices[0].device_kind == TPUS["v5e"].device_kind
    options = {"allow_split_physical_axes": splits_axes}
    if slices is None:
        return mesh_utils.create_device_mesh([*sizes.values()], devices, **options)
    within = [size // slices[name] for name, size in sizes.items()]
    return mesh_utils.create_hybrid_device_mesh(within, [slices[name] for name in sizes], devices, **options)


def usual_order(
    devices: Sequence[Any], sizes: Mapping[str, int], slices: Mapping[str, int] | None = None
) -> Any | None:
    """Return the devices of a mesh in the order of JAX, in its shape; None if JAX refuses them.

    Args:
        devices: The devices of the mesh, in any order.
        sizes: Size of each mesh axis by name.
        slices: Number of slices along each mesh axis; None for devices of one slice.
    """
    here = set(devices)
    try:
        listed = [device for device in devices[0].client.devices() if device in here]
    except AttributeError:
        listed = []
    if len(listed) != len(devices):
        listed = sorted(devices, key=lambda device: device.id)
    try:
        return mesh_order(listed, sizes, slices)
    except Exception:
        # No assignment of the axes to the sides of the torus, or devices that mesh_utils does not know.
        return None


def slices_along(
    topology: Topology, sizes: Mapping[str, int], dcn: Mapping[str, int] | None
) -> dict[str, int] | None:
    """Return the number of slices along each mesh axis; None for a topology of one slice.

    Args:
        topology: The topology.
        sizes: Size of each mesh axis by name.
        dcn: Number of slices along some axes; None for the only axis that can span all slices.

    Raises:
        TopologyError: If there are several ways, or none.
    """
    if not dcn and topology.slice_count > 1:
        able = [name for name, size in sizes.items() if size % topology.slice_count == 0]
        if len(able) != 1:
            raise TopologyError(
                f"topology {topology.name} has {topology.slice_count} slices, and "
                f"{'several axes' if able else 'no axis'} of the mesh {printable(format_mesh(sizes))} can "
                "span all of them: name the axes that span them with dcn, with the number of slices along "
                "each"
            )
        dcn = {able[0]: topology.slice_count}
    if dcn and (problem := next(_dcn_problems(topology, sizes, dcn), None)):
        raise TopologyError(f"topology {topology.name}: {problem}")
    if dcn is None or topology.slice_count == 1:
        return None
    return {name: int(dcn.get(name, 1)) for name in sizes}


def has_regular_slices(slices: NDArray[np.int64]) -> bool:
    """Return whether each group of devices along some mesh axes has as many of each slice that it is in.

    libtpu ends the process when it compiles some collectives of other groups.

    Args:
        slices: Slice of each device, in the shape of the mesh.
    """
    axes = range(slices.ndim)
    for size in range(1, slices.ndim + 1):
        for along in itertools.combinations(axes, size):
            groups = np.moveaxis(slices, along, range(-size, 0))
            for group in groups.reshape(-1, math.prod(groups.shape[slices.ndim - size :])):
                if len(set(np.unique(group, return_counts=True)[1].tolist())) > 1:
                    return False
    return True


def _dcn_problems(topology: Topology, sizes: Mapping[str, int], dcn: Mapping[str, int]) -> Iterator[str]:
    """Yield why a mesh cannot have its slices along some axes."""
    for name, count in dcn.items():
        if name not in sizes:
            yield f"dcn names {printable(repr(name))}, and the mesh has {', '.join(map(printable, sizes))}"
        elif count < 1 or sizes[name] % count:
            yield (
                f"dcn has {count} slices along mesh axis {printable(name)}, whose size "
                f"{sizes[name]} is not a multiple of it"
            )
    if math.prod(dcn.values()) != topology.slice_count:
        yield (
            f"dcn {printable(format_mesh(dcn))} has {math.prod(dcn.values())} slices, and the topology has "
            f"{topology.slice_count}"
        )
