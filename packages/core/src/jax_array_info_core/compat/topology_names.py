"""Names of TPU and GPU topologies, such as ``v5p:2x2x2``, ``v5p-128``, ``2*v5p:2x2x2`` and ``h100:8``."""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..errors import TopologyError
from ..layouts.links import Torus
from ..quantities import format_number
from ..text import printable
from .accelerator_types import chip_of, named_slices, near_slices
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
    torus: Torus | None = None
    """How the chips of a slice are closed to a torus; None if it is not known."""


TPUS = {
    "v2": _Tpu(2, 2, "TPU v2", 7.48),
    "v3": _Tpu(2, 2, "TPU v3", 15.48),
    "v4": _Tpu(3, 1, "TPU v4", 30.75, "cube"),
    "v5e": _Tpu(2, 1, "TPU v5 lite", 15.75, "pod"),
    "v5p": _Tpu(3, 1, "TPU v5", 95.73, "cube"),
    "v6e": _Tpu(2, 1, "TPU v6 lite", 31.24, "pod"),
    "tpu7x": _Tpu(3, 2, "TPU7x", 94.74),
}
_OTHER_NAMES = {
    "ironwood": "tpu7x",
    "trillium": "v6e",
    "v5": "v5p",
    "v5lite": "v5e",
    "v5litepod": "v5e",
    "v6": "v6e",
    "v7": "tpu7x",
    "v7x": "tpu7x",
}

GPUS_PER_HOST = 8
_MOST_DEVICES = 65_536
_FORM = (
    "write a TPU and the chips along each side, such as v5p:2x2x2, its name, such as v5p-128, or a GPU and a "
    "number, such as h100:8"
)
_TEXT = re.compile(
    r"((?P<slices>\d{1,6}) ?\* ?)?(?P<kind>[^:=*]*)([:=](?P<sides>\d{1,6}(x\d{1,6})*)|-(?P<number>\d{1,6}))",
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


def parse_topology(text: str) -> Topology:
    """Return the topology that a text names.

    Raises:
        TopologyError: If the chip is not known, or no slice of it has these sides or this name.

    >>> parse_topology("4*v5p-128").text
    '4*v5p:4x4x4'
    """
    if not isinstance(text, str):
        raise TopologyError(f"a topology is a text, such as 'v5p:2x2x2', got {type_name(text)}")
    written = text.strip().lower()
    shown = printable(text.strip()) or "''"
    found = _TEXT.fullmatch(written)
    kind = found["kind"].strip() if found else re.split("[:=-]", re.sub(r"^\d*\s*\*\s*", "", written))[0]
    chip = chip_of(kind) if found is None or found["number"] else kind
    if chip not in TPUS and kind not in GPUS:
        raise TopologyError(
            f"topology {shown}: {printable(kind) or 'the name'} is not a known TPU or GPU"
            f"{_near(kind, found['number'] if found else None)}: {_FORM}. "
            f"Known are {', '.join((*TPUS, *GPUS))}"
        )
    if not found:
        raise TopologyError(f"topology {shown} has no sides: {_FORM}")
    slices = 1 if found["slices"] is None else int(found["slices"])
    if chip not in TPUS:
        sides = tuple(map(int, (found["sides"] or found["number"]).split("x")))
        problem = _gpu_problem(sides, slices, is_named=bool(found["number"]))
        result = Topology(kind, sides, sides[0])
    elif found["number"]:
        number = int(found["number"])
        sides = named_slices(chip)[number].sides if number in named_slices(chip) else ()
        problem = None if sides else _unnamed(chip, number)
        result = _tpu(chip, sides, slices)
    else:
        sides = tuple(map(int, found["sides"].split("x")))
        problem = _tpu_problem(chip, sides)
        result = _tpu(chip, sides, slices)
    if not problem and not 0 < result.device_count <= _MOST_DEVICES:
        problem = f"the number of devices is between 1 and {format_number(_MOST_DEVICES)}"
    if problem:
        raise TopologyError(f"topology {shown} does not exist: {problem}")
    return replace(result, written=written)


def _tpu(kind: str, sides: tuple[int, ...], slice_count: int) -> Topology:
    """Return a topology of TPUs. Sides that are left out are 1."""
    axes, devices_per_chip, *_ = TPUS[kind]
    sides = (*sides[:axes], *(1,) * (axes - len(sides)))
    return Topology(kind, sides, math.prod(sides) * devices_per_chip * slice_count, slice_count)


def _unnamed(chip: str, number: int) -> str:
    """Return the message for a name that Google Cloud does not have."""
    near = near_slices(chip, number)
    names = " and ".join(f"{one.name} ({'x'.join(map(str, one.sides))})" for one in near)
    example = f"{chip}:{'x'.join(map(str, near[-1].sides))}"
    return f"Google Cloud names {names}; write any other slice with its sides, such as {example}"


def _near(kind: str, number: str | None) -> str:
    """Return names that are like an unknown one, as a question in parentheses.

    Args:
        kind: Name of the chip.
        number: The number of a name such as ``v7-128``.
    """
    if kind in _OTHER_NAMES:
        chips = [_OTHER_NAMES[kind]]
    else:
        chips = difflib.get_close_matches(kind, (*TPUS, *GPUS), n=3, cutoff=0.5)
    names = [_with_number(chip, number) if number else chip for chip in chips]
    return f" (did you mean {', '.join(names)}?)" if names else ""


def _with_number(chip: str, number: str) -> str:
    """Return the name of a slice with a number, if there is one, else of its chip."""
    named = named_slices(chip).get(int(number)) if chip in TPUS else None
    return chip if named is None else named.name


def _gpu_problem(sides: tuple[int, ...], slices: int = 1, *, is_named: bool = False) -> str | None:
    """Return why there is no topology with this number of GPUs; None if there is."""
    count = sides[0]
    if slices != 1:
        return f"only TPUs have slices: GPUs have a number, such as h100:{2 * GPUS_PER_HOST}"
    if len(sides) > 1 or is_named:
        return f"GPUs have a number, such as h100:{min(math.prod(sides), _MOST_DEVICES) or GPUS_PER_HOST}"
    if not 0 < count <= _MOST_DEVICES:
        return f"the number of GPUs is between 1 and {format_number(_MOST_DEVICES)}"
    if count > GPUS_PER_HOST and count % GPUS_PER_HOST:
        return f"more than {GPUS_PER_HOST} GPUs are hosts with {GPUS_PER_HOST} each: use a multiple of 8"
    return None


def _tpu_problem(kind: str, sides: tuple[int, ...]) -> str | None:
    """Return why no slice of a TPU has these sides; None if there is one."""
    axes, devices_per_chip, *_ = TPUS[kind]
    chips = math.prod(sides)
    if not 0 < chips * devices_per_chip <= _MOST_DEVICES:
        return f"the number of devices is between 1 and {format_number(_MOST_DEVICES)}"
    if len(sides) == 1:
        examples = topologies_with(chips * devices_per_chip, kind)
        return f"{kind} has a torus of {axes} sides, such as {examples or kind + ':' + 'x'.join('2' * axes)}"
    if any(side != 1 for side in sides[axes:]):
        return f"{kind} has a torus of {axes} sides, not {len(sides)}"
    if not _is_slice(sides):
        return "a host has 2x2 chips, so the first two sides are 1 or even"
    return None


def _is_slice(sides: tuple[int, ...]) -> bool:
    """Return whether hosts of 2x2 chips fill a slice."""
    return all(side == 1 or side % 2 == 0 for side in sides[:2])


def misfit(topology: Topology, count: int, subject: str) -> str:
    """Return the message for a topology that has another number of devices than a mesh or a program.

    Args:
        topology: The topology.
        count: Number of devices of the subject.
        subject: The mesh or the program, as a noun.
    """
    devices = counted_devices(topology.device_count)
    same = _with_devices(topology, count)
    # The same family has chips with another number of devices or other sides.
    others = same or topologies_with(count, *(GPUS if topology.is_gpu else TPUS))
    fix = f"use {others}, or a mesh of {devices}" if others else f"use a mesh of {devices}"
    return f"topology {topology.name} has {devices}, but {subject} has {format_number(count)}: {fix}"


def counted_devices(count: int) -> str:
    """Return a number of devices with its noun."""
    return f"{format_number(count)} device{'' if count == 1 else 's'}"


def _with_devices(topology: Topology, count: int) -> str:
    """Return topologies of the same chip with another number of devices, as text; empty without one.

    Of several slices, those with more or fewer slices, and those with larger or smaller ones. A name is
    answered with a name.
    """
    if topology.is_gpu:
        return topologies_with(count, topology.kind)
    found = []
    in_slice = topology.device_count // topology.slice_count
    if topology.slice_count > 1 and count % in_slice == 0:
        found.append(_tpu(topology.kind, topology.sides, count // in_slice))
    if count % topology.slice_count == 0:
        compact = _compact(topology.kind, count // topology.slice_count)
        found += [] if compact is None else [_tpu(topology.kind, compact.sides, topology.slice_count)]
    is_named = "-" in topology.written
    return " or ".join(dict.fromkeys(_named(one) if is_named else one.text for one in found))


def _named(topology: Topology) -> str:
    """Return a topology with the name that its slice has in Google Cloud, or with its sides."""
    slices = f"{topology.slice_count}*" if topology.slice_count > 1 else ""
    names = (one.name for one in named_slices(topology.kind).values() if one.sides == topology.sides)
    name = next(names, None)
    return topology.text if name is None else f"{slices}{name}"


def topologies_with(device_count: int, *kinds: str) -> str:
    """Return the most compact topology of each chip with a number of devices, as text; empty without one."""
    found = [_compact(kind, device_count) for kind in kinds]
    return " or ".join(topology.text for topology in found if topology)


def _compact(kind: str, device_count: int) -> Topology | None:
    """Return the topology with the shortest sides for a number of devices; None if there is none."""
    if kind in GPUS:
        return None if _gpu_problem((device_count,)) else Topology(kind, (device_count,), device_count)
    axes, devices_per_chip, *_ = TPUS[kind]
    chips, rest = divmod(device_count, devices_per_chip)
    # Sides of 1 come last, as in the names of real slices.
    slices = sorted(
        (sum(sides), [side == 1 for side in sides], sides)
        for sides in (() if rest else _factors(chips, axes))
        if _is_slice(sides)
    )
    return Topology(kind, slices[0][-1], device_count) if slices else None


def _factors(number: int, count: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write a number as a product of several."""
    divisors = [one for one in range(1, number + 1) if number % one == 0]
    for first in itertools.product(divisors, repeat=count - 1):
        last, rest = divmod(number, math.prod(first))
        if not rest:
            yield (*first, last)
