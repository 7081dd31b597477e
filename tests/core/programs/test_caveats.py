"""FLOPs of a program, what of it is left out, and what differs on another platform."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_diff_report, program_report
from jax_array_info_core.compat.arrays import per_shard
from jax_array_info_core.facts.reports.program_values import (
    uncounted_words,
)
from jax_array_info_core.programs.compiled import caveats_of
from jax_array_info_core.reports import FlopTotals, UncountedFlops
from tests.hlo_texts import module_of
from tests.programs import abstract, line

pytestmark = pytest.mark.once_per_version


def module(layout):
    return module_of(
        "HloModule m\n\nENTRY %main {\n"
        f"  %p = f32[8]{{0}} parameter(0)\n  %t = f32[8]{{{layout}}} negate(%p)\n"
        "  ROOT %r = f32[8]{0} negate(%t)\n}"
    )


def test_values_in_vmem_of_a_tpu_are_said_to_be_left_out():
    assert caveats_of("tpu", (), (), module("0:T(8)S(1)"), FlopTotals(), FlopTotals()) == (
        "Values in VMEM are not among the temporaries that are listed.",
    )


@pytest.mark.parametrize(("platform", "layout"), [("tpu", "0:T(8)"), ("tpu", "0:S(5)"), ("gpu", "0:S(1)")])
def test_an_accelerator_without_values_in_vmem_has_no_caveats(platform, layout):
    assert caveats_of(platform, (), (), module(layout), FlopTotals(), FlopTotals()) == ()


GATHERED = {
    "int4": "CPU sends int4 as int8, twice the bytes of an accelerator.",
    "uint4": "CPU sends uint4 as uint8, twice the bytes of an accelerator.",
    "float8_e5m2": "CPU sends float8_e5m2 as float16, twice the bytes of an accelerator.",
    "float8_e4m3fnuz": "CPU sends float8_e4m3fnuz as float16, twice the bytes of an accelerator.",
    "float4_e2m1fn": "CPU sends float4_e2m1fn as float16, 4 times the bytes of an accelerator.",
    "float8_e8m0fnu": "CPU sends float8_e8m0fnu as float32, 4 times the bytes of an accelerator.",
    "bfloat16": "CPU sends bfloat16 as float32, twice the bytes of an accelerator.",
    "int8": None,
    "float16": None,
    "int16": None,
}


def told(report):
    """Return the caveats about what CPU sends, after a check that every one is about a collective."""
    found = [one for one in report.caveats if one.startswith("CPU sends")]
    sent = {one.dtype for one in report.collectives}
    assert all(any(f"as {dtype}" in one for dtype in sent) for one in found)
    return found


@pytest.mark.needs_devices(8)
@pytest.mark.parametrize("name", GATHERED)
def test_numbers_that_cpu_sends_as_wider_ones_have_a_caveat(name):
    """The dtype of the collective in the compiled program, and its bytes, decide."""
    if not hasattr(jnp, name):
        pytest.skip(f"jax {jax.__version__} has no {name}")
    mesh = line("x")
    gather = per_shard(lambda x: jax.lax.all_gather(x, "x", tiled=True), mesh, P("x"), P())
    array = abstract(mesh, P("x"), (64, 32), getattr(jnp, name))
    try:
        report = program_report(jax.jit(gather), array)
    except jax.errors.JaxRuntimeError:
        if jax.__version_info__ >= (0, 5):
            raise
        pytest.skip(f"XLA of jax {jax.__version__} cannot compile a gather of {name} for the CPU")
    [sent] = report.collectives
    assert told(report) == [*filter(None, [GATHERED[name]])]
    assert (sent.dtype != name) == bool(told(report))


@pytest.mark.needs_devices(8)
def test_a_dtype_inside_the_program_counts_too_but_no_sum_of_narrow_numbers():
    mesh = line("x")
    array = abstract(mesh, P("x"), (64, 32))

    def gathered(x):
        return jax.lax.all_gather(x.astype(jnp.float8_e4m3fn), "x", tiled=True).astype(jnp.float32)

    def summed(x):
        return jax.lax.psum(x.astype(jnp.float8_e4m3fn), "x").astype(jnp.float32)

    reports = [program_report(jax.jit(per_shard(f, mesh, P("x"), P())), array) for f in (gathered, summed)]
    assert [told(report) for report in reports] == [
        ["CPU sends float8_e4m3fn as float16, twice the bytes of an accelerator."],
        [],
    ]


def test_lines_of_another_source_in_the_persistent_cache_are_told(tmp_path):
    from jax.experimental.compilation_cache import compilation_cache

    def reported(line):
        source = "\n" * line + "def f(x):\n    return jnp.sin(x @ x)\n"
        names = {"jnp": jnp}
        exec(compile(source, str(tmp_path / "step.py"), "exec"), names)
        jax.clear_caches()
        caveats = program_report(jax.jit(names["f"]), jnp.ones((64, 64))).caveats
        return [one for one in caveats if "persistent compilation cache" in one]

    settings = {
        "jax_compilation_cache_dir": str(tmp_path),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    try:
        compilation_cache.reset_cache()
        for name, value in settings.items():
            jax.config.update(name, value)
        assert [len(reported(line)) for line in (1, 1, 5)] == [0, 0, 1]
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


X = jax.ShapeDtypeStruct((16, 16), jnp.float32)


def test_a_dot_in_a_loop_of_unknown_length_is_named_and_the_rest_is_known():
    def step(x):
        return jax.lax.while_loop(lambda y: y.sum() < 9, lambda y: y @ y, x @ x)

    report = program_report(step, X)
    assert (report.dot_flops, report.known_dot_flops) == (None, 2 * 16**3)
    (loop,) = report.dot_totals.per_iteration
    assert (loop.flops, loop.is_bound, loop.origin.line) == (
        2 * 16**3,
        False,
        step.__code__.co_firstlineno + 1,
    )
    words = report.dot_totals.words
    assert words.startswith("8,192 per device and call + 8,192 per iteration of while_loop (test_caveats.py:")
    diff = program_diff_report(program_report(lambda x: x @ x @ x, X), report)
    figures = {figure.name: (figure.before, figure.after) for figure in diff.figures}
    assert figures["dot_flops"] == (4 * 16**3, None)
    assert figures["known_dot_flops"] == (4 * 16**3, 2 * 16**3)
    assert diff.unknown == (f"second program: flops: {words}",)


@pytest.mark.newest
def test_operations_are_named_by_line_or_else_by_name():
    rows = [UncountedFlops(reason="size", operation=f"dot{number}", count=2) for number in range(5)]
    kernel = UncountedFlops(reason="kernel", operation="tpu_custom_call")
    assert [*uncounted_words([*rows, kernel])] == [
        "kernel of tpu_custom_call not counted",
        "10 dots of unknown size of dot0, dot1, dot2 and 2 lines more not counted",
    ]


def report_of(f, *shapes, dtype=jnp.complex64):
    return program_report(f, *(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes))


@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        (jnp.matmul, [(8, 16), (16, 32)]),
        (lambda x, y: jnp.einsum("bij,bjk->bik", x, y), [(3, 8, 16), (3, 16, 4)]),
        (lambda x, y: jax.lax.fori_loop(0, 3, lambda _, z: z @ y, x), [(8, 8), (8, 8)]),
    ],
    ids=["matrices", "batches", "loop"],
)
def test_a_product_of_complex_numbers_is_four_real_ones(f, shapes):
    real = report_of(f, *shapes, dtype=jnp.float32).dot_flops
    report = report_of(f, *shapes)
    assert report.dot_flops == 4 * real > 0
    assert any("as 3 real ones" in one for one in report.caveats)


@pytest.mark.parametrize(
    ("f", "shape", "dtype", "expected"),
    [
        (jnp.fft.fft, (4, 64), jnp.complex64, 4 * 5 * 64 * 6),
        (jnp.fft.ifft2, (2, 16, 32), jnp.complex64, 2 * 5 * 512 * 9),
        (jnp.fft.fftn, (8, 8, 8), jnp.complex64, 5 * 512 * 9),
        (jnp.fft.rfft, (4, 64), jnp.float32, 4 * 5 * 64 * 6 // 2),
        (jnp.fft.irfft, (4, 33), jnp.complex64, 4 * 5 * 64 * 6 // 2),
        (lambda x: jnp.fft.fft(x, axis=0), (64, 4), jnp.complex64, 4 * 5 * 64 * 6),
        (
            lambda x: jax.lax.fori_loop(0, 3, lambda _, y: jnp.fft.fft(y), x),
            (64,),
            jnp.complex64,
            3 * 5 * 64 * 6,
        ),
    ],
    ids=["fft", "ifft2", "fftn", "rfft", "irfft", "other axis", "loop"],
)
def test_a_fourier_transform_has_5_n_log2_n_flops(f, shape, dtype, expected):
    report = report_of(f, shape, dtype=dtype)
    assert (report.fft_flops, report.dot_flops) == (expected, 0)
    assert any("TPU computes Fourier transforms as matrix products" in one for one in report.caveats)


def test_flops_in_loops_and_on_sides_of_conditionals_are_figures_and_bounds():
    def step(x):
        x = jax.lax.cond(x[0, 0].real > 0, jnp.fft.fft, lambda y: y @ y @ y, x)
        return jax.lax.while_loop(lambda y: y[0, 0].real < 9, lambda y: jnp.fft.fft(y) @ y, x)

    report = report_of(step, (16, 16))
    product, transform = 4 * 2 * 16**3, 16 * 5 * 16 * 4
    assert (report.dot_flops, report.fft_flops) == (None, None)
    assert (report.dot_totals.known, report.dot_totals.bound) == (0, 2 * product)
    assert (report.fft_totals.known, report.fft_totals.bound) == (0, transform)
    assert [one.flops for one in report.dot_totals.per_iteration] == [product]
    assert [one.flops for one in report.fft_totals.per_iteration] == [transform]


@pytest.mark.parametrize("f", [jnp.sin, lambda x: jnp.roll(x, 1, 0), lambda x: x.sum(0)])
def test_a_program_without_products_has_no_words_on_them(f):
    report = report_of(f, (16, 16), dtype=jnp.float32)
    assert (report.dot_flops, report.fft_flops) == (0, 0)
    assert not any("matrix products" in one for one in report.caveats)
