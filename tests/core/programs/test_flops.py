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


@pytest.mark.oldest_and_newest
def test_operations_are_named_by_line_or_else_by_name():
    rows = [UncountedFlops(reason="size", operation=f"dot{number}", count=2) for number in range(5)]
    kernel = UncountedFlops(reason="kernel", operation="tpu_custom_call")
    assert [*uncounted_words([*rows, kernel])] == [
        "kernel of tpu_custom_call not counted",
        "10 dots of unknown size of dot0, dot1, dot2 and 2 lines more not counted",
    ]


def report_of(f, *shapes, dtype=jnp.complex64):
    return program_report(f, *(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes))


@pytest.mark.once_per_version
@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        (jnp.matmul, [(8, 16), (16, 32)]),
        (lambda x, y: jnp.einsum("bij,bjk->bik", x, y), [(3, 8, 16), (3, 16, 4)]),
        (lambda x, y: lax.fori_loop(0, 3, lambda _, z: z @ y, x), [(8, 8), (8, 8)]),
    ],
    ids=["matrices", "batches", "loop"],
)
def test_a_product_of_complex_numbers_is_four_real_ones(f, shapes):
    real = report_of(f, *shapes, dtype=jnp.float32).dot_flops
    report = report_of(f, *shapes)
    assert report.dot_flops == 4 * real > 0
    assert any("as 3 real ones" in one for one in report.caveats)


@pytest.mark.once_per_version
@pytest.mark.parametrize(
    ("f", "shape", "dtype", "expected"),
    [
        (jnp.fft.fft, (4, 64), jnp.complex64, 4 * 5 * 64 * 6),
        (jnp.fft.ifft2, (2, 16, 32), jnp.complex64, 2 * 5 * 512 * 9),
        (jnp.fft.fftn, (8, 8, 8), jnp.complex64, 5 * 512 * 9),
        (jnp.fft.rfft, (4, 64), jnp.float32, 4 * 5 * 64 * 6 // 2),
        (jnp.fft.irfft, (4, 33), jnp.complex64, 4 * 5 * 64 * 6 // 2),
        (lambda x: jnp.fft.fft(x, axis=0), (64, 4), jnp.complex64, 4 * 5 * 64 * 6),
        (lambda x: lax.fori_loop(0, 3, lambda _, y: jnp.fft.fft(y), x), (64,), jnp.complex64, 3 * 5 * 64 * 6),
    ],
    ids=["fft", "ifft2", "fftn", "rfft", "irfft", "other axis", "loop"],
)
def test_a_fourier_transform_has_5_n_log2_n_flops(f, shape, dtype, expected):
    report = report_of(f, shape, dtype=dtype)
    assert (report.fft_flops, report.dot_flops) == (expected, 0)
    assert any("TPU computes Fourier transforms as matrix products" in one for one in report.caveats)


@pytest.mark.once_per_version
def test_flops_in_loops_and_on_sides_of_conditionals_are_figures_and_bounds():
    def step(x):
        x = lax.cond(x[0, 0].real > 0, jnp.fft.fft, lambda y: y @ y @ y, x)
        return lax.while_loop(lambda y: y[0, 0].real < 9, lambda y: jnp.fft.fft(y) @ y, x)

    report = report_of(step, (16, 16))
    product, transform = 4 * 2 * 16**3, 16 * 5 * 16 * 4
    assert (report.dot_flops, report.fft_flops) == (None, None)
    assert (report.dot_totals.known, report.dot_totals.bound) == (0, 2 * product)
    assert (report.fft_totals.known, report.fft_totals.bound) == (0, transform)
    assert [one.flops for one in report.dot_totals.per_iteration] == [product]
    assert [one.flops for one in report.fft_totals.per_iteration] == [transform]


@pytest.mark.once_per_version
@pytest.mark.parametrize("f", [jnp.sin, lambda x: jnp.roll(x, 1, 0), lambda x: x.sum(0)])
def test_a_program_without_products_has_no_words_on_them(f):
    report = report_of(f, (16, 16), dtype=jnp.float32)
    assert (report.dot_flops, report.fft_flops) == (0, 0)
    assert not any("matrix products" in one for one in report.caveats)
