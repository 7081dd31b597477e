"""Cost of a tracker's step and report, relative to a report and a ``jax.live_arrays()`` of 10,000 arrays."""

from __future__ import annotations

import functools

import compare
import jax

from jax_array_info import live_array_report, track_arrays

arrays = compare.many_arrays()
with_origins = functools.partial(live_array_report, origins=True)


def entering() -> None:
    with track_arrays():
        pass


if __name__ == "__main__":
    count = f"{len(arrays)} arrays"
    compare.times(f"entering a tracker: {count}, all new", entering, with_origins, bound="at most 2 x")
    with track_arrays() as growth:
        compare.times(f"a step with {count}", growth.step, with_origins, bound="at most 0.5 x")
        compare.times("a step, and live_arrays()", growth.step, jax.live_arrays, bound="at most 6 x")
        compare.times("a report", growth.report, with_origins, bound="at most 1.5 x")
