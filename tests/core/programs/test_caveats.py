"""Sentences about what differs on another platform, and what is left out."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report
from jax_array_info_core.compat.arrays import per_shard
from jax_array_info_core.programs.program_report import caveats_of
from jax_array_info_core.reports import FlopTotals
from tests.arrays import mesh_of
from tests.hlo_texts import module_of

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
    mesh = mesh_of((8,), ("x",))
    gather = per_shard(lambda x: jax.lax.all_gather(x, "x", tiled=True), mesh, P("x"), P())
    array = jax.ShapeDtypeStruct((64, 32), getattr(jnp, name), sharding=NamedSharding(mesh, P("x")))
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
    mesh = mesh_of((8,), ("x",))
    array = jax.ShapeDtypeStruct((64, 32), jnp.float32, sharding=NamedSharding(mesh, P("x")))

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
