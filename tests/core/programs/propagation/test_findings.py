"""Findings of a propagation: causes, without their consequences and without what is meant; and assertions."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from jax_array_info_core import CheckError, assert_no_conflict, from_json, propagation_report, to_json
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.reports import PropagationReport
from tests.core.programs.propagation.programs import constrained, explicit_mesh, needs_shardy, struct

pytestmark = needs_shardy


def codes(report):
    return [one.code for one in report.findings]


def block(x, weights):
    return x + jax.nn.gelu(x @ weights["wi"]) @ weights["wo"], None


def loss(weights, x):
    return jnp.mean(jax.lax.scan(block, x, weights)[0] ** 2)


def step(weights, x):
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights, x))


SPECS = {
    "data parallelism": (P(), P()),
    "tensor parallelism": (P(None, None, "model"), P(None, "model")),
    "both": (P(None, "data", "model"), P(None, "model", "data")),
}


def arguments(wi, wo, batch=("data",)):
    weights = {"wi": struct((3, 256, 1024), *wi), "wo": struct((3, 1024, 256), *wo)}
    return weights, struct((64, 256), batch)


@pytest.mark.parametrize("scheme", SPECS)
def test_an_ordinary_step_has_no_finding(scheme):
    wi, wo = SPECS[scheme]
    batch = ("data",) if "model" in (*wi, *wo) else ("data", "model")
    given = arguments(wi, wo, batch)
    out = jax.tree.map(lambda one: one.sharding, given[0])
    assert codes(propagation_report(jax.jit(step, out_shardings=out), *given)) == []


def test_the_weights_of_fsdp_are_meant():
    x, wi, wo = struct((64, 256), "data"), struct((256, 1024), "data"), struct((1024, 256), "data")
    report = propagation_report(lambda x, wi, wo: jnp.tanh(x @ wi) @ wo.astype(jnp.bfloat16), x, wi, wo)
    assert [one.is_meant for one in report.conflicts] == [True, True]
    assert codes(report) == []


@pytest.mark.parametrize("forgotten", ["wi", "wo"])
def test_a_weight_with_a_forgotten_spec_is_named_by_its_path(forgotten):
    specs = {"wi": P(None, None, "model"), "wo": P(None, "model"), forgotten: P()}
    given = arguments(**specs)
    out = jax.tree.map(lambda one: one.sharding, given[0])
    report = propagation_report(jax.jit(step, out_shardings=out), *given)
    (one,) = [row for row in report.replicated if row.path is not None]
    assert (one.path, one.mesh_axes) == (f"weights/{forgotten}", ("model",))
    finding = next(each for each in report.findings if each.code == "JAI303")
    assert [leaf.path for leaf in finding.leaves] == [one.path]
    assert finding.nbytes == one.avoidable_nbytes == 3 * 256 * 1024 * 4 // 2
    assert from_json(to_json(report)) == report


def test_a_table_that_each_device_holds_is_named():
    table, ids = struct((1024, 256)), struct((64,), "data", dtype=jnp.int32)
    report = propagation_report(lambda table, ids: table[ids], table, ids)
    assert [(one.path, one.mesh_axes) for one in report.replicated] == [("table", ("model",))]


def test_weights_that_a_constraint_gathers_for_a_sharded_batch_are_meant():
    x, given = struct((64, 256), "data"), struct((256, 1024), "data", "model")

    def gathered(x, w):
        return x @ constrained(w, given, None, "model").astype(jnp.bfloat16).T.T

    report = propagation_report(gathered, x, given)
    assert [one.is_meant for one in report.lost if one.reason == "constraint"] == [True]
    assert codes(report) == []


def test_weights_that_reshard_gathers_are_meant():
    mesh = explicit_mesh()
    x, w = struct((64, 256), "data", mesh=mesh), struct((256, 1024), "data", "model", mesh=mesh)

    def gathered(x, w):
        return x @ jax.sharding.reshard(w, P(None, "model"))

    with jax.sharding.use_abstract_mesh(mesh):
        assert codes(propagation_report(gathered, x, w)) == []


def test_a_batch_that_a_constraint_gathers_is_a_loss_and_named_once():
    given, w = struct((64, 256), "data"), struct((256, 1024), None, "model")

    def gathered(x, w):
        return jax.nn.gelu(constrained(x, given) @ w) * 2

    report = propagation_report(gathered, given, w)
    assert "JAI302" in codes(report)
    assert "JAI303" not in codes(report)


def test_operands_that_are_computed_conflict():
    x, w = struct((64, 256), "data"), struct((256, 1024), "data", "model")
    report = propagation_report(lambda x, w: x @ jnp.tanh(w), x, w)
    assert codes(report) == ["JAI301"]


def test_a_value_that_is_made_of_nothing_is_named_but_not_what_follows():
    def filled(x):
        return x.sum() + (jnp.zeros((512, 512)).at[0, 0].set(1.0) * 2 + 1)

    report = propagation_report(filled, struct((64, 64), "data"))
    assert len(report.replicated) == 1
    assert report.replicated[0].path is None


def test_bytes_that_need_not_be_held_together_are_not_summed():
    def filled(x):
        first, second = jnp.zeros((512, 512)), jnp.ones((1024, 512))
        return x.sum() + jnp.tanh(first), jnp.tanh(second)

    report = propagation_report(filled, struct((64, 64), "data"))
    (finding,) = [one for one in report.findings if one.code == "JAI303"]
    assert finding.nbytes == max(one.nbytes for one in finding.leaves)
    assert len(finding.leaves) > 1
    assert "The bytes are those of the largest." in finding.problem


def layer(x, wi):
    return x @ wi


def report_of(*specs, function=layer):
    """Return a report on a program of two arguments with these specs."""
    return propagation_report(function, struct((32, 64), *specs[0]), struct((64, 64), *specs[1]))


FSDP = (("data",), ("data", "model"))


def test_a_conflict_is_listed_with_its_bytes_and_its_line():
    with pytest.raises(CheckError) as error:
        assert_no_conflict(report_of(*FSDP))
    line = layer.__code__.co_firstlineno + 1
    assert str(error.value) == (
        "conflicts in layer:\n- data: dot_general ik,kj->ij: 2.0 KiB: x P('data', None) (i: argument x),"
        f" wi P('data', 'model') (k: argument wi), test_findings.py:{line} layer"
    )
    with pytest.raises(CheckError, match="conflicts over mesh axis 'data' in layer"):
        assert_no_conflict(report_of(*FSDP), mesh_axis="data")


def test_a_program_without_conflicts_passes():
    assert_no_conflict(report_of(("data",), (None, "model")))
    assert_no_conflict(report_of(*FSDP), mesh_axis="model")
    assert_no_conflict(propagation_report(jnp.sin, jnp.ones(8)), mesh_axis="data")


def test_two_axes_of_one_dimension_are_a_conflict_over_each():
    found = propagation_report(lambda x, y: x + y, struct((32, 64), "data"), struct((32, 64), "model"))
    [conflict] = found.conflicts
    assert [str(one.axis_origin) for one in conflict.operands] == ["argument x", "argument y"]
    assert {(one.mesh_axis, one.reason) for one in found.lost} == {
        ("data", "conflict"),
        ("model", "conflict"),
    }
    for axis in ("data", "model"):
        with pytest.raises(CheckError, match="add ij,ij->ij"):
            assert_no_conflict(found, mesh_axis=axis)


def test_small_conflicts_pass_and_are_named_if_another_one_fails():
    def two(x, wi):
        return x[:4, :4] @ wi[:4, :4], x @ wi

    found = report_of(*FSDP, function=two)
    assert sorted(one.nbytes for one in found.conflicts) == [8, 2048]
    assert_no_conflict(found, min_nbytes="1MiB")
    with pytest.raises(CheckError) as error:
        assert_no_conflict(found, min_nbytes=1024)
    assert str(error.value).splitlines()[2:] == ["- not counted, below 1,024 bytes each: 1 conflict, 8.0 B"]


def test_what_is_unknown_fails():
    with pytest.raises(CheckError, match="unknown: Shardy gave no answer: it was killed"):
        assert_no_conflict(PropagationReport(name="f", platform="tpu", reason="it was killed"))
    with pytest.raises(CheckError, match="not understood: an operation"):
        assert_no_conflict(PropagationReport(name="f", platform="tpu", unread=("an operation",)))


def test_bad_arguments_are_refused():
    with pytest.raises(UnsupportedValueError, match="'dat' is not a mesh axis: the mesh has 'data', 'model'"):
        assert_no_conflict(report_of(*FSDP), mesh_axis="dat")
    with pytest.raises(UnsupportedValueError, match="min_nbytes"):
        assert_no_conflict(report_of(*FSDP), min_nbytes="many")
    with pytest.raises(UnsupportedValueError, match="propagation_report returns one"):
        assert_no_conflict(3)


LENGTH = 512
MASKS = {
    "triangle": lambda: jnp.tril(jnp.ones((LENGTH, LENGTH), bool)),
    "comparison": lambda: jnp.arange(LENGTH)[:, None] >= jnp.arange(LENGTH),
    "window": lambda: abs(jnp.arange(LENGTH)[:, None] - jnp.arange(LENGTH)) < 64,
    "blocks": lambda: jnp.arange(LENGTH)[:, None] // 64 == jnp.arange(LENGTH) // 64,
}


def attention(mask, q, k, v):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
    if mask.dtype == bool:
        scores = jnp.where(mask, scores, -1e9)
    else:
        scores += mask
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)


def layers(make):
    """Return the loss of a loop over layers of attention with a mask that is made outside."""
    mask = make()
    return lambda x, w: jax.lax.scan(lambda x, w: (attention(mask, x * w, x, x), None), x, w)[0].sum()


@pytest.mark.newest
@pytest.mark.parametrize("name", MASKS)
def test_the_mask_of_an_attention_is_made_where_it_is_used(name):
    make, x = MASKS[name], struct((16, LENGTH, 8, 64), "data", None, "model")
    attend = jax.checkpoint(lambda q, k, v: attention(make(), q, k, v))
    gradient = jax.grad(lambda q, k, v: attend(q, k, v).sum(), (0, 1, 2))
    assert propagation_report(gradient, x, x, x, min_nbytes=0).replicated == ()
    weights = struct((3, 8, 64), None, "model")
    loop = propagation_report(lambda x, w: layers(make)(x, w), x, weights, min_nbytes=0)
    assert [row.shape for row in loop.replicated if row.path is None] == []


HELD = {
    "returned": lambda x: (x * 2, jnp.tril(jnp.ones((512, 512)))),
    "product": lambda x: x @ jnp.ones((512, 512)),
    "updated": lambda x: x.sum() + jnp.zeros((512, 512)).at[0, 0].set(1.0),
    "carried": lambda x: jax.lax.fori_loop(0, 3, lambda t, y: y.T + x[0, t], jnp.zeros((512, 512))),
}


@pytest.mark.newest
@pytest.mark.parametrize("name", HELD)
def test_a_value_that_devices_hold_is_named_although_it_is_made_of_nothing(name):
    assert "JAI303" in codes(propagation_report(HELD[name], struct((1024, 512), "data")))
