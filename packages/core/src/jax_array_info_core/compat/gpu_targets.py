"""Properties of GPUs for which XLA compiles without one."""

from __future__ import annotations

from typing import NamedTuple


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
