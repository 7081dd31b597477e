"""Outputs that replace an argument with another sharding, and the compilations of the next call."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report, watch_compiles

pytestmark = [pytest.mark.once_per_version, pytest.mark.needs_devices(8)]


def on(*axes):
    devices = np.array(jax.devices()[:8]).reshape(4, 2, 1)
    return NamedSharding(Mesh(devices, ("fsdp", "model", "one")), P(*axes))


def array(*axes):
    return jax.device_put(np.ones((8, 8), np.float32), on(*axes))


def params():
    return {"wi": array("fsdp", "model"), "wo": array("model")}


def placed(tree, *axes):
    return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, on(*axes)), tree)


def loss(params, x):
    return jnp.sum((x @ params["wi"] @ params["wo"]) ** 2) + 0.1 * jnp.sum(params["wi"] ** 2)


def sgd(params, x):
    gradients = jax.grad(loss)(params, x)
    return jax.tree.map(lambda p, g: (p - 0.1 * g).astype(p.dtype), params, gradients)


def replaced(f, *arguments, **options):
    report = program_report(jax.jit(f, **options), *arguments)
    return {one.path: one.replaces for one in report.outputs if one.replaces is not None}


def compilations(f, *arguments):
    """Return how often the second call of a step compiles, with what the first call returned."""
    step = jax.jit(f)
    state = step(*arguments)
    with watch_compiles(step) as watch:
        step(state, *arguments[1:])
    return watch.count


def test_an_update_with_another_sharding_compiles_again():
    def step(params, x):
        return placed(sgd(params, x), "model")

    arguments = params(), array("fsdp")
    assert replaced(step, *arguments) == {"outputs/wi": "params/wi"}
    assert compilations(step, *arguments) == 1


@pytest.mark.parametrize("axes", [("fsdp", "model"), ("fsdp", ("model", "one")), (("fsdp",), ("model",))])
def test_an_equivalent_sharding_does_not_compile_again(axes):
    def step(params, x):
        return {"wi": placed(sgd(params, x)["wi"], *axes), "wo": placed(params["wo"], "model", None)}

    arguments = params(), array("fsdp")
    assert replaced(step, *arguments) == {}
    assert compilations(step, *arguments) == 0


@pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint])
def test_updates_are_found_inside_functions_and_below_the_index_of_a_tuple(wrap):
    def step(params, x):
        return jnp.sum(x), placed(wrap(sgd)(params, x), "model")

    assert replaced(step, params(), array("fsdp")) == {"outputs/1/wi": "params/wi"}


def test_a_gradient_with_a_penalty_replaces_nothing():
    def step(params, x):
        return placed(jax.grad(loss)(params, x), "model")

    assert replaced(step, params(), array("fsdp")) == {}


def test_a_copy_replaces_nothing():
    assert replaced(lambda params: placed(params, "model"), params(), donate_argnums=0) == {}


def average(params):
    return placed(jax.tree.map(lambda p: 0.9 * p + 1.0, params), "model")


@pytest.mark.filterwarnings("ignore:Some donated buffers")
def test_a_moving_average_replaces_only_a_donated_argument():
    assert replaced(average, params()) == {}
    assert replaced(average, params(), donate_argnums=0) == {"outputs/wi": "params/wi"}


def test_the_residual_of_a_layer_replaces_nothing():
    def layer(w, x):
        return placed(x + jnp.tanh(x @ w), "model")

    assert replaced(layer, array("fsdp"), array("fsdp")) == {}


def test_a_sum_of_two_arguments_replaces_neither():
    def add(params, others):
        return placed(jax.tree.map(jnp.add, params, others), "model")

    assert replaced(add, params(), params()) == {}


def test_an_array_without_a_sharding_is_not_compared():
    abstract = {"wi": jax.ShapeDtypeStruct((8, 8), jnp.float32)}
    assert replaced(lambda params: placed(jax.tree.map(lambda p: p + 1, params), "model"), abstract) == {}


def test_a_cache_that_is_partly_overwritten_is_replaced():
    def step(cache):
        row = jnp.zeros((1, 8))
        return {"cache": placed({"k": jax.lax.dynamic_update_slice(cache["k"], row, (3, 0))}, "model")}

    assert replaced(step, {"k": array("fsdp")}) == {"outputs/cache/k": "cache/k"}


def changed(x):
    return placed(x + 1, "model")


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda p, m: (changed(p), changed(m)), {"outputs/0": "p", "outputs/1": "m"}),
        (lambda p, m: (placed(p + 1), changed(m), p.sum()), {"outputs/1": "m"}),
        (lambda p, m: (changed(m), changed(p)), {}),  # not at their own places
        (lambda p, m: (changed(p), placed(p @ m, "model")), {}),  # as a layer with an auxiliary output
    ],
)
def test_arguments_without_keys_are_replaced_at_their_own_places(step, expected):
    assert replaced(step, array(), array()) == expected


def adam(params, state, x):
    """Return updated parameters, and moments that are moving averages, which no single leaf shows."""
    gradients = jax.grad(loss)(params, x)
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mu"], gradients)
    params = jax.tree.map(lambda p, m: p - 0.1 * m, params, mu)
    return placed(params, "model"), {"count": state["count"] + 1, "mu": placed(mu, "model")}


def test_all_leaves_of_a_returned_argument_are_replaced():
    arguments = params(), {"count": jnp.zeros((), jnp.int32), "mu": params()}, array("fsdp")
    assert replaced(adam, *arguments) == {"outputs/0/wi": "params/wi", "outputs/1/mu/wi": "state/mu/wi"}


def test_a_momentum_is_replaced_next_to_the_parameters():
    def step(params, trace, x):
        params, state = adam(params, {"count": 0, "mu": trace}, x)
        return params, state["mu"], jax.grad(loss)(params, x)

    assert replaced(step, params(), params(), array("fsdp")) == {
        "outputs/0/wi": "params/wi",
        "outputs/1/wi": "trace/wi",
    }
