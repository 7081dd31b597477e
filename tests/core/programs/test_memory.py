"""Memory of a compiled program."""

from collections import Counter
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import to_text
from jax_array_info_core import program_report, tree_report
from jax_array_info_core.arrays.origins.origins import UserLines
from jax_array_info_core.compat.programs import MemoryStatistics, memory_analysis, program_record
from jax_array_info_core.programs.advice.judging import figures_of as figures_of_change
from jax_array_info_core.programs.memory import MOST_TEMPORARIES, figures_of, with_temporaries
from jax_array_info_core.reports import ProgramMemory, ProgramReport
from jax_array_info_core.xla.hlo.module import read_module
from tests.hlo_texts import entry_of, module_of, stored
from tests.programs import abstract, line

pytestmark = pytest.mark.once_per_version

EMPTY = module_of("HloModule m\n\nENTRY %main {\n  ROOT %p = f32[] parameter(0)\n}\n")
FIGURES = MemoryStatistics(1, 2, 3, 4, 5, 6)


def memory_of(module, statistics, platform, lines):
    return with_temporaries(figures_of(statistics, platform), module, platform, lines)


def test_figures_are_those_of_xla_and_those_of_host_memory_are_apart():
    sizes = {"argument": 1, "output": 2, "alias": 3, "temporary": 4, "code": 5, "peak": 6}
    plain = ProgramMemory(**{f"{name}_nbytes": nbytes for name, nbytes in sizes.items()})
    assert memory_of(EMPTY, FIGURES, "gpu", UserLines()) == plain
    found = memory_of(EMPTY, MemoryStatistics(*FIGURES[:6], 10, 20, 5, 40), "gpu", UserLines())
    hosted = {"argument": 10, "output": 20, "alias": 5, "temporary": 40}
    assert found == replace(plain, **{f"host_{name}_nbytes": nbytes for name, nbytes in hosted.items()})
    assert found.host_nbytes == 10 + 20 - 5 + 40


def test_figures_of_host_memory_are_read_from_xla():
    compiled = jax.jit(jnp.sin).lower(jnp.ones(3)).compile()
    statistics = memory_analysis(compiled)
    assert statistics.host_temporary_nbytes == compiled.memory_analysis().host_temp_size_in_bytes
    assert statistics.host_argument_nbytes == 0


def test_the_peak_of_cpu_and_a_backend_without_figures_are_unknown():
    """The figure of CPU leaves out temporary values."""
    assert memory_of(EMPTY, FIGURES, "cpu", UserLines()).peak_nbytes is None
    assert memory_of(EMPTY, None, "gpu", UserLines()) == ProgramMemory()


def test_the_memory_of_a_tpu_is_that_of_hbm_and_vmem_is_apart():
    """XLA's peak counts the temporary values of the fullest memory. Two of 4 KiB are in VMEM at one time."""
    module = entry_of(
        "%p = f32[1024]{0} parameter(0)",
        "%a = f32[1024]{0:S(1)} reverse(%p), dimensions={0}",
        "%b = f32[1024]{0:S(1)} reverse(%a), dimensions={0}",
        "%c = f32[1024]{0:S(1)} reverse(%b), dimensions={0}",
        "%d = f32[1024]{0} reverse(%c), dimensions={0}",
        "ROOT %e = f32[1024]{0} reverse(%d), dimensions={0}",
    )
    found = memory_of(module, MemoryStatistics(4096, 4096, 0, 4096, 0, 16384), "tpu", UserLines())
    assert (found.peak_nbytes, found.needed_nbytes, found.vmem_nbytes) == (None, 3 * 4096, 2 * 4096)
    text = to_text(ProgramReport(name="step", platform="tpu", memory=found), width=200)
    parts = "arguments 4.0 KiB + outputs 4.0 KiB + temporaries 4.0 KiB"
    assert f"memory per device: 12.0 KiB of HBM = {parts}\n" in text
    assert "VMEM per device: 8.0 KiB at most (estimated from the schedule)\n" in text
    assert figures_of_change(ProgramReport(name="", platform="tpu", memory=found)).memory_nbytes == 3 * 4096


@pytest.mark.parametrize("error", [NotImplementedError("memory"), None])
def test_an_executable_may_have_no_figures(error):
    class Compiled:
        def memory_analysis(self):
            if error is not None:
                raise error

    assert memory_analysis(Compiled()) is None


def test_equal_values_are_one_row():
    """The largest rows come first, and add up to less than all live values."""
    found = memory_of(stored("0.12.0.1", "scan"), None, "cpu", UserLines())
    first = found.temporaries[0]
    assert (first.shape, first.dtype, first.count, first.is_kept) == ((4, 8, 256, 2048), "float32", 5, True)
    assert first.nbytes == 4 * 4 * 8 * 256 * 2048
    assert first.origin.function == "layer"
    sizes = [row.nbytes * row.count for row in found.temporaries]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(found.temporaries)) == len(sizes)
    assert sum(sizes) == found.live_nbytes


@pytest.mark.needs_devices(8)
def test_the_results_of_a_combined_collective_have_the_lines_of_their_own():
    def loss(params, x):
        x = jnp.tanh(x @ params["first"])
        return jnp.sum(x @ params["second"])

    params = {"first": abstract(line(), P(), (256, 512)), "second": abstract(line(), P(), (512, 384))}
    step = jax.jit(lambda params, x: jax.tree.map(lambda w: w * 2, jax.grad(loss)(params, x)))
    found = program_report(step, params, abstract(line(), P("dp"), (64, 256))).memory.temporaries
    start = loss.__code__.co_firstlineno
    # A gradient may be transposed.
    lines = {tuple(sorted(one.shape)): one.origin.line - start for one in found if one.origin is not None}
    expected = {(256, 512): 1, (384, 512): 2}
    assert {shape: line for shape, line in lines.items() if shape in expected}.items() <= expected.items()


def test_the_line_that_keeps_the_most_for_the_backward_pass_is_found():
    """With ``jax.checkpoint``, the input of the layer is kept, and the rest is computed again."""

    def layer(x, w):
        hidden = jnp.sin(x @ w)
        return jnp.cos(hidden @ w.T) + x

    def kept(one):
        def loss(ws, x):
            for w in ws:
                x = one(x, w)
            return jnp.sum(x**2)

        ws, x = (
            [jax.ShapeDtypeStruct((128, 512), jnp.float32)] * 3,
            jax.ShapeDtypeStruct((64, 128), "float32"),
        )
        found = program_report(jax.jit(jax.grad(loss)), ws, x).memory.temporaries
        counts = Counter()
        for one in found:
            counts[one.shape] += one.count * one.is_for_backward
        return +counts

    if not kept(layer):
        pytest.skip("up to JAX 0.6, names of operations do not contain their pass")
    hidden = (64, 512)
    everything, inputs = kept(layer), kept(jax.checkpoint(layer))
    assert everything[hidden] >= 3
    # In some versions, XLA merges what the last layer computes again with what it has just computed.
    assert inputs.keys() - {hidden} == {(64, 128)}
    assert inputs[hidden] < everything[hidden]


def test_a_report_has_the_largest_rows_only():
    lines = [
        f'  %v{k} = f32[{k}]{{0}} custom-call(), custom_call_target="x"'
        for k in range(1, MOST_TEMPORARIES + 11)
    ]
    operands = ", ".join(f"%v{k}" for k in range(1, MOST_TEMPORARIES + 11))
    root = f'  ROOT %r = f32[] custom-call({operands}), custom_call_target="x"'
    module = module_of("\n".join(["HloModule m", "", "ENTRY %main {", *lines, root, "}"]))
    found = memory_of(module, None, "cpu", UserLines())
    assert [row.shape for row in found.temporaries] == [(k,) for k in range(30, 10, -1)]
    assert found.live_nbytes == 4 * sum(range(1, 31))


@pytest.mark.needs_devices(8)
def test_memory_is_that_of_one_device():
    """A tanh of a product is computed from two arguments, and takes one temporary value."""
    x, w = abstract(line(), P("dp"), (64, 128)), abstract(line(), P(), (128, 256))

    def f(x, w):
        return jnp.tanh(x @ w) @ w.T

    compiled = jax.jit(f).lower(x, w).compile()
    found = memory_of(read_module(program_record(compiled)), memory_analysis(compiled), "cpu", UserLines())
    assert found.argument_nbytes == 8 * 128 * 4 + 128 * 256 * 4
    assert found.output_nbytes == 8 * 128 * 4
    assert found.alias_nbytes == 0
    assert found.peak_nbytes is None
    product = next(row for row in found.temporaries if row.shape == (8, 256))
    assert product.nbytes == 8 * 256 * 4
    assert (product.origin.file, product.origin.line) == (__file__, f.__code__.co_firstlineno + 1)


def has_pinned_host():
    return any(memory.kind == "pinned_host" for memory in jax.devices()[0].addressable_memories())


@pytest.mark.newest  # earlier versions refuse outputs in host memory on the CPU
@pytest.mark.needs_devices(8)
@pytest.mark.skipif(not has_pinned_host(), reason=f"jax {jax.__version__} has one memory kind on CPU")
@pytest.mark.parametrize("donated", [(), (0,), (0, 1)])
@pytest.mark.parametrize("spec", [P("x"), P()])
def test_values_in_host_memory_are_apart_on_a_backend_that_counts_them_together(spec, donated):
    """The figures of both memories add up to those of XLA, and are those of the trees of values."""
    on_device = NamedSharding(line("x"), spec)
    on_host = on_device.with_memory_kind("pinned_host")
    held, w = (
        jax.device_put(np.ones(shape, np.float32), sharding)
        for shape, sharding in (((64, 16), on_host), ((64, 32), on_device))
    )
    step = jax.jit(
        lambda held, w: (held, w + 1, jnp.ones((64, 8), jnp.float32)),
        out_shardings=(on_host, on_device, on_host),
        donate_argnums=donated,
    )
    found = program_report(step, held, w, explain=False).memory
    of_xla = memory_analysis(step.lower(held, w).compile())
    for name in ("argument", "output", "alias"):
        parts = (getattr(found, f"{name}_nbytes"), getattr(found, f"host_{name}_nbytes"))
        assert sum(parts) == getattr(of_xla, f"{name}_nbytes")
    arguments = tree_report((held, w))
    assert (found.argument_nbytes, found.host_argument_nbytes) == (
        arguments.fullest_device_nbytes,
        arguments.host_nbytes,
    )
    shards = 8 if spec == P("x") else 1
    assert found.host_output_nbytes == 64 * (16 + 8) * 4 // shards
    assert found.host_alias_nbytes == (64 * 16 * 4 // shards if 0 in donated else 0)
    assert found.host_nbytes == 64 * (8 + 16 * (1 if 0 in donated else 2)) * 4 // shards


@pytest.mark.needs_devices(8)
@pytest.mark.skipif(not has_pinned_host(), reason=f"jax {jax.__version__} has one memory kind on CPU")
def test_an_argument_in_host_memory_that_is_not_used_counts_nowhere():
    sharding = NamedSharding(line("x"), P("x"), memory_kind="pinned_host")
    held = jax.device_put(np.ones((64, 16), np.float32), sharding)
    found = program_report(jax.jit(lambda held, w: w + 1), held, np.ones(8, np.float32), explain=False).memory
    assert (found.argument_nbytes, found.host_nbytes) == (32, 0)
