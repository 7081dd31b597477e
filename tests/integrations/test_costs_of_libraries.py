"""Costs by parameter of models of Flax and Equinox, whose programs have few names of their own or none."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_array_info import program_report
from tests.costed import assert_complete, sums

BATCH, INPUTS, HIDDEN, CLASSES = 8, 16, 32, 4
IMAGES = {"image": np.ones((BATCH, INPUTS), np.float32), "label": np.zeros(BATCH, np.int32)}
FIRST, SECOND = 2 * BATCH * INPUTS * HIDDEN, 2 * BATCH * HIDDEN * CLASSES
OPTIMIZER = optax.adam(1e-3)


def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def assert_costs(report, first, second, state, weight):
    """Assert the products and the moments of two layers. The first has no gradient of its input."""
    assert_complete(report)
    found = sums(report)
    flops = {
        path: sum(found[(path,)].get(name, 0) for name in ("forward_flops", "backward_flops"))
        for path in (f"{first}/{weight}", f"{second}/{weight}")
    }
    assert [*flops.values()] == [2 * FIRST, 3 * SECOND]
    assert not any(name.endswith("flops") for name in found.get((), ()))
    moments = {parameter.path: parameter.moments for parameter in report.parameters}
    root = first.rpartition("/")[0] if "layers" not in first else "model"
    for path in (f"{first}/{weight}", f"{second}/bias"):
        end = path.removeprefix(f"{root}/")
        assert moments[path] == (f"{state}/0/mu/{end}", f"{state}/0/nu/{end}")
    return [*moments]


def test_a_model_of_linen_has_its_costs_in_the_scopes_of_its_layers():
    """The running averages of a BatchNorm are no parameters."""
    nn = pytest.importorskip("flax.linen", reason="flax is installed only for the tests with libraries")
    train_state = pytest.importorskip(
        "flax.training.train_state", reason="flax is installed only for the tests with libraries"
    )

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.relu(nn.Dense(HIDDEN)(x))
            x = nn.BatchNorm(use_running_average=False)(x)
            return nn.Dense(CLASSES)(x)

    class State(train_state.TrainState):
        batch_stats: dict

    model = Model()
    variables = model.init(jax.random.key(0), IMAGES["image"])
    state = State.create(apply_fn=model.apply, tx=OPTIMIZER, **variables)

    @jax.jit
    def step(state, batch):
        def loss(params):
            variables = {"params": params, "batch_stats": state.batch_stats}
            logits, changed = state.apply_fn(variables, batch["image"], mutable=["batch_stats"])
            return cross_entropy(logits, batch["label"]), changed

        gradient, changed = jax.grad(loss, has_aux=True)(state.params)
        return state.apply_gradients(grads=gradient).replace(batch_stats=changed["batch_stats"])

    report = program_report(step, state, IMAGES)
    root = "state/params"
    found = assert_costs(report, f"{root}/Dense_0", f"{root}/Dense_1", "state/opt_state", "kernel")
    layers = (
        "BatchNorm_0/bias",
        "BatchNorm_0/scale",
        *(f"Dense_{n}/{k}" for n in (0, 1) for k in ("bias", "kernel")),
    )
    assert found == [f"{root}/{name}" for name in layers]
    scopes = {share.scope for share in report.costs if share.forward_flops}
    assert scopes == {"Model/Dense_0", "Model/Dense_1"}


def test_a_model_of_nnx_has_its_costs_without_scopes():
    """Its program has no names of layers: products and sums are found through the parameters."""
    nnx = pytest.importorskip("flax.nnx", reason="flax is installed only for the tests with libraries")

    class Model(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Linear(INPUTS, HIDDEN, rngs=rngs)
            self.norm = nnx.BatchNorm(HIDDEN, rngs=rngs)
            self.second = nnx.Linear(HIDDEN, CLASSES, rngs=rngs)

        def __call__(self, x):
            return self.second(self.norm(nnx.relu(self.first(x))))

    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, OPTIMIZER, wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, batch):
        gradient = nnx.grad(lambda model: cross_entropy(model(batch["image"]), batch["label"]))(model)
        optimizer.update(model, gradient)

    report = program_report(step, model, optimizer, IMAGES)
    found = assert_costs(report, "model/first", "model/second", "optimizer/opt_state", "kernel")
    names = ("first/bias", "first/kernel", "norm/bias", "norm/scale", "second/bias", "second/kernel")
    assert found == [f"model/{name}" for name in names]


def test_a_model_of_equinox_has_its_costs():
    eqx = pytest.importorskip("equinox", reason="equinox is installed only for the tests with libraries")
    model = eqx.nn.MLP(INPUTS, CLASSES, HIDDEN, 1, key=jax.random.key(0))
    state = OPTIMIZER.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_jit
    def step(model, state, batch):
        def loss(model):
            return cross_entropy(jax.vmap(model)(batch["image"]), batch["label"])

        updates, state = OPTIMIZER.update(eqx.filter_grad(loss)(model), state, model)
        return eqx.apply_updates(model, updates), state

    report = program_report(step, model, state, jax.tree.map(jnp.asarray, IMAGES))
    found = assert_costs(report, "model/layers/0", "model/layers/1", "state", "weight")
    assert found == [f"model/layers/{number}/{name}" for number in (0, 1) for name in ("weight", "bias")]
