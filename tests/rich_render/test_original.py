"""The output in the original package's README, to the byte: 8 CPU devices, 80 columns, no color.

Three parts differ: ``1 scalar`` was ``1×s``, a sharded array has its bytes per device, and pictures have the indices of rows and columns at their edges.
The README has the title of the first table in the wrong column. Rich centres it over the table's 57 columns.
"""

import textwrap
from pathlib import Path

import pytest

from tests.documents import run_blocks

pytestmark = [pytest.mark.needs_devices(8), pytest.mark.once_per_version]

SETUP = """
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jax_array_info import *

N = 128
mesh = Mesh(jax.devices(), ("gpus",))
"""

PROGRAMS = {
    "sharding_info": """
        some_array = jax.numpy.zeros(shape=(N, N, N), dtype=jax.numpy.float32)
        some_array = jax.device_put(some_array, NamedSharding(mesh, P(None, "gpus")))
        sharding_info(some_array, "some_array")
        """,
    "print_array_stats": """
        arr = jax.numpy.zeros(shape=(16, 16, 16))
        arr2 = jax.device_put(jax.numpy.zeros(shape=(2, 16, 4)), NamedSharding(mesh, P(None, "gpus")))
        scalar = jax.numpy.array(42)
        print_array_stats()
        """,
    "sharding_vis": """
        array = jax.numpy.zeros(shape=(N, N, N), dtype=jax.numpy.float32)
        array = jax.device_put(array, NamedSharding(mesh, P(None, "gpus")))
        sharding_vis(array)
        """,
    "pretty_memory_stats": """
        class Device:
            def __str__(self):
                return "cuda:0"

            def memory_stats(self):
                return {
                    "num_allocs": 222,
                    "bytes_in_use": 3897557504,
                    "peak_bytes_in_use": 32087482368,
                    "largest_alloc_size": 25232940032,
                    "bytes_limit": 35714334720,
                    "bytes_reserved": 0,
                    "peak_bytes_reserved": 0,
                    "largest_free_block_bytes": 0,
                    "pool_bytes": 35714334720,
                    "peak_pool_bytes": 35714334720,
                }

        pretty_memory_stats(Device())
        """,
    "labels": """
        some_array = jax.numpy.zeros(shape=(128, 128, 128))
        sharding_info(some_array, "some_array")
        print_array_stats()
        """,
}


def test_the_output_matches_the_readme_to_the_byte():
    """One process runs each program as a function, which frees its arrays before the next one."""
    functions = (
        f"def program():\n{textwrap.indent(textwrap.dedent(code), '    ')}" for code in PROGRAMS.values()
    )
    printed = run_blocks((SETUP, *(f"{function}\nprogram()" for function in functions)))[1:]
    folder = Path(__file__).parents[1] / "data" / "original"
    expected = {name: (folder / f"{name}.txt").read_text("utf-8") for name in PROGRAMS}
    assert dict(zip(PROGRAMS, printed, strict=True)) == expected
