"""The output in the original package's README, to the byte: 8 CPU devices, 80 columns, no color.

Two words differ: ``1 scalar`` was ``1×s``, and pictures have the indices of rows and columns at their edges.
The README has the title of the first table in the wrong column. Rich centres it over the table's 57 columns.
"""

import textwrap

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

INFO = """
╭───────────────── some_array ─────────────────╮
│ shape: (128, 128, 128)                       │
│ dtype: float32                               │
│ size: 8.0 MiB                                │
│ NamedSharding: P(None, 'gpus')               │
│ axis 1 is sharded: CPU 0 contains 0:16 (1/8) │
│                    Total size: 128           │
╰──────────────────────────────────────────────╯
"""

STATS = """
                  allocated jax arrays                   
┏━━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┓
┃ size     ┃ shape        ┃ dtype   ┃      sharded      ┃
┡━━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━┩
│ 16.0 KiB │ (16, 16, 16) │ float32 │                   │
│ 64.0 B   │ (2, 16, 4)   │ float32 │ ✔ (512.0 B total) │
├──────────┼──────────────┼─────────┼───────────────────┤
│ 4.0 B    │ 1 scalar     │ int32   │                   │
├──────────┼──────────────┼─────────┼───────────────────┤
│ 16.1 KiB │              │         │                   │
└──────────┴──────────────┴─────────┴───────────────────┘
"""  # noqa: W291 - Rich pads the title's line

VIS = """
─────────── showing dims [0, 1] from original shape (128, 128, 128) ────────────
   0:16   16:32   32:48   48:64   64:80   80:96   96:112 112:128
┌───────┬───────┬───────┬───────┬───────┬───────┬───────┬───────┐
│       │       │       │       │       │       │       │       │
│       │       │       │       │       │       │       │       │
│       │       │       │       │       │       │       │       │
│       │       │       │       │       │       │       │       │
│ CPU 0 │ CPU 1 │ CPU 2 │ CPU 3 │ CPU 4 │ CPU 5 │ CPU 6 │ CPU 7 │ 0:128
│       │       │       │       │       │       │       │       │
│       │       │       │       │       │       │       │       │
│       │       │       │       │       │       │       │       │
│       │       │       │       │       │       │       │       │
└───────┴───────┴───────┴───────┴───────┴───────┴───────┴───────┘
"""

MEMORY = """
               Memory Stats of cuda:0                
                     222 allocs                      
┏━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━━━━┓
┃ name                     ┃     size ┃  size (raw) ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━━━━┩
│ bytes_in_use             │  3.6 GiB │  3897557504 │
│ peak_bytes_in_use        │ 29.9 GiB │ 32087482368 │
│ largest_alloc_size       │ 23.5 GiB │ 25232940032 │
│ bytes_limit              │ 33.3 GiB │ 35714334720 │
│ bytes_reserved           │    0.0 B │           0 │
│ peak_bytes_reserved      │    0.0 B │           0 │
│ largest_free_block_bytes │    0.0 B │           0 │
│ pool_bytes               │ 33.3 GiB │ 35714334720 │
│ peak_pool_bytes          │ 33.3 GiB │ 35714334720 │
└──────────────────────────┴──────────┴─────────────┘
"""  # noqa: W291 - Rich pads the title's lines

LABELED = """
╭────── some_array ──────╮
│ shape: (128, 128, 128) │
│ dtype: float32         │
│ size: 8.0 MiB          │
│ not sharded            │
╰────────────────────────╯
                     allocated jax arrays                     
┏━━━━━━━━━┳━━━━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━┓
┃ size    ┃ shape           ┃ dtype   ┃ sharded ┃ label      ┃
┡━━━━━━━━━╇━━━━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━┩
│ 8.0 MiB │ (128, 128, 128) │ float32 │         │ some_array │
├─────────┼─────────────────┼─────────┼─────────┼────────────┤
│ 8.0 MiB │                 │         │         │            │
└─────────┴─────────────────┴─────────┴─────────┴────────────┘
"""  # noqa: W291 - Rich pads the title's line

PROGRAMS = {
    "sharding_info": (
        """
        some_array = jax.numpy.zeros(shape=(N, N, N), dtype=jax.numpy.float32)
        some_array = jax.device_put(some_array, NamedSharding(mesh, P(None, "gpus")))
        sharding_info(some_array, "some_array")
        """,
        INFO,
    ),
    "print_array_stats": (
        """
        arr = jax.numpy.zeros(shape=(16, 16, 16))
        arr2 = jax.device_put(jax.numpy.zeros(shape=(2, 16, 4)), NamedSharding(mesh, P(None, "gpus")))
        scalar = jax.numpy.array(42)
        print_array_stats()
        """,
        STATS,
    ),
    "sharding_vis": (
        """
        array = jax.numpy.zeros(shape=(N, N, N), dtype=jax.numpy.float32)
        array = jax.device_put(array, NamedSharding(mesh, P(None, "gpus")))
        sharding_vis(array)
        """,
        VIS,
    ),
    "pretty_memory_stats": (
        """
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
        MEMORY,
    ),
    "labels": (
        """
        some_array = jax.numpy.zeros(shape=(128, 128, 128))
        sharding_info(some_array, "some_array")
        print_array_stats()
        """,
        LABELED,
    ),
}


def test_the_output_matches_the_readme_to_the_byte():
    """One process runs each program as a function, which frees its arrays before the next one."""
    functions = (
        f"def program():\n{textwrap.indent(textwrap.dedent(code), '    ')}" for code, _ in PROGRAMS.values()
    )
    printed = run_blocks((SETUP, *(f"{function}\nprogram()" for function in functions)))[1:]
    expected = [picture.removeprefix("\n") for _, picture in PROGRAMS.values()]
    assert dict(zip(PROGRAMS, printed, strict=True)) == dict(zip(PROGRAMS, expected, strict=True))
