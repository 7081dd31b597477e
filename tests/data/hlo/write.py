"""Records and texts of compiled programs, as test data: ``python write.py 0.12.0.1.tar.xz [v5p:2x2x2 | h100:8]``.

Run it once per version of JAX, and once per topology, with libtpu or the CUDA plugin. The programs are in
``programs.py``, or in another file: ``python write.py embed.tar.xz v5p:2x2x2 embed.py``, with libtpu 0.0.50.1. They
have its lines under a path that does not depend on the machine.
"""

import _thread
import io
import os
import sys
import tarfile
from pathlib import Path

# Facts that the compiler for GPU needs of a device that is not here.
H100 = """
platform_name: "CUDA"
device_description_str: "NVIDIA H100 80GB HBM3"
gpu_device_info {
  cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }
  core_count: 132
  fpus_per_core: 128
  clock_rate_ghz: 1.98
  memory_bandwidth: 3352320000000
  device_memory_size: 84942979072
  l2_cache_size: 52428800
  threads_per_warp: 32
  threads_per_block_limit: 1024
  threads_per_core_limit: 2048
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472
}
"""
WITHOUT_GPU = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}


def devices(topology):
    """Return eight devices: fake ones, or those of a topology."""
    import jax
    import numpy as np
    from jax.experimental import topologies

    if topology is None:
        return np.array(jax.devices())
    if topology.startswith("h100"):
        found = topologies.get_topology_desc("h100", "cuda", target_config=H100, topology="1x1x8")
    else:
        found = topologies.get_topology_desc(topology, "tpu")
    return np.array(found.devices)


def write(file, topology=None, programs="programs.py"):
    """Write the record and the text of each program into an archive."""
    source = Path(__file__).with_name(programs).read_text()
    names = {"devices": devices(topology)}
    exec(compile(source, "/home/user/step.py", "exec"), names)
    options = WITHOUT_GPU if topology and topology.startswith("h100") else None
    with tarfile.open(file, "w:xz", preset=9) as archive:
        for name, lower in names["programs"].items():
            # In a thread that Python did not start, the line of the program is the outermost frame.
            lowered, done = {}, _thread.allocate_lock()
            done.acquire()
            _thread.start_new_thread(names["keep"], (name, lower, lowered, done))
            done.acquire()
            if lowered:
                compiled = lowered[name].compile(compiler_options=options)
                [module] = compiled.runtime_executable().hlo_modules()
                contents = {"pb": module.as_serialized_hlo_module_proto(), "txt": compiled.as_text().encode()}
                for suffix, content in contents.items():
                    entry = tarfile.TarInfo(f"{name}.{suffix}")
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
    write(*sys.argv[1:])
