"""Names of TPU and GPU topologies, such as ``v5p:2x2x2``, ``v5p-128``, ``2*v5p:2x2x2`` and ``h100:8``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..base.errors import TopologyError
from ..base.quantities import counted, format_number
from ..base.text import printable
from ..geometry.layouts.links import Torus
from .values import type_name


class Gpu(NamedTuple):
    """Properties of a GPU, as its driver reports them."""

    name: str
    """Name of the product."""

    capability: tuple[int, int]
    """Compute capability."""

    core_count: int
    """Streaming multiprocessors."""

    units_per_core: int
    """Units for float32 in each."""

    clock_ghz: float
    """Clock rate in GHz."""

    memory_nbytes: int
    """Bytes of device memory."""

    bandwidth: int
    """Bandwidth of device memory in bytes per second."""

    cache_nbytes: int
    """Bytes of the L2 cache."""

    shared_nbytes: int
    """Bytes of shared memory of each multiprocessor. A block can have 1 KiB less."""


GPUS = {
    "a100": Gpu(
        name="NVIDIA A100-SXM4-80GB",
        capability=(8, 0),
        core_count=108,
        units_per_core=64,
        clock_ghz=1.41,
        memory_nbytes=85_100_068_864,
        bandwidth=2_039_040_000_000,
        cache_nbytes=41_943_040,
        shared_nbytes=167_936,
    ),
    "h100": Gpu(
        name="NVIDIA H100 80GB HBM3",
        capability=(9, 0),
        core_count=132,
        units_per_core=128,
        clock_ghz=1.98,
        memory_nbytes=84_942_979_072,
        bandwidth=3_352_320_000_000,
        cache_nbytes=52_428_800,
        shared_nbytes=233_472,
    ),
    "h200": Gpu(
        name="NVIDIA H200",
        capability=(9, 0),
        core_count=132,
        units_per_core=128,
        clock_ghz=1.98,
        memory_nbytes=151_397_597_184,
        bandwidth=4_800_000_000_000,
        cache_nbytes=52_428_800,
        shared_nbytes=233_472,
    ),
    "b200": Gpu(
        name="NVIDIA B200",
        capability=(10, 0),
        core_count=148,
        units_per_core=128,
        clock_ghz=1.965,
        memory_nbytes=191_514_411_008,
        bandwidth=7_672_320_000_000,
        cache_nbytes=132_644_864,
        shared_nbytes=233_472,
    ),
}


def target_config(gpu: Gpu) -> str:
    """Return the properties in the text format of XLA's GpuTargetConfigProto, with fields of all versions."""
    major, minor = gpu.capability
    return f"""
        gpu_device_info {{
          threads_per_warp: 32
          threads_per_block_limit: 1024
          threads_per_core_limit: 2048
          registers_per_block_limit: 65536
          registers_per_core_limit: 65536
          block_dim_limit_x: 2147483647
          block_dim_limit_y: 65535
          block_dim_limit_z: 65535
          shared_memory_per_block: 49152
          shared_memory_per_block_optin: {gpu.shared_nbytes - 1024}
          shared_memory_per_core: {gpu.shared_nbytes}
          core_count: {gpu.core_count}
          fpus_per_core: {gpu.units_per_core}
          clock_rate_ghz: {gpu.clock_ghz}
          memory_bandwidth: {gpu.bandwidth}
          l2_cache_size: {gpu.cache_nbytes}
          device_memory_size: {gpu.memory_nbytes}
          cuda_compute_capability {{ major: {major} minor: {minor} }}
        }}
        platform_name: "CUDA"
        device_description_str: "{gpu.name}"
    """


class _Tpu(NamedTuple):
    axes: int
    """Axes of the torus."""
    devices_per_chip: int
    """Devices of JAX per chip. The two cores of v4 and v5p are one device."""
    device_kind: str
    """Name of the chip in JAX's devices."""
    hbm_gib: float
    """HBM of a device that a program can use, in GiB. Source: the refusals of libtpu 0.0.50, the version of
    JAX 0.12.0.1, which are rounded to two digits: "exceeds available HBM (95.73G)". It is a little less than
    the data sheet of the chip, because libtpu keeps a part for itself."""
    torus: Torus | None
    """How the chips of a slice are closed to a torus; None if it is not known."""
    cores_per_chip: int
    """TensorCores of a chip. The second part of Google Cloud's name of a slice is their number in it."""
    slices: str
    """Chips along each side of the slices that have names. Source: the default topologies of each size in
    Google Cloud's documentation, the pages v2, v3, v4, v5e, v5p, v6e and tpu7x of
    docs.cloud.google.com/tpu/docs, which calls the names accelerator types."""


_CUBES = "2x2x1 2x2x2 2x2x4 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x16 8x16x16"
_SQUARES = "1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16"
TPUS = {
    "v2": _Tpu(2, 2, "TPU v2", 7.48, None, 2, "2x2 4x4 8x8 8x16 16x16"),
    "v3": _Tpu(2, 2, "TPU v3", 15.48, None, 2, "2x2 4x4 8x8 8x16 16x16 16x32 32x32"),
    "v4": _Tpu(3, 1, "TPU v4", 30.75, "cube", 2, _CUBES),
    "v5e": _Tpu(2, 1, "TPU v5 lite", 15.75, "pod", 1, _SQUARES),
    "v5p": _Tpu(3, 1, "TPU v5", 95.73, "cube", 2, f"{_CUBES} 16x16x16 16x16x24"),
    "v6e": _Tpu(2, 1, "TPU v6 lite", 31.24, "pod", 1, _SQUARES),
    "tpu7x": _Tpu(3, 2, "TPU7x", 94.74, None, 2, f"{_CUBES} 16x16x16"),
}


def _sides(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


NAMED_SLICES = {
    f"{prefix}-{math.prod(_sides(sides)) * TPUS[chip].cores_per_chip}": (chip, sides)
    for prefix, chip in [("v5litepod", "v5e"), *zip(TPUS, TPUS, strict=True)]
    for sides in TPUS[chip].slices.split()
}
"""The chip and the sides of each name of Google Cloud. Only these sides have names."""

GPUS_PER_HOST = 8
_MOST_DEVICES = 65_536
_FORMS = (
    "a TPU slice by the chips along each side, 1 or even along the first two, such as v5p:2x2x2, or by its "
    "name, such as v5p-128, several slices, such as 2*v5p:2x2x2, or GPUs by their number, at most 8 or a "
    f"multiple of 8, such as h100:16; at most {_MOST_DEVICES} devices of {', '.join((*TPUS, *GPUS))}"
)
_TEXT = re.compile(
    r"((?P<slices>\d{1,6}) ?\* ?)?((?P<kind>\w+)[:=](?P<sides>\d{1,6}(x\d{1,6})*)|(?P<name>\w+-\d+))",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Topology:
    """A topology that compilers know."""

    kind: str
    """Name of the chip: ``v5p``, ``h100``."""

    sides: tuple[int, ...]
    """Of a TPU the chips along each side of a slice, of a GPU the number of GPUs."""

    device_count: int
    """Number of JAX's devices in all slices."""

    slice_count: int = 1
    """Number of TPU slices, which are equal."""

    written: str = field(default="", compare=False)
    """The topology as the user writes it, such as ``v5p-128``; empty if the user wrote none."""

    @property
    def text(self) -> str:
        """The number of slices, if there are several, and the sides: ``2*v5p:2x2x1``."""
        slices = f"{self.slice_count}*" if self.slice_count > 1 else ""
        return f"{slices}{self.slice_text}"

    @property
    def slice_text(self) -> str:
        """One slice: ``v5p:2x2x1``."""
        return f"{self.kind}:{'x'.join(map(str, self.sides))}"

    @property
    def name(self) -> str:
        """The topology as the user writes it."""
        return self.written or self.text

    @property
    def is_gpu(self) -> bool:
        """Whether the devices are GPUs."""
        return self.kind in GPUS

    @property
    def platform(self) -> str:
        """The platform of the devices, in JAX's words."""
        return "gpu" if self.is_gpu else "tpu"

    @property
    def memory_nbytes(self) -> int:
        """Bytes of a device that a program can use."""
        return GPUS[self.kind].memory_nbytes if self.is_gpu else round(TPUS[self.kind].hbm_gib * 2**30)


DEVICE_NBYTES: Mapping[str, int] = {kind: Topology(kind, (1,), 1).memory_nbytes for kind in (*TPUS, *GPUS)}
"""Bytes of a device that a program can use, by the name of the chip: ``v5p``, ``h100``."""

FLOPS_PER_BYTE: Mapping[str, int] = {
    "v3": round(1.4e14 / 2e11),
    "v4": round(2.75e14 / 9e10),
    "v5e": round(1.97e14 / 9e10),
    "v5p": round(4.59e14 / 1.8e11),
    "v6e": round(9.2e14 / 1.8e11),
    "a100": round(3.1e14 / 3e11),
    "h100": round(9.9e14 / 4.5e11),
    "h200": round(9.9e14 / 4.5e11),
    "b200": round(2.3e15 / 9e11),
}
"""FLOPs of bfloat16 that a chip can do in the time in which it sends a byte, by the name of the chip.

A TPU sends along one side of the torus, in both directions; a GPU sends over NVLink. Sources: "How to Scale
Your Model", parts 2 and 12, and NVIDIA's data sheet for the NVLink of A100.
"""


def parse_topology(text: str) -> Topology:
    """Return the topology that a text names.

    Raises:
        TopologyError: If the chip is not known, or no slice of it has these sides or this name. The error
            lists the forms.

    >>> parse_topology("4*v5p-128").text
    '4*v5p:4x4x4'
    """
    if not isinstance(text, str):
        raise TopologyError(f"a topology is a text, such as 'v5p:2x2x2', got {type_name(text)}")
    topology = _read(text.strip().lower())
    if topology is None:
        raise TopologyError(f"topology {printable(text.strip()) or repr('')} does not exist: write {_FORMS}")
    return topology


def _read(text: str) -> Topology | None:
    """Return the topology of a text in lower case; None if there is none. Some would end libtpu's process."""
    match = _TEXT.fullmatch(text)
    if match is None:
        return None
    slice_count = int(match["slices"] or 1)
    kind, written = NAMED_SLICES.get(match["name"], (match["kind"], match["sides"]))
    sides = _sides(written or "0")
    count = math.prod(sides) * slice_count
    if kind in TPUS:
        axes, devices_per_chip, *_ = TPUS[kind]
        # A host has 2x2 chips, which fill the slice. Sides that are left out are 1.
        exists = len(sides) > 1 and all(side == 1 or side % 2 == 0 for side in sides[:2])
        exists = exists and all(side == 1 for side in sides[axes:])
        sides = (*sides, *(1,) * axes)[:axes]
        count *= devices_per_chip
    else:
        is_whole = count <= GPUS_PER_HOST or count % GPUS_PER_HOST == 0
        exists = kind in GPUS and len(sides) == slice_count == 1 and is_whole
    if not exists or not 0 < count <= _MOST_DEVICES:
        return None
    return Topology(kind, sides, count, slice_count, text)


def require_devices(topology: Topology, count: int, subject: str) -> None:
    """Raise an error if a topology has another number of devices than a mesh or a program.

    Args:
        topology: The topology.
        count: Number of devices of the subject.
        subject: The mesh or the program, as a noun.
    """
    if count != topology.device_count:
        devices = counted(topology.device_count, "device", "devices")
        raise TopologyError(
            f"topology {topology.name} has {devices}, but {subject} has {format_number(count)}: use a mesh "
            f"of {devices}, or another topology"
        )
