"""Times two things in turn and tells the ratio of their medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any


def compare(
    what: str,
    ours: Callable[[], Any],
    theirs: Callable[[], Any],
    *,
    bound: str,
    rounds: int = 50,
) -> None:
    """Print the median times of both and their ratio, beside the bound that is wished for.

    They take turns, so that a machine that slows down slows both, and who goes first, as that has a price.
    """
    times: tuple[list[float], list[float]] = ([], [])
    pairs = list(zip((ours, theirs), times, strict=True))
    for function in (ours, theirs):
        function()
    for number in range(rounds):
        for function, taken in pairs if number % 2 else reversed(pairs):
            start = time.perf_counter()
            function()
            taken.append(time.perf_counter() - start)
    ours_median, theirs_median = map(statistics.median, times)
    print(
        f"{what}: {ours_median * 1e3:.3f} ms / {theirs_median * 1e3:.3f} ms"
        f" = {ours_median / theirs_median:.2f} x (wished for: {bound})",
        flush=True,
    )
