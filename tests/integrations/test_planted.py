"""Mistakes in steps of Flax and Equinox, each named by a finding with the user's line."""

import jax
import jax.numpy as jnp
import optax
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from tests.planted.registry import Planted, checked, planted
from tests.programs import abstract, line

eqx = pytest.importorskip("equinox")
nn = pytest.importorskip("flax.linen")
nnx = pytest.importorskip("flax.nnx")

WIDTH, ROWS = 256, 4096
STEPS: dict[str, Planted] = {}


def mistake(name, code="JAI213"):
    """Return a decorator that keeps a mistake of this file by its name."""
    return planted(name, code, STEPS)


def keep(x, *spec):
    """Return an array with a constraint."""
    return lax.with_sharding_constraint(x, P(*spec))


def placed(tree, mesh, spec_of=lambda leaf: P()):
    """Return the types of arrays with shardings."""
    return jax.tree.map(lambda leaf: abstract(mesh, spec_of(leaf), leaf.shape, leaf.dtype), tree)


def fsdp(leaf):
    """Return the spec of a parameter that is sharded over its last dimension."""
    return P(*[None] * (leaf.ndim - 1), "x") if leaf.ndim > 1 else P()


def train(parts, loss):
    """Return a step of gradient descent for a loss of parameters and a batch."""

    def step(params, *batch):
        gradient = jax.grad(loss)(params, *batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)

    out = jax.tree.map(lambda leaf: leaf.sharding, parts)
    return jax.jit(step, donate_argnums=0, out_shardings=out)


class Perceptron(nnx.Module):
    """Two layers of Flax NNX."""

    def __init__(self, rngs):
        self.up = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.down = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

    def __call__(self, x):
        return self.down(jax.nn.gelu(self.up(x)))  # mistake


def nnx_model(cls, mesh, spec_of=lambda leaf: P()):
    """Return the structure of a model and the types of its parameters."""
    graph, state = nnx.split(nnx.eval_shape(lambda: cls(nnx.Rngs(0))))
    return graph, placed(state, mesh, spec_of)


def shuffled(x, perm, is_right):
    """Return rows in another order, which are whole unless a constraint shards them."""
    return keep(x[perm], "x") if is_right else x[perm]


@mistake("nnx, rows in another order")
def _(is_right):
    mesh = line("x")

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.up = nnx.Linear(WIDTH, WIDTH, rngs=rngs)

        def __call__(self, x):
            return jax.nn.gelu(self.up(x))  # mistake

    graph, state = nnx_model(Net, mesh)
    loss = lambda state, x, perm: jnp.mean(nnx.merge(graph, state)(shuffled(x, perm, is_right)) ** 2)  # noqa: E731
    order = abstract(mesh, P(), (ROWS,), "int32")
    return mesh, train(state, loss), state, abstract(mesh, P("x"), (ROWS, WIDTH)), order


@mistake("nnx, the batch is lost at the embedding", "JAI304")
def _(is_right):
    mesh = line("x")

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.table = nnx.Embed(8192, WIDTH, rngs=rngs)
            self.up = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
            self.down = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)

        def __call__(self, tokens):
            x = self.table(tokens)  # mistake
            x = keep(x, "x") if is_right else x
            return self.down(jax.nn.gelu(self.up(x)))

    graph, state = nnx_model(Net, mesh, fsdp)
    loss = lambda state, tokens: jnp.mean(nnx.merge(graph, state)(tokens) ** 2)  # noqa: E731
    return mesh, train(state, loss), state, abstract(mesh, P("x"), (64, 256), "int32")


@mistake("nnx, microbatches that split the sharded rows", "JAI304")
def _(is_right):
    mesh = line("x")
    graph, state = nnx_model(Perceptron, mesh)

    def loss(state, x):
        parts = x.reshape(4, -1, WIDTH)  # mistake
        parts = keep(parts, None, "x") if is_right else parts

        def turn(total, part):  # mistake
            return total + jnp.mean(nnx.merge(graph, state)(part) ** 2), None

        return lax.scan(turn, 0.0, parts)[0]  # mistake

    return mesh, train(state, loss), state, abstract(mesh, P("x"), (ROWS, WIDTH))


@mistake("nnx, moments that are replicated", "JAI107")
def _(is_right):
    mesh = line("x")
    graph, state = nnx_model(Perceptron, mesh, fsdp)
    tx = optax.adam(1e-3)
    moments = placed(jax.eval_shape(tx.init, state), mesh, fsdp if is_right else lambda leaf: P())

    def step(state, moments, x):
        gradient = jax.grad(lambda state: jnp.mean(nnx.merge(graph, state)(x) ** 2))(state)
        updates, moments = tx.update(gradient, moments)  # mistake
        return optax.apply_updates(state, updates), moments  # mistake

    out = jax.tree.map(lambda leaf: leaf.sharding, (state, moments))
    jitted = jax.jit(step, donate_argnums=(0, 1), out_shardings=out)
    return mesh, jitted, state, moments, abstract(mesh, P("x"), (ROWS, WIDTH))


def eqx_model(make, mesh, spec_of=lambda leaf: P()):
    """Return the static part of a model and the types of its parameters."""
    arrays, static = eqx.partition(eqx.filter_eval_shape(make), lambda leaf: hasattr(leaf, "shape"))
    return static, placed(arrays, mesh, spec_of)


def perceptron():
    """Return a perceptron of Equinox."""
    return eqx.nn.MLP(WIDTH, WIDTH, 2 * WIDTH, 2, key=jax.random.key(0))


@mistake("Equinox, negatives that are made inside")
def _(is_right):
    mesh = line("x")
    static, params = eqx_model(perceptron, mesh)

    def loss(params, x, key):
        net = jax.vmap(eqx.combine(params, static))
        negatives = jax.random.normal(key, (ROWS, WIDTH))
        negatives = keep(negatives, "x") if is_right else negatives
        return jnp.mean(net(negatives) ** 2) - jnp.mean(net(x) ** 2)  # mistake

    x = abstract(mesh, P("x"), (ROWS, WIDTH))
    return mesh, train(params, loss), params, x, jax.eval_shape(lambda: jax.random.key(0))


@mistake("Equinox, one example after the other")
def _(is_right):
    mesh = line("x")
    static, params = eqx_model(perceptron, mesh)

    def loss(params, x):
        net = eqx.combine(params, static)
        y = jax.vmap(jax.vmap(net))(x) if is_right else lax.map(jax.vmap(net), x)  # mistake
        return jnp.mean(y**2)

    return mesh, train(params, loss), params, abstract(mesh, P("x"), (16, 256, WIDTH))


@mistake("Equinox, a gradient that is replicated", "JAI201")
def _(is_right):
    mesh = line("x")
    static, params = eqx_model(perceptron, mesh, lambda leaf: P("x"))

    def step(params, x):
        loss = lambda params: jnp.mean(jax.vmap(eqx.combine(params, static))(x) ** 2)  # noqa: E731
        gradient = jax.grad(loss)(params)
        spec = P("x") if is_right else P()
        gradient = eqx.filter_shard(gradient, NamedSharding(mesh, spec))  # mistake
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)

    out = jax.tree.map(lambda leaf: leaf.sharding, params)
    jitted = jax.jit(step, donate_argnums=0, out_shardings=out)
    return mesh, jitted, params, abstract(mesh, P("x"), (ROWS, WIDTH))


def linen_model(net, mesh, x, spec_of=lambda leaf: P()):
    """Return the types of the parameters of a model."""
    return placed(jax.eval_shape(net.init, jax.random.key(0), jnp.zeros(x, jnp.float32)), mesh, spec_of)


@mistake("linen, images in another order")
def _(is_right):
    mesh = line("x")

    class Net(nn.Module):
        @nn.compact
        def __call__(self, images):
            return nn.Conv(32, (3, 3))(nn.relu(nn.Conv(32, (3, 3))(images)))  # mistake

    net = Net()
    params = linen_model(net, mesh, (8, 16, 16, 8))
    loss = lambda params, x, perm: jnp.mean(net.apply(params, shuffled(x, perm, is_right)) ** 2)  # noqa: E731
    order = abstract(mesh, P(), (256,), "int32")
    return mesh, train(params, loss), params, abstract(mesh, P("x"), (256, 16, 16, 8)), order


@mistake("linen, a constraint that gathers the rows before the head")
def _(is_right):
    mesh = line("x")

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.relu(nn.Dense(WIDTH)(x))
            whole = x if is_right else lax.with_sharding_constraint(x, NamedSharding(mesh, P()))
            return nn.Dense(4096)(whole)  # mistake

    net = Net()
    params = linen_model(net, mesh, (8, WIDTH))
    loss = lambda params, x: jnp.mean(jax.nn.logsumexp(net.apply(params, x), -1))  # noqa: E731
    return mesh, train(params, loss), params, abstract(mesh, P("x"), (ROWS, WIDTH))


@mistake("linen, a recurrent network over sharded times")
def _(is_right):
    mesh = line("x")

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.RNN(nn.GRUCell(WIDTH), time_major=True)(x)  # mistake

    net = Net()
    params = linen_model(net, mesh, (8, 8, WIDTH))
    loss = lambda params, x: jnp.mean(net.apply(params, x) ** 2)  # noqa: E731
    spec = P(None, "x") if is_right else P("x")
    return mesh, train(params, loss), params, abstract(mesh, spec, (32, 128, WIDTH))


@pytest.mark.needs_devices(8)
@pytest.mark.parametrize("name", STEPS)
def test_a_mistake_in_a_step_of_a_library_is_named_with_its_line(name):
    checked(STEPS[name])
