"""Flops of a program, and the operations that are not counted."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from jax_array_info_core import program_diff_report, program_report
from jax_array_info_core.reports import UncountedFlops
from jax_array_info_core.reports.program import uncounted_words

X = jax.ShapeDtypeStruct((16, 16), jnp.float32)


@pytest.mark.once_per_version
def test_a_dot_in_a_loop_of_unknown_length_is_named_and_the_rest_is_known():
    def step(x):
        return lax.while_loop(lambda y: y.sum() < 9, lambda y: y @ y, x @ x)

    report = program_report(step, X)
    assert (report.dot_flops, report.known_dot_flops) == (None, 2 * 16**3)
    (loop,) = report.dot_totals.per_iteration
    assert (loop.flops, loop.is_bound, loop.origin.line) == (
        2 * 16**3,
        False,
        step.__code__.co_firstlineno + 1,
    )
    words = report.dot_totals.words
    assert words.startswith("8,192 per device and call + 8,192 per iteration of while_loop (test_flops.py:")
    diff = program_diff_report(program_report(lambda x: x @ x @ x, X), report)
    figures = {figure.name: (figure.before, figure.after) for figure in diff.figures}
    assert figures["dot_flops"] == (4 * 16**3, None)
    assert figures["known_dot_flops"] == (4 * 16**3, 2 * 16**3)
    assert diff.unknown == (f"second program: flops: {words}",)


@pytest.mark.once_per_version
def test_a_program_whose_dots_are_counted_has_no_others():
    report = program_report(lambda x: x @ x, X)
    assert (report.dot_flops, report.known_dot_flops, report.uncounted_flops) == (2 * 16**3, 2 * 16**3, ())


@pytest.mark.oldest_and_newest
def test_operations_are_named_by_line_or_else_by_name():
    rows = [UncountedFlops(reason="size", operation=f"dot{number}", count=2) for number in range(5)]
    kernel = UncountedFlops(reason="kernel", operation="tpu_custom_call")
    assert [*uncounted_words([*rows, kernel])] == [
        "kernel of tpu_custom_call not counted",
        "10 dots of unknown size of dot0, dot1, dot2 and 2 lines more not counted",
    ]
