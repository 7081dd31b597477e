"""Mesh axes that stop sharding the batch: a parameter has them, or a loop slices them away."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import from_json, program_report, propagation_report, to_json
from tests.core.programs.propagation.programs import needs_shardy
from tests.programs import line

pytestmark = [*needs_shardy, pytest.mark.needs_devices(8)]

NET = {"wi": ((4, 256, 1024), P(None, "d")), "wo": ((4, 1024, 256), P(None, "d"))}
WHOLE = {"wi": ((4, 256, 1024), P()), "wo": ((4, 1024, 256), P())}
TABLE = {"e": ((4096, 256), P(None, "d"))}
TOKENS, ROWS, MORE = ((16, 128), jnp.int32), ((16, 128, 256), jnp.float32), ((64, 128, 256), jnp.float32)


def constrained(x, *spec):
    return jax.lax.with_sharding_constraint(x, NamedSharding(line("d"), P(*spec)))


def net(p, x):
    def layer(x, w):
        return x + jnp.tanh(x @ w[0]) @ w[1], None

    return jnp.mean(jax.lax.scan(layer, x, (p["wi"], p["wo"]))[0] ** 2)


def looked_up(p, t):
    return net(p, p["e"][t])


def looked_up_right(p, t):
    return net(p, constrained(p["e"][t], "d"))


def one_hot(p, t):
    return net(p, jax.nn.one_hot(t, 4096) @ p["e"])


def one_hot_right(p, t):
    return net(p, constrained(jax.nn.one_hot(t, 4096) @ p["e"], "d"))


def microbatches(p, x):
    return jax.lax.scan(lambda c, x: (c + net(p, x), None), 0.0, x.reshape(4, -1, *x.shape[1:]))[0]


def microbatches_right(p, x):
    rows = constrained(x.reshape(4, -1, *x.shape[1:]), None, "d")
    return jax.lax.scan(lambda c, x: (c + net(p, x), None), 0.0, rows)[0]


def struct(shape, spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(line("d"), spec))


def step_of(loss):
    return jax.jit(lambda p, x: jax.tree.map(lambda a, g: a - 0.1 * g, p, jax.grad(loss)(p, x)))


def given(params, data):
    return {name: struct(*leaf) for name, leaf in params.items()}, struct(data[0], P("d"), data[1])


TAKEN, SLICED = 'p["e"][t], P("d")', 'x.reshape(4, -1, *x.shape[1:]), P(None, "d")'
LOST = {
    "looked up": (looked_up, looked_up_right, NET | TABLE, TOKENS, TAKEN),
    "looked up, whole layers": (looked_up, looked_up_right, WHOLE | TABLE, TOKENS, TAKEN),
    "one-hot": (one_hot, one_hot_right, NET | TABLE, TOKENS, 'jax.nn.one_hot(t, 4096) @ p["e"], P("d")'),
    "microbatches": (microbatches, microbatches_right, WHOLE, MORE, SLICED),
    "microbatches of FSDP": (microbatches, microbatches_right, NET, MORE, SLICED),
}


@pytest.mark.parametrize("name", LOST)
def test_the_remedy_lowers_memory_and_what_is_sent(name):
    loss, right, params, data, code = LOST[name]
    before, after = (program_report(step_of(each), *given(params, data)) for each in (loss, right))
    (row,) = before.lost_batches
    assert (row.mesh_axis, row.path, row.count) == ("d", "x", 1)
    assert row.code == f"jax.lax.with_sharding_constraint({code})"
    assert after.lost_batches == ()
    assert before.memory.needed_nbytes > 1.1 * after.memory.needed_nbytes
    assert [one.code for one in before.findings if one.code == "JAI304"] == ["JAI304"]
    if row.taken_by is None:
        assert before.dot_flops >= 2 * after.dot_flops
        assert "More bytes may be sent" in row.remedy
    else:
        assert before.sent_nbytes > 2 * after.sent_nbytes


@pytest.mark.parametrize("name", LOST)
def test_both_reports_have_the_same_rows(name):
    loss, _, params, data, _ = LOST[name]
    makers = propagation_report, program_report
    report, program = (make(step_of(loss), *given(params, data)) for make in makers)
    assert report.lost_batches == program.lost_batches
    assert from_json(to_json(report)) == report


def positions(p, x):
    return net(p, x + p["pos"])


SILENT = {
    "a table without the axis": (looked_up, NET | {"e": ((4096, 256), P())}, TOKENS),
    "a table over the vocabulary": (looked_up, NET | {"e": ((4096, 256), P("d"))}, TOKENS),
    "FSDP": (net, NET, ROWS),
    "positions": (positions, NET | {"pos": ((128, 256), P(None, "d"))}, ROWS),
    "more weights than rows": (
        lambda p, x: jnp.mean(jnp.tanh(x @ p["wi"]) ** 2),
        {"wi": ((1024, 4096), P(None, "d"))},
        ((16, 1024), jnp.float32),
    ),
    "fewer rows than devices": (microbatches, WHOLE, ROWS),
}


@pytest.mark.parametrize("name", SILENT)
def test_what_costs_less_or_cannot_be_sharded_is_not_named(name):
    loss, params, data = SILENT[name]
    assert propagation_report(step_of(loss), *given(params, data)).lost_batches == ()


def test_an_axis_that_a_constraint_moves_is_not_named():
    def ulysses(p, x):
        q = constrained(jnp.einsum("bsd,dhk->bshk", x, p["q"]), None, None, "d")
        a = jax.nn.softmax(jnp.einsum("bshk,bthk->bhst", q, q))
        o = constrained(jnp.einsum("bhst,bthk->bshk", a, q), None, "d")
        return jnp.mean(jnp.einsum("bshk,dhk->bsd", o, p["q"]) ** 2)

    weights, x = {"q": struct((256, 8, 32), P())}, struct((4, 128, 256), P(None, "d"))
    assert propagation_report(step_of(ulysses), weights, x).lost_batches == ()


def test_the_finding_of_a_loop_has_both_lines():
    report = propagation_report(step_of(microbatches), *given(WHOLE, MORE))
    (row,) = report.lost_batches
    (finding,) = [one for one in report.findings if one.code == "JAI304"]
    assert row.loop.line == row.origin.line == microbatches.__code__.co_firstlineno + 1
    assert "the loop takes single rows of what it shards" in finding.problem
    assert str(row.before), str(row.expected) == ("P('d', None, None)", "P(None, 'd', None, None)")


def test_an_expression_that_computes_more_is_not_quoted():
    def embedded(p, t):
        rows, sums = p["e"][t], jnp.sum(p["e"][t], 1)  # the place of each is its own
        return net(p, rows + sums[:, None])

    report = propagation_report(step_of(embedded), *given(NET | TABLE, TOKENS))
    assert {row.expression for row in report.lost_batches} == {'p["e"][t]'}


def test_the_conflict_in_which_the_batch_is_lost_costs_what_follows_and_stands_first():
    report = propagation_report(step_of(looked_up), *given(NET | TABLE, TOKENS))
    (row,), (lost,) = [row for row in report.conflicts if not row.is_meant], report.lost_batches
    assert row is report.conflicts[0]
    assert row.cost_nbytes == row.following_nbytes == lost.nbytes > 1000 * row.nbytes
    assert [one.nbytes for one in report.findings if one.code == "JAI301"] == [lost.nbytes]


@pytest.mark.parametrize(
    "name", ["FSDP", "positions", "a table over the vocabulary", "more weights than rows"]
)
def test_conflicts_that_cost_less_than_a_parameter_are_expected(name):
    loss, params, data = SILENT[name]
    report = propagation_report(step_of(loss), *given(params, data))
    assert report.conflicts
    assert "JAI301" not in [one.code for one in report.findings]


def test_fields_that_are_sharded_in_different_ways_conflict():
    u, v = struct((64, 64), P("d")), struct((64, 64), P(None, "d"))
    report = propagation_report(lambda u, v: (jnp.sin(u) + jnp.cos(v), v), u, v)
    assert "JAI301" in [one.code for one in report.findings]


def test_a_constraint_that_drops_the_axis_for_some_values_is_a_fact():
    def norm_of_all(p, x):
        def layer(x, w):
            x = constrained(jnp.tanh(x), None)  # the norm of a sequence-parallel layer does this on purpose
            return constrained(x + jnp.tanh(x @ w[0]) @ w[1], "d"), None

        return jnp.mean(jax.lax.scan(layer, x, (p["wi"], p["wo"]))[0] ** 2)

    report = propagation_report(step_of(norm_of_all), *given(WHOLE, ROWS))
    facts = {row.phase: row for row in report.lost if row.again}
    assert facts.keys() == {"forward", "backward"}
    assert facts["forward"].constraint.callers[0].line == norm_of_all.__code__.co_firstlineno + 2
    assert "JAI302" not in [one.code for one in report.findings]
    assert report.lost_batches == ()


def test_explicit_axes_and_two_slices_have_no_false_row():
    mesh = jax.make_mesh((2, 4), ("dcn", "d"), axis_types=(jax.sharding.AxisType.Auto,) * 2)

    def leaf(shape, dtype=jnp.float32, *spec):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    params = {name: leaf(shape, jnp.float32, None, "d") for name, (shape, _) in (NET | TABLE).items()}
    tokens = leaf((16, 128), jnp.int32, ("dcn", "d"))
    (row,) = propagation_report(step_of(looked_up), params, tokens).lost_batches
    assert (row.mesh_axis, row.code) == (
        "d",
        'jax.lax.with_sharding_constraint(p["e"][t], P(("dcn", "d")))',
    )
    explicit = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    x, w = (
        jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(explicit, P("d")))
        for shape in ((64, 256), (256, 256))
    )
    with jax.set_mesh(explicit):
        report = propagation_report(lambda w, x: jnp.tanh(x @ jax.reshard(w, P())), w, x)
    assert report.lost_batches == ()
