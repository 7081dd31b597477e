"""Cost of a recorder that takes a sample each second, and how long it holds Python's lock.

``python benchmarks/recorder.py [SECONDS]``: each of the 40 runs takes this long, 3 seconds by default.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import compare
import jax
import jax.numpy as jnp

from jax_array_info import record_memory
from jax_array_info_core.jobs.timeline.recording import Recording

# Without a thread for each step, whose start varies by more than the recorder costs.
jax.config.update("jax_cpu_enable_async_dispatch", False)

PAIRS = 20
SAMPLES = 40


@jax.jit
def step(state: jax.Array) -> jax.Array:
    return jnp.sin(state) * 0.5 + 0.1


def seconds_of(steps: int) -> tuple[float, float]:
    """Return the time of some steps of about 100 µs, and the time of all cores in this process."""
    state = jnp.ones(WIDTH)
    start, used = time.perf_counter(), time.process_time()
    for _ in range(steps):
        state = step(state).block_until_ready()
    return time.perf_counter() - start, time.process_time() - used


def written_to(folder: str) -> bytes:
    """Return what a recorder has written."""
    return b"".join(path.read_bytes() for path in Path(folder).glob("*.jsonl"))


def print_cost(seconds: float, folder: str) -> None:
    """Print the median of the time with a recorder relative to that without, in alternating runs.

    The time of the cores varies less if other programs run on the machine, but leaves out waiting for locks.
    """
    seconds_of(1000)
    steps = round(seconds / min(seconds_of(1000)[0] / 1000 for _ in range(5)))
    ratios: list[list[float]] = [[], []]
    plain = []
    for number in range(PAIRS):
        taken = {}
        for is_recorded in (True, False) if number % 2 else (False, True):
            recorder = record_memory(f"{folder}/{number}") if is_recorded else contextlib.nullcontext()
            with recorder:
                # The first sample reads all arrays.
                while is_recorded and b'"sample"' not in written_to(f"{folder}/{number}"):
                    time.sleep(0.01)
                taken[is_recorded] = seconds_of(steps)
        for kind in (0, 1):
            ratios[kind].append(taken[True][kind] / taken[False][kind])
        plain.append(taken[False][0] / steps)
    print(f"{steps} steps of {statistics.median(plain) * 1e6:.0f} µs, {len(arrays)} arrays, with a recorder:")
    for kind, name in enumerate(("time", "time of all cores")):
        low, middle, high = statistics.quantiles(ratios[kind], n=4)
        print(f"  {name}: {middle:.4f} x, quartiles {low:.4f} to {high:.4f} (bound: 1.01 x)", flush=True)


def longest_gap(work: Callable[[], object]) -> float:
    """Return the longest time for which another thread did not run while a function ran, in seconds."""
    gaps = [0.0]
    is_over = False

    def watch() -> None:
        last = time.perf_counter()
        while not is_over:
            now = time.perf_counter()
            gaps[0] = max(gaps[0], now - last)
            last = now

    thread = threading.Thread(target=watch)
    thread.start()
    time.sleep(0.02)
    gaps[0] = 0.0
    work()
    longest = gaps[0]
    is_over = True
    thread.join()
    return longest


def print_holds(folder: str) -> None:
    """Print how long samples hold Python's lock, next to a sleep of the same length, which holds none."""
    global arrays
    recording = Recording(Path(folder), 1.0, 2**28, lambda: None)
    recording.sample()
    for name in ("old", "new"):
        held, asleep, cost = [], [], []
        for _ in range(SAMPLES):
            if name == "new":
                arrays = []
                arrays = compare.many_arrays()
            before, start = time.thread_time(), time.perf_counter()
            held.append(longest_gap(recording.sample))
            cost.append(time.thread_time() - before)
            asleep.append(longest_gap(lambda start=start: time.sleep(time.perf_counter() - start)))  # type: ignore[misc]
        print(
            f"a sample of {len(arrays)} {name} arrays: holds Python's lock for"
            f" {statistics.median(held) * 1e3:.1f} ms at a time, a sleep"
            f" {statistics.median(asleep) * 1e3:.1f} ms (bound: at most 5 ms);"
            f" takes {statistics.median(cost) * 1e3:.1f} ms of a core",
            flush=True,
        )


arrays: list[Any] = compare.many_arrays()
WIDTH = 40_000

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print_holds(folder)
        print_cost(float(sys.argv[1]) if sys.argv[1:] else 3.0, folder)
