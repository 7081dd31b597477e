"""Totals of a program: its FLOPs, in loops too, and the sides of its conditionals."""

from dataclasses import replace

import pytest

from jax_array_info.reports import ControlFlow, FlopTotals, PerIteration
from tests.rich_render.tables.test_program import lines_with
from tests.sample_programs import gather, line, program

pytestmark = pytest.mark.oldest_and_newest


def test_only_programs_with_products_or_transforms_have_lines_on_their_flops():
    assert lines_with(program(), "FLOPs") == []
    report = program(fft_totals=FlopTotals(known=960, bound=960))
    assert lines_with(report, "FLOPs") == [
        "FFT FLOPs: 960 per device and call (5 N log2 N, half for real numbers)"
    ]
    report = program(dot_flops=None, dot_totals=FlopTotals(per_iteration=(PerIteration(flops=2048),)))
    assert lines_with(report, "FLOPs") == [
        "matmul and convolution FLOPs: 2,048 per iteration of a while_loop"
    ]


def test_sides_of_a_conditional_say_that_they_exclude_each_other():
    sides = [
        replace(
            gather(None, 1, number * 2**20, times=None, at_most=1),
            within=(ControlFlow(kind="cond", side=number, origin=line(9, "step")),),
            times_within=1,
        )
        for number in (1, 3)
    ]
    report = program(*sides)
    assert lines_with(report, "sent per device") == ["sent per device and call: ?, at most 3.0 MiB"]
    assert len(lines_with(report, "one side of cond")) == 2
