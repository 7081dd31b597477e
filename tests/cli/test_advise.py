"""``jai-cli advise``: the changes that it prints are true, and nothing is left of those that it tries."""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_cli.advice.changes import Change, changed
from jax_array_info_core.facts.reports.advice import ProgramFigures
from jax_array_info_core.programs.advice.edits import Candidate, Pin
from tests.cli.advised import (
    advice_on,
    assert_true,
    called,
    engine_on,
    figures,
    mesh_of,
    random_program,
)

IS_LONG = "JAI_FUZZ" in os.environ
only_long = pytest.mark.skipif(
    not IS_LONG, reason="compiles hundreds of programs, for minutes: nox -s fuzz runs it"
)

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]

DATA = Path(__file__).parents[1] / "data" / "advise"
WRONG, REAL = DATA / "wrong.py", DATA / "real.py"
SIZES = {"data": 4, "model": 2}
MIB = 2**20

# What is sent with the best of 24 changes, in MiB; None where the memory or the FLOPs are better.
BEST = {"scatter_mass": 0.22}
BEST_OF_OTHERS = {
    "logits_xent": 2.15,
    "mlp_forgotten": None,
    "fsdp_contracted": None,
    "heads_uneven": 0.422,
    "embed_vocab": 3.52,
    "moe_dispatch": None,
    "kv_cache": None,
    "fft_pencil": 0.313,
    "moments_mismatch": 1.51,
    "out_replicated": 0.751,
    "carry_reshard": 0.657,
    "backward_gather": 2.26,
    "stencil": 0.008,
}


@pytest.fixture(autouse=True)
def devices(monkeypatch):
    """The devices of the tests stand for those of the command."""
    monkeypatch.setattr("jax_array_info_cli.user_code.compiling._prepare_jax", lambda count: None)


def sizes_of(name):
    return {"data": 2, "model": 4} if name == "heads_uneven" else SIZES


@pytest.mark.parametrize("name", [*BEST, *(pytest.param(name, marks=only_long) for name in BEST_OF_OTHERS)])
def test_each_change_does_in_the_source_what_is_said(name):
    report = advice_on(WRONG, name, sizes_of(name))
    assert report.remedies or report.trades
    best = {**BEST, **BEST_OF_OTHERS}[name]
    if best is not None:
        assert min(one.after.sent_nbytes for one in report.remedies) <= best * MIB
    assert_true(WRONG, name, sizes_of(name), report)


@pytest.mark.parametrize("name", ["right_mlp", "right_dp"])
def test_nothing_helps_a_program_that_is_right(name):
    report = advice_on(WRONG, name, SIZES)
    assert (report.remedies, report.trades) == ((), ())
    assert report.tried >= 5
    assert report.answer == f"none of {report.tried} candidates helps"


@pytest.mark.parametrize("seed", range(300 if IS_LONG else 1))
def test_changes_of_random_programs_are_true(seed, tmp_path):
    text, sizes = random_program(seed)
    path = tmp_path / "step.py"
    path.write_text(text, encoding="utf-8")
    assert_true(path, "step", sizes, advice_on(path, "step", sizes))


def reduced(nbytes, parts):
    """Return the bytes that a device sends for a sum: of each part once to sum it, and once to spread it."""
    return 2 * nbytes * (parts - 1) // parts


def moved(nbytes, parts):
    """Return the bytes that a device sends to gather a value, or to exchange the parts of its own shard."""
    return nbytes * (parts - 1) // parts


MEAN = 6 + 4
"""Bytes that a mean sends: a float32 over 4 and over 2 devices."""

# What is sent before and with the best change, counted from the shapes; all dtypes but one have 4 bytes.
COUNTED = {
    # Base: all modes (complex64) are exchanged, then each slab goes around in 8 steps, with a factor each.
    # Remedy: the exchange alone.
    "poisson": (moved(64**3 // 8 * 8, 8) + 8 * (64**3 // 8 * 8 + 8), moved(64**3 // 8 * 8, 8)),
}
COUNTED_IN_FULL = {
    # Base: in each of 4 iterations, four values of 512 × 512 change from columns to rows or back, and a norm is
    # summed. Remedy: two columns are sent instead.
    "halo": (4 * (4 * moved(512 * 512 // 8 * 4, 8) + 7), 4 * (2 * 512 * 4 + 7)),
    # Base: the sum over the rank, 1024 × 512 on each of 4 groups; the other summand is gathered for it; in the
    # backward pass one half of 1024 × 16, and both gradients.
    # Remedy: 1024 × 16 is gathered or summed over "model" three times instead.
    "lora": (
        reduced(1024 * 512 * 4, 2)
        + moved(1024 * 512 * 4, 2)
        + moved(1024 * 16 * 4, 2)
        + reduced(256 * 16 * 4, 4)
        + reduced(8 * 256 * 4, 4)
        + MEAN,
        reduced(1024 * 16 * 4, 2) + moved(1024 * 16 * 4, 2) + 2 * reduced(256 * 16 * 4, 4) + MEAN,
    ),
    # Base: tokens go to the experts and back, 512 × 256 on each device, and the other half of a sequence is
    # gathered. Remedy: halves of both are exchanged instead, so that each sequence is whole.
    "experts": (
        2 * moved(512 * 256 * 4, 8) + moved(1024 * 256 * 4, 2),
        2 * moved(512 * 256 * 4, 8) + moved(512 * 256 * 4, 2),
    ),
    # Base: in each of 3 layers the scores of 8 sequences and 8 heads are summed, and the output is gathered.
    # Remedy: a device has the whole caches of its sequences.
    "decode": (3 * (reduced(8 * 8 * 1024 * 4, 4) + moved(8 * 8 * 32 * 4, 4)), 0),
}


@pytest.mark.parametrize(
    "name", [*COUNTED, *(pytest.param(name, marks=only_long) for name in COUNTED_IN_FULL)]
)
def test_bytes_sent_are_those_counted_by_hand(name):
    sizes = {"data": 2, "model": 4} if name == "decode" else SIZES
    report = advice_on(REAL, name, sizes)
    assert (report.base.sent_nbytes, report.remedies[0].after.sent_nbytes) == {**COUNTED, **COUNTED_IN_FULL}[
        name
    ]
    assert_true(REAL, name, sizes, report)


FREE = """
import functools
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P


def arrays(mesh):
    w = jax.device_put(jnp.ones((256, 512)), NamedSharding(mesh, P("model")))
    return w, jax.device_put(jnp.ones((512, 256)), NamedSharding(mesh, P("data")))
"""
STATIC = """

@functools.partial(jax.jit, static_argnums=(1, 3))
def step(w, name, x, count):
    for _ in range(count):
        x = jnp.tanh(x @ w) @ w.T
    return x


def step_args(mesh):
    w, x = arrays(mesh)
    return w, "train", x, 1
"""
EQUINOX = """
import equinox as eqx


class Layer(eqx.Module):
    w: jax.Array
    act: object

    def __call__(self, x):
        return self.act(x @ self.w) @ self.w.T


@eqx.filter_jit
def step(layer, x):
    return layer(x)


def step_args(mesh):
    w, x = arrays(mesh)
    return Layer(w, jnp.tanh), x
"""
UNPLACED = """
mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)


@jax.jit
def step(w, x):
    w = jax.lax.with_sharding_constraint(w, NamedSharding(mesh, P("model")))
    x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("data")))
    return jnp.tanh(x @ w) @ w.T


def step_args(mesh):
    return jax.ShapeDtypeStruct((256, 512), jnp.float32), jax.ShapeDtypeStruct((512, 256), jnp.float32)
"""
PINNED = """
mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
specs = [NamedSharding(mesh, P(name)) for name in ("data", "model", "data")]
step = jax.jit(jnp.matmul, in_shardings=specs[:2], out_shardings=specs[2])


def step_args(mesh):
    return jax.ShapeDtypeStruct((256, 512), jnp.float32), jax.ShapeDtypeStruct((512, 256), jnp.float32)
"""


def test_outputs_that_the_program_requests_change_as_in_its_source():
    """A jitted function inside of another one would give them their first sharding, and send twice."""
    mesh = mesh_of(SIZES)
    whole, sharded = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))

    def step(w, x):
        return w - x.T @ jnp.tanh(x @ w), x * 2

    arguments = [jax.ShapeDtypeStruct((512, 512), "float32", sharding=one) for one in (whole, sharded)]
    program, wanted = (jax.jit(step, out_shardings=(one, sharded)) for one in (whole, sharded))
    change = Change(outputs=((0, (("data",), ())),), argument_count=2)
    assert figures(*changed(change, program, arguments)) == figures(wanted, arguments)


MAPPED = """

def step(w, x, mesh):
    specs = P("model"), P("data", "model")
    product = lambda w, x: jax.lax.psum(x @ w, "model")
    return jnp.tanh(jax.shard_map(product, mesh=mesh, in_specs=specs, out_specs=P("data"))(w, x))


step_args = arrays
"""


def advice_on_code(tmp_path, code):
    path = tmp_path / "step.py"
    path.write_text(FREE + code, encoding="utf-8")
    return advice_on(path, "step", SIZES)


def assert_an_argument_changes(code, tmp_path):
    """Assert that the sharding of an argument changes where others are no arrays."""
    report = advice_on_code(tmp_path, code)
    best = report.remedies[0]
    assert (best.kind, best.expression, best.code) == ("argument", 'P("model")', 'P(None, "model")')
    # Before, the sum of 128 × 512 floats over "model"; with it, that of 128 × 256.
    assert (report.base.sent_nbytes, best.after.sent_nbytes) == (
        reduced(128 * 512 * 4, 2),
        reduced(128 * 256 * 4, 2),
    )
    assert report.failed == 0


def test_arguments_change_where_others_are_static(tmp_path):
    assert_an_argument_changes(STATIC, tmp_path)


def test_arguments_without_a_sharding_change_on_the_mesh_of_the_command(tmp_path):
    assert advice_on_code(tmp_path, UNPLACED).failed == 0


def test_a_change_that_cannot_be_written_is_said(tmp_path):
    report = advice_on_code(tmp_path, PINNED)
    assert (report.failed, report.unproved, report.remedies) == (1, 1, ())
    assert "does not match the sharding on the respective arg" in report.caveats[0]


WITHOUT_JAX = """
from jax.numpy import tanh


def step(w, x):
    return tanh(x @ w) @ w.T


def step_args(mesh):
    import jax
    from jax.sharding import NamedSharding, PartitionSpec as P

    structs = [(256, 512), P("model")], [(512, 256), P("data")]
    return tuple(jax.ShapeDtypeStruct(one, "float32", sharding=NamedSharding(mesh, spec)) for one, spec in structs)
"""


def test_a_file_without_the_names_gets_an_import(tmp_path):
    """Each constraint does in the file what its proof says."""
    path = tmp_path / "step.py"
    path.write_text(WITHOUT_JAX, encoding="utf-8")
    engine = engine_on(path, "step", SIZES)
    engine.base(0.0)
    sites = [*engine.tries._values.by_site]
    assert len(sites) == 4
    for site in sites:
        pin = Pin("constraint", ((), ("data",)), site=site)
        remedy = engine.proved(Candidate("rule", "", (pin,), ()), ProgramFigures(), 0.0)
        assert remedy.imports == "import jax"
        assert figures(*called(path, "step", SIZES, remedy)) == remedy.after != remedy.before


def test_values_inside_of_shard_map_are_said_not_to_change(tmp_path):
    report = advice_on_code(tmp_path, MAPPED)
    assert report.failed == 0
    assert report.caveats == ("Values inside of shard_map are not changed: its specs shard them.",)
