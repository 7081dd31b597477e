"""Findings of a propagation: causes, without their consequences and without what is meant."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from jax_array_info_core import from_json, propagation_report, to_json
from tests.core.propagation.programs import constrained, explicit_mesh, needs_shardy, struct

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
