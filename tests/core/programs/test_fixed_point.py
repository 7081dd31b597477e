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
