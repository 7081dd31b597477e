"""Layers of models, alone."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from jax_array_info_core.compat.arrays import per_shard
from tests.programs import abstract, line

from .registry import TOKENS, VOCABULARY, WIDTH, Program, grid, keep, mlp, named, specs_of, step


@named("tensor-parallel MLP, inference")
def _():
    mesh = grid()
    params = mlp(mesh, (None, "tensor"), ("tensor", None))
    x = abstract(mesh, P("data"), (8 * TOKENS, WIDTH))
    return mesh, Program(lambda p, x: jax.nn.gelu(x @ p["wi"]) @ p["wo"], (params, x), P("data"))


def _attention(q, k, v):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, scores, -1e9)), v)


@named("tensor-parallel attention, training")
def _():
    mesh = grid()
    params = {name: abstract(mesh, P(None, "tensor"), (WIDTH, 8, 32)) for name in "qkv"}
    params["o"] = abstract(mesh, P("tensor"), (8, 32, WIDTH))
    x = abstract(mesh, P("data"), (8, TOKENS, WIDTH))

    def loss(params, x):
        q, k, v = (jnp.einsum("btw,whd->bthd", x, params[name]) for name in "qkv")
        return jnp.mean((x + jnp.einsum("bqhd,hdw->bqw", _attention(q, k, v), params["o"])) ** 2)

    return mesh, Program(lambda p, x: step(p, x, loss), (params, x), specs_of(params))


@named("sequence-parallel norm around a tensor-parallel MLP")
def _():
    mesh = grid()
    params = mlp(mesh, (None, "tensor"), ("tensor", None))
    x = abstract(mesh, P("data", "tensor"), (8, TOKENS, WIDTH))

    def block(params, x):
        y = x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)
        y = keep(mesh, y, "data")
        return x + keep(mesh, jax.nn.gelu(y @ params["wi"]) @ params["wo"], "data", "tensor")

    return mesh, Program(block, (params, x), P("data", "tensor"))


@named("ring attention")
def _():
    mesh = line("sequence")
    q = abstract(mesh, P(None, "sequence"), (2, 8 * TOKENS, 4, 32))

    def ring(q, k, v):
        def turn(carry, _):
            k, v, top, low, best = carry
            scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
            new = jnp.maximum(best, scores.max(-1))
            weights = jnp.exp(scores - new[..., None])
            scale = jnp.exp(best - new)
            top = top * scale[..., None] + jnp.einsum("bhqk,bkhd->bhqd", weights, v)
            low = low * scale + weights.sum(-1)
            k, v = (lax.ppermute(one, "sequence", [(n, (n + 1) % 8) for n in range(8)]) for one in (k, v))
            return (k, v, top, low, new), None

        best = jnp.einsum("bqhd->bhq", q) * 0 - jnp.inf
        top = jnp.einsum("bqhd->bhqd", q) * 0
        (_, _, top, low, _), _ = lax.scan(turn, (k, v, top, best * 0 + 1, best), None, length=8)
        return jnp.einsum("bhqd->bqhd", top / low[..., None])

    spec = P(None, "sequence")
    return mesh, Program(per_shard(ring, mesh, (spec,) * 3, spec), (q, q, q))


@named("all_to_all of heads and sequences")
def _():
    mesh = line("sequence")
    q = abstract(mesh, P(None, "sequence"), (2, 8 * TOKENS, 8, 32))

    def ulysses(*qkv):
        heads = (lax.all_to_all(one, "sequence", 2, 1, tiled=True) for one in qkv)
        return lax.all_to_all(_attention(*heads), "sequence", 1, 2, tiled=True)

    spec = P(None, "sequence")
    return mesh, Program(per_shard(ulysses, mesh, (spec,) * 3, spec), (q, q, q))


@named("mixture of experts, all_to_all by the user")
def _():
    mesh = line("expert")
    x = abstract(mesh, P("expert"), (8 * TOKENS, WIDTH))
    router = abstract(mesh, P(), (WIDTH, 8))
    experts = abstract(mesh, P("expert"), (8, WIDTH, WIDTH))

    def layer(x, router, w):
        chosen = jnp.argmax(x @ router, -1)
        place = jnp.cumsum(jax.nn.one_hot(chosen, 8, dtype=jnp.int32), 0)[jnp.arange(len(x)), chosen] - 1
        buffer = jnp.zeros((8, 16, WIDTH)).at[chosen, place].add(x, mode="drop")
        buffer = lax.all_to_all(buffer, "expert", 0, 1, tiled=True)
        buffer = lax.all_to_all(jnp.einsum("etw,ewv->etv", buffer, w), "expert", 1, 0, tiled=True)
        return buffer.at[chosen, place].get(mode="fill", fill_value=0)

    spec = P("expert")
    return mesh, Program(per_shard(layer, mesh, (spec, P(), spec), spec), (x, router, experts))


@named("mixture of experts, dense dispatch by einsum")
def _():
    mesh = line("expert")
    x = abstract(mesh, P("expert"), (8, TOKENS, WIDTH))
    router = abstract(mesh, P(), (WIDTH, 8))
    wi = abstract(mesh, P("expert"), (8, WIDTH, 4 * WIDTH))
    wo = abstract(mesh, P("expert"), (8, 4 * WIDTH, WIDTH))

    def layer(x, router, wi, wo):
        gates = jax.nn.softmax(x @ router)
        chosen = jax.nn.one_hot(jnp.argmax(gates, -1), 8)
        place = jnp.cumsum(chosen, 1) * chosen - 1
        dispatch = jax.nn.one_hot(place, 16) * chosen[..., None]
        inside = keep(mesh, jnp.einsum("gtec,gtw->egcw", dispatch, x), "expert")
        made = jnp.einsum("egcf,efw->egcw", jax.nn.gelu(jnp.einsum("egcw,ewf->egcf", inside, wi)), wo)
        made = keep(mesh, made, None, "expert")
        return jnp.einsum("gtec,egcw->gtw", dispatch * gates[..., None], made)

    return mesh, Program(layer, (x, router, wi, wo), P("expert"))


@named("embedding sharded over the vocabulary, masked lookups by the user")
def _():
    mesh = line("vocabulary")
    table = abstract(mesh, P("vocabulary"), (VOCABULARY, WIDTH))
    ids = abstract(mesh, P(), (8 * TOKENS,), "int32")

    def lookup(table, ids):
        own = ids - lax.axis_index("vocabulary") * len(table)
        is_own = (own >= 0) & (own < len(table))
        return lax.psum(jnp.where(is_own[:, None], table[jnp.clip(own, 0, len(table) - 1)], 0), "vocabulary")

    return mesh, Program(per_shard(lookup, mesh, (P("vocabulary"), P()), P()), (table, ids))


@named("pipeline by ppermute")
def _():
    mesh = line("stage")
    w = abstract(mesh, P("stage"), (8, WIDTH, WIDTH))
    x = abstract(mesh, P(), (16, TOKENS, WIDTH))

    def run(w, x):
        stage = lax.axis_index("stage")

        def turn(held, t):
            inside = jnp.where(stage == 0, x[jnp.clip(t, 0, 15)], held)
            made = jax.nn.relu(inside @ w[0])
            return lax.ppermute(made, "stage", [(n, n + 1) for n in range(7)]), made

        _, made = lax.scan(turn, jnp.zeros_like(x[0]) * w[0, 0, 0], jnp.arange(23))
        return made[None, 7:]

    return mesh, Program(per_shard(run, mesh, (P("stage"), P()), P("stage")), (w, x))


@named("sampling of tokens, the best of each device first")
def _():
    mesh = grid()
    head = abstract(mesh, P(None, "tensor"), (WIDTH, VOCABULARY))
    x = abstract(mesh, P("data"), (TOKENS, WIDTH))

    def best(logits):
        top, ids = lax.top_k(logits, 16)
        return top, ids + lax.axis_index("tensor") * logits.shape[-1]

    own = per_shard(best, mesh, P("data", "tensor"), (P("data", "tensor"),) * 2)

    def sample(head, x, seed):
        logits = x @ head
        top, ids = own(logits)
        picked = jax.random.categorical(jax.random.key(seed), top)
        return jnp.take_along_axis(ids, picked[:, None], 1), jnp.argmax(logits, -1)

    return mesh, Program(sample, (head, x, abstract(mesh, P(), (), "uint32")), (P("data"), P("data")))


@named("decoding with a cache sharded over heads")
def _():
    mesh = grid()
    cache = abstract(mesh, P("data", None, "tensor"), (8, 128, 8, 32))
    q = abstract(mesh, P("data", None, "tensor"), (8, 1, 8, 32))

    def decode(k, v, q, at):
        k, v = (lax.dynamic_update_slice(one, q, (0, at, 0, 0)) for one in (k, v))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
        scores = jnp.where(jnp.arange(128) <= at, scores, -1e9)
        return k, v, jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)

    spec = P("data", None, "tensor")
    return mesh, Program(decode, (cache, cache, q, abstract(mesh, P(), (), "int32")), (spec, spec, spec))
