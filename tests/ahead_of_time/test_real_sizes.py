"""Steps of real size for TPUs that are not here: no part of their reports is left out.

XLA gives some operations to the SparseCore, or to several slices, only from some size on.
"""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report, topology_mesh
from tests.ahead_of_time import needs_tpu_compiler
from tests.programs import abstract

pytestmark = [pytest.mark.needs_devices(8), needs_tpu_compiler]

VOCABULARY, FEATURES, HIDDEN, EXPERTS, LAYERS = 128256, 8192, 28672, 8, 2
BATCH, LENGTH, KEPT = 16, 2048, 1024
TOPOLOGIES = ("v5p:2x2x2", "v5e:2x4", "v6e:2x4", "2*v5p:2x2x2")


def shard(x, *axes):
    return lax.with_sharding_constraint(x, P(*axes))


def dense(x, w):
    """Return the output of a feed-forward block."""
    return shard(jax.nn.silu(x @ w["in"]) @ w["out"], "data")


def mixed(x, w):
    """Return the output of a block of experts, each of which gets so many tokens of a sequence."""
    scores = jax.nn.softmax(x @ w["router"], axis=-1)
    weights, places = lax.top_k(jnp.swapaxes(scores, 1, 2), KEPT)
    tokens = jnp.take_along_axis(x[:, None], places[..., None], axis=2)
    tokens = shard(tokens, "data", "model")
    out = jnp.einsum("bech,ehf->becf", jax.nn.silu(jnp.einsum("becf,efh->bech", tokens, w["in"])), w["out"])
    rows = jnp.arange(x.shape[0])[:, None, None]
    return shard(jnp.zeros_like(x).at[rows, places].add(out * weights[..., None]), "data")


def loss(params, tokens):
    """Return the loss of an embedding, a scan over dense layers, a layer of experts, and logits of all words."""
    x = shard(params["embedding"][tokens], "data")
    x, _ = lax.scan(jax.checkpoint(lambda x, w: (x + dense(x, w), None)), x, params["dense"])
    x = x + mixed(x, params["mixed"])
    logits = shard(x @ params["embedding"].T, "data", None, "model")
    picked = jnp.take_along_axis(logits, tokens[..., None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits.astype(jnp.float32), -1) - picked)


def step(params, tokens):
    """Return the parameters after one step of gradient descent."""
    gradients = jax.grad(loss)(params, tokens)
    return jax.tree.map(lambda p, g: p - 0.1 * g.astype(p.dtype), params, gradients)


def arguments(mesh):
    """Return parameters and tokens: the experts are sharded over the model axis."""
    kind = functools.partial(abstract, mesh, dtype="bfloat16")
    params = {
        "embedding": kind(P("model", "data"), (VOCABULARY, FEATURES)),
        "dense": {
            "in": kind(P(None, "data", "model"), (LAYERS, FEATURES, HIDDEN)),
            "out": kind(P(None, "model", "data"), (LAYERS, HIDDEN, FEATURES)),
        },
        "mixed": {
            "router": kind(P(), (FEATURES, EXPERTS)),
            "in": kind(P("model", "data"), (EXPERTS, FEATURES, HIDDEN // EXPERTS)),
            "out": kind(P("model", None, "data"), (EXPERTS, HIDDEN // EXPERTS, FEATURES)),
        },
    }
    return params, abstract(mesh, P("data"), (BATCH, LENGTH), "int32")


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_no_part_of_a_step_of_real_size_is_left_out(topology):
    """Also of one that does not fit."""
    count = 16 if topology.startswith("2*") else 8
    options = {"dcn": {"data": 2}} if count == 16 else {}
    mesh = topology_mesh(topology, {"data": count // 2, "model": 2}, **options)
    params, tokens = arguments(mesh)
    shardings = jax.tree.map(lambda one: one.sharding, params)
    with jax.set_mesh(mesh):
        jitted = jax.jit(step, donate_argnums=0, out_shardings=shardings)
        report = program_report(jitted, params, tokens, timeline=True)
    assert report.left_out == ()
    assert report.unread_sending == ()
    assert report.collectives
    assert report.sent.nbytes
    assert (report.memory is None) == (report.out_of_memory is not None)
