"""Programs that a TPU refuses, and XLA's own peaks beside those from the schedule; the backward pass."""

import tempfile
from collections import Counter

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from jax_array_info.engine.render import render, text_of
from jax_array_info_core import from_json, program_report, to_json, topology_mesh
from jax_array_info_core.arrays.origins.origins import UserLines
from jax_array_info_core.xla.hlo.liveness import read_assignment
from jax_array_info_core.xla.hlo.messages import program_in
from jax_array_info_core.xla.hlo.module import read_module
from tests.ahead_of_time import needs_tpu_compiler
from tests.programs import abstract, block

pytestmark = [pytest.mark.needs_devices(8), needs_tpu_compiler]
GIB = 2**30


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def scaled(values):
    return [jnp.sin(value) for value in values]


def test_a_refused_program_has_all_buffers_at_the_peak_in_order(folder, capfd):
    """Ten arguments and ten outputs of 1 GiB, and smaller ones."""
    mesh = topology_mesh("v5e:2x2", {"x": 4})
    arguments = [abstract(mesh, P(), (16384, 16384 - number)) for number in range(10)]
    report = program_report(jax.jit(scaled), arguments)
    found = report.out_of_memory
    large = [one for one in found.buffers if one.nbytes > GIB // 2]
    assert [one.nbytes for one in found.buffers] == sorted(
        (one.nbytes for one in found.buffers), reverse=True
    )
    shapes = Counter({(16384, 16384 - number): 2 for number in range(10)})
    assert Counter(one.shape for one in large) == shapes
    assert {one.op for one in large if one.origin is None} == {f"values[{number}]" for number in range(10)}
    lines = {one.origin.line for one in large if one.origin is not None}
    assert lines == {scaled.__code__.co_firstlineno + 1}
    assert sum(one.nbytes for one in found.buffers) <= found.required_nbytes
    words = text_of(render(report, max_rows=None)).partition("shardings that XLA chose")[0]
    assert words.count("float32[16384,163") == 20 + 1  # the first is the one to change first
    assert from_json(to_json(report)) == report
    assert list(folder.iterdir()) == []
    assert capfd.readouterr().err == ""


def weights(mesh, layers=4):
    return {
        "wi": abstract(mesh, P(None, "data", "model"), (layers, 2048, 8192)),
        "wo": abstract(mesh, P(None, "model", "data"), (layers, 8192, 2048)),
    }


def scanned(params, x):
    return jnp.mean(lax.scan(block, x, params)[0] ** 2)


def rematerialized(params, x):
    return jnp.mean(lax.scan(jax.checkpoint(block), x, params)[0] ** 2)


def unrolled(params, x):
    for layer in range(4):
        x = block(x, jax.tree.map(lambda each, layer=layer: each[layer], params))[0]
    return jnp.mean(x**2)


def attention(params, x):
    heads = (x @ params["wi"][0, :, :512]).reshape(*x.shape[:2], 8, 64)
    scores = jnp.einsum("bqhd,bkhd->bhqk", heads, heads)
    return jnp.mean(jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), heads) ** 2)


def heap_of(assignment):
    """Return an assignment with the allocation of the temporary values alone."""
    main = [one for one in assignment.buffer_allocations if not one.is_thread_local and not one.color]
    heap = max(main, key=lambda one: len(one.assigned))
    found = type(assignment)()
    found.CopyFrom(assignment)
    del found.buffer_allocations[:]
    found.buffer_allocations.add().CopyFrom(heap)
    return found


@pytest.mark.parametrize(
    ("loss", "topology"),
    [(scanned, "v5e:2x4"), (rematerialized, "v5p:2x2x2"), (unrolled, "v5e:2x4"), (attention, "v5p:2x2x2")],
)
def test_the_estimated_temporaries_are_those_at_the_peak_of_xla(loss, topology, tmp_path):
    """Those in the memory of outputs are more: XLA does not count them apart from the outputs."""
    mesh = topology_mesh(topology, {"data": 4, "model": 2})
    x = abstract(mesh, P("data"), (32, 1024, 2048))
    compiled = (
        jax.jit(jax.grad(loss))
        .lower(weights(mesh), x)
        .compile(compiler_options={"xla_dump_to": str(tmp_path), "xla_dump_hlo_as_proto": True})
    )
    records = [path.read_bytes() for path in tmp_path.glob("*.after_optimizations.hlo.pb")]
    program, assignment = program_in(max(records, key=len))
    module = read_module(program)
    peak = read_assignment(heap_of(assignment), module, UserLines().nearest).buffers
    nbytes = sum(one.nbytes for one in peak)
    memory = program_report(compiled).memory
    assert 0.97 * nbytes <= memory.live_nbytes <= 1.02 * nbytes + memory.output_nbytes
    estimated: Counter = Counter()
    for one in memory.temporaries:
        estimated[one.dtype, one.shape] += one.count
    large = Counter((one.shape.dtype, one.shape.dims) for one in peak if one.nbytes >= nbytes / 50)
    assert large <= estimated


ROWS, WIDTH = 4096, 1024


@pytest.mark.parametrize("count", [2, 4])
def test_the_results_of_blocks_that_are_computed_again_are_saved_and_live(count):
    """What is inside of a block is 8 times as wide, and is not among them."""
    mesh = topology_mesh("v5e:2x2", {"x": 4})

    def loss(ws, x):
        for w in ws:
            x = jax.checkpoint(block)(x, w)[0]
        return (x**2).mean()

    ws = [
        {"wi": abstract(mesh, P(), (WIDTH, 8 * WIDTH)), "wo": abstract(mesh, P(), (8 * WIDTH, WIDTH))}
    ] * count
    memory = program_report(jax.grad(loss), ws, abstract(mesh, P(), (ROWS, WIDTH))).memory
    result = ROWS * WIDTH * 4
    assert memory.saved.nbytes == count * result, "of each block, also of the last"
    live = memory.live_at_backward
    assert (count - 1) * result <= live.nbytes <= live.nbytes + live.vmem_nbytes <= count * result + 2**20
