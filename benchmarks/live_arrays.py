"""Cost of the report and the table of 10,000 live arrays, relative to a bare pass over them."""

from __future__ import annotations

import functools

import compare
import jax

from jax_array_info import live_array_report, print_array_stats

arrays = compare.many_arrays()
with_origins = functools.partial(live_array_report, origins=True)


def bare_pass() -> None:
    for array in jax.live_arrays():
        array.nbytes, array.sharding, array.dtype, array.shape  # noqa: B018


if __name__ == "__main__":
    count = f"{len(arrays)} arrays"
    compare.times(f"report of {count}", live_array_report, bare_pass, bound="at most 2 x")
    compare.times("with origins, relative to without", with_origins, live_array_report, bound="at most 2 x")
    compare.times(
        f"print_array_stats of {count}",
        compare.silent(print_array_stats),
        bare_pass,
        bound="at most 5 x",
    )
