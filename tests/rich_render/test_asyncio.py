"""Searches through all objects of a program that uses asyncio."""

import pytest

from tests.documents import run_python

pytestmark = pytest.mark.newest

# CPython 3.12.0 to 3.12.5 keep freed iterators of futures in a free list. `gc.get_referents` revives them,
# and then the next collection never ends.
PROGRAM = """
import asyncio, gc, threading
import jax.numpy as jnp
from jax_array_info import print_array_stats, print_compile_caches, print_growth, track_arrays

async def main():
    async def load():
        await asyncio.sleep(0)
        return jnp.ones(3)

    return await asyncio.create_task(load())

def use():
    kept = asyncio.run(main())
    print_array_stats(referrers=True, max_seconds=None)
    with track_arrays() as growth:
        kept = asyncio.run(main())
    print_growth(growth, collect=True, max_seconds=None)
    print_compile_caches()

use()
thread = threading.Thread(target=use)  # with a second thread, the search lists the objects differently
thread.start()
thread.join()
gc.freeze()
use()
gc.unfreeze()
asyncio.run(main())
gc.collect()
print("done")
"""


# Not marked as own_process, since such tests run only on some versions of Python.
def test_a_search_after_a_finished_task_ends():
    assert run_python(PROGRAM, devices=1).endswith("done\n")
