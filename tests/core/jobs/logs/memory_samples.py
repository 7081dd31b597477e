"""Samples of the kinds of lines about memory."""

from tests.core.jobs.logs.sample import GIB, KIB, MIB, Sample

MEMORY_SAMPLES = (
    # Memory of a device.
    Sample(
        "hbm at compilation",
        "hbm-at-compilation.log",
        {"needed_nbytes": 20 * GIB, "available_nbytes": 63 * GIB // 4},
    ),
    Sample(
        "hbm at compilation",
        "hbm-at-compilation-2.log",
        {
            "needed_nbytes": round(18.20 * GIB),
            "available_nbytes": round(15.48 * GIB),
            "total_nbytes": round(18.72 * GIB),
            "reserved_nbytes": 530 * MIB,
            "program_nbytes": round(6.20 * GIB),
            "arguments_nbytes": 12 * GIB,
            "unpadded_nbytes": 384 * MIB,
            "padding_nbytes": round(5.62 * GIB),
        },
    ),
    Sample(
        "hbm at compilation",
        "hbm-at-compilation-3.log",
        {
            "needed_nbytes": 20 * GIB,
            "available_nbytes": 63 * GIB // 4,
            "floor_nbytes": 5325517721,
            "temporary_nbytes": 10737418752,
        },
        line=3,
    ),
    Sample(
        "hbm at compilation",
        "hbm-at-compilation-4.log",
        {
            "needed_nbytes": round(19.53 * GIB),
            "available_nbytes": 63 * GIB // 4,
            "total_nbytes": round(20.03 * GIB),
            "reserved_nbytes": 258 * MIB,
            "program_nbytes": round(19.53 * GIB),
            "arguments_nbytes": 256 * MIB,
            "unpadded_nbytes": 9 * GIB // 2,
        },
        line=2,
    ),
    Sample(
        "compilation given up",
        "compilation-given-up.log",
        {"needed_nbytes": round(3.47 * 2**60), "available_nbytes": round(14.49 * GIB)},
    ),
    Sample(
        "compilation given up",
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Compilation failure: Aborting compilation early because"
        " it's unlikely to have enough device memory. Requires 91.50G, has 15.75G available. If more detailed logging"
        " is desired, set --xla_tpu_impure_oom_fast_exit_threshold=-1",
        {"needed_nbytes": 183 * GIB // 2, "available_nbytes": 63 * GIB // 4},
    ),
    Sample(
        "program load",
        "program-load.log",
        {
            "requested_nbytes": round(29.49 * GIB),
            "free_nbytes": round(147.64 * MIB),
            "reservable_nbytes": round(147.64 * MIB),
        },
    ),
    Sample(
        "program load",
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: E0101: RuntimeProgramAllocationFailure: Error loading program"
        " 'jit_step': Attempting to reserve 4.50G at the bottom of memory. That was not possible. There are 1.25G"
        " free, 0B reserved, and 1.00G reservable.",
        {"requested_nbytes": 9 * GIB // 2, "free_nbytes": 5 * GIB // 4, "reservable_nbytes": GIB},
    ),
    Sample(
        "tpu allocation",
        "tpu-allocation.log",
        {"requested_nbytes": round(1.96 * GIB), "free_nbytes": round(1.20 * GIB)},
    ),
    Sample(
        "tpu allocation",
        "tpu-allocation-2.log",
        {
            "requested_nbytes": round(31.1 * MIB),
            "free_nbytes": round(58.6 * MIB),
            "reservable_nbytes": round(58.6 * MIB),
        },
    ),
    Sample(
        "tpu allocation",
        "tpu-allocation-3.log",
        {"requested_nbytes": round(1.96 * GIB), "free_nbytes": round(1.20 * GIB)},
        line=3,
    ),
    Sample(
        "allocation",
        "gpu-allocation.log",
        {"requested_nbytes": 28804500256, "rounded_nbytes": 28804500480},
    ),
    Sample(
        "allocation",
        "gpu-allocation-2.log",
        {
            "requested_nbytes": 28804500256,
            "rounded_nbytes": 28804500480,
            "floor_nbytes": 22705764841,
            "temporary_nbytes": 97440000040,
            "needed_nbytes": 97440000040,
        },
    ),
    Sample(
        "allocation",
        "gpu-allocation-3.log",
        {
            "requested_nbytes": 16 * GIB,
            "rounded_nbytes": 16 * GIB,
            "arguments_nbytes": round(24.20 * GIB),
            "temporary_nbytes": 16 * GIB,
            "total_nbytes": round(64.20 * GIB),
            "needed_nbytes": round(64.20 * GIB),
        },
        line=2,
    ),
    Sample(
        "allocation",
        "RuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 1099511627776 bytes.",
        {"requested_nbytes": 1 << 40},
    ),
    Sample(
        "allocation",
        "RuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 2.00GiB (2147483648B) on device ordinal 0",
        {"requested_nbytes": 2 * GIB},
    ),
    Sample(
        "arguments exceed limit",
        "arguments-exceed-limit.log",
        {
            "arguments_nbytes": 1374526449600,
            "limit_nbytes": 25554419712,
            "needed_nbytes": 1374526449600,
        },
    ),
    Sample(
        "arguments exceed limit",
        "arguments-exceed-limit-2.log",
        {
            "arguments_nbytes": 1374526449600,
            "limit_nbytes": 25554419712,
            "floor_nbytes": 0,
            "temporary_nbytes": 1374521760000,
            "rounded_nbytes": 1374521760000,
            "requested_nbytes": 1374521760000,
            "needed_nbytes": 1374526449600 + 1374521760000,
        },
    ),
    Sample(
        "cuda async allocation",
        "cuda-async-allocation.log",
        {"requested_nbytes": 126257359472, "free_nbytes": 18801229824, "device_nbytes": 197890015232},
    ),
    Sample(
        "cuda async allocation",
        "cuda-async-allocation-2.log",
        {
            "requested_nbytes": 126257359472,
            "free_nbytes": 18801229824,
            "device_nbytes": 197890015232,
            "limit_nbytes": 148411326464,
            "in_use_nbytes": 19380000000,
        },
    ),
    Sample(
        "rematerialization limit",
        "rematerialization-limit.log",
        {"floor_nbytes": 22705764841, "temporary_nbytes": 97440000040},
    ),
    # Other memory.
    Sample(
        "kernel memory",
        "kernel-memory.log",
        {"needed_nbytes": round(33.56 * MIB), "available_nbytes": 32 * MIB, "memory": "vmem"},
    ),
    Sample(
        "kernel memory",
        "kernel-memory-2.log",
        {"needed_nbytes": round(65.05 * MIB), "available_nbytes": 64 * MIB, "memory": "vmem"},
    ),
    Sample(
        "kernel memory",
        "kernel-memory-3.log",
        {"needed_nbytes": 256 * MIB, "available_nbytes": 128 * MIB, "memory": "vmem"},
    ),
    Sample(
        "kernel memory",
        "kernel-memory-4.log",
        {"needed_nbytes": round(32.42 * MIB), "available_nbytes": 16 * MIB, "memory": "vmem"},
    ),
    Sample(
        "kernel memory",
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Ran out of memory in memory space smem. Used 1.50M of 1.00M"
        " smem. Exceeded smem capacity by 512.0K.",
        {"needed_nbytes": 3 * MIB // 2, "available_nbytes": MIB, "memory": "smem"},
    ),
    Sample(
        "kernel memory",
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 245760,"
        " available 232448",
        {"needed_nbytes": 245760, "available_nbytes": 232448, "memory": "Shared memory"},
    ),
    Sample(
        "kernel memory",
        "kernel-memory-5.log",
        {"needed_nbytes": 80 * MIB, "available_nbytes": 16 * MIB, "memory": "vmem"},
        line=4,
    ),
    Sample(
        "kernel memory",
        "kernel-memory-6.log",
        {"needed_nbytes": 2 * MIB, "available_nbytes": 99 * KIB, "memory": "Shared memory"},
        line=6,
    ),
    Sample(
        "sparsecore memory",
        "sparsecore-memory.log",
        {
            "tensor_core_nbytes": round(34.82 * GIB),
            "sparse_core_nbytes": round(174.10 * GIB),
            "available_nbytes": round(95.74 * GIB),
            "needed_nbytes": round(34.82 * GIB) + round(174.10 * GIB),
        },
    ),
    Sample(
        "sparsecore stack",
        "jax.errors.JaxRuntimeError: INTERNAL: E3000: 'memref.alloca' op current allocation offset upper bound"
        " (140704 words) exceeds the legitimate user allocatable offset upper bound (131071 words)",
        {"words": 140704, "limit_words": 131071},
    ),
    Sample("pinned host memory", "pinned-host-memory.log", {"requested_nbytes": 8 * GIB}),
    Sample(
        "pinned host memory",
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Allocation in memory kind pinned_host failed",
    ),
    *(
        Sample("host memory", text)
        for text in (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0. Some of the step tasks have been OOM Killed.",
            "    Reason:       OOMKilled",
            "Killed",
            "/bin/bash: line 1:  4123 Killed                  python train.py",
            "[12345.678] Out of memory: Killed process 4321 (python) total-vm:104857600kB",
            "[12345.678] Memory cgroup out of memory: Killed process 4321 (python) total-vm:104857600kB",
            "command terminated with exit code 137",
        )
    ),
)
"""At least one sample of each kind."""
