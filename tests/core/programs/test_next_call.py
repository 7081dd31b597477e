"""Arguments that return with another sharding: the compilations of later calls, and what these send."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import from_json, program_report, to_json, watch_compiles
from jax_array_info_core.errors import UnsupportedValueError
from tests.programs import line

pytestmark = [
    pytest.mark.once_per_version,
    pytest.mark.needs_devices(8),
    pytest.mark.filterwarnings("ignore:Some donated buffers"),
]


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


def average(params, x):
    return placed(jax.tree.map(lambda p: 0.9 * p + 1.0, params), "model")


def changed(x):
    return placed(x + 1, "model")


def partly(cache):
    row = jnp.zeros((1, 8))
    return {"cache": placed({"k": jax.lax.dynamic_update_slice(cache["k"], row, (3, 0))}, "model")}


def adam(params, state, x):
    """Return updated parameters, and moments that are moving averages, which no single leaf shows."""
    gradients = jax.grad(loss)(params, x)
    mu = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mu"], gradients)
    params = jax.tree.map(lambda p, m: p - 0.1 * m, params, mu)
    return placed(params, "model"), {"count": state["count"] + 1, "mu": placed(mu, "model")}


def momentum(params, trace, x):
    params, state = adam(params, {"count": 0, "mu": trace}, x)
    return params, state["mu"], jax.grad(loss)(params, x)


def two():
    return array(), array()


REPLACED = {
    "inside of a jitted function": (
        lambda params, x: (jnp.sum(x), placed(jax.jit(sgd)(params, x), "model")),
        {"outputs/1/wi": "params/wi"},
    ),
    "inside of a checkpoint": (
        lambda params, x: (jnp.sum(x), placed(jax.checkpoint(sgd)(params, x), "model")),
        {"outputs/1/wi": "params/wi"},
    ),
    "a gradient with a penalty": (lambda params, x: placed(jax.grad(loss)(params, x), "model"), {}),
    "a copy": (jax.jit(lambda params, x: placed(params, "model"), donate_argnums=0), {}),
    "a moving average": (average, {}),
    "a donated moving average": (jax.jit(average, donate_argnums=0), {"outputs/wi": "params/wi"}),
    "the residual of a layer": (
        lambda w, x: placed(x + jnp.tanh(x @ w), "model"),
        {},
        lambda: (array("fsdp"), array("fsdp")),
    ),
    "a sum of two": (
        lambda params, others: placed(jax.tree.map(jnp.add, params, others), "model"),
        {},
        lambda: (params(), params()),
    ),
    "without a sharding": (
        lambda params: placed(jax.tree.map(lambda p: p + 1, params), "model"),
        {},
        lambda: ({"wi": jax.ShapeDtypeStruct((8, 8), jnp.float32)},),
    ),
    "partly overwritten": (partly, {"outputs/cache/k": "cache/k"}, lambda: ({"k": array("fsdp")},)),
    "own places": (lambda p, m: (changed(p), changed(m)), {"outputs/0": "p", "outputs/1": "m"}, two),
    "one of them moved": (lambda p, m: (placed(p + 1), changed(m), p.sum()), {"outputs/1": "m"}, two),
    "other places": (lambda p, m: (changed(m), changed(p)), {}, two),
    "a layer and an auxiliary output": (lambda p, m: (changed(p), placed(p @ m, "model")), {}, two),
    "all leaves of a returned argument": (
        adam,
        {"outputs/0/wi": "params/wi", "outputs/1/mu/wi": "state/mu/wi"},
        lambda: (params(), {"count": jnp.zeros((), jnp.int32), "mu": params()}, array("fsdp")),
    ),
    "a momentum next to the parameters": (
        momentum,
        {"outputs/0/wi": "params/wi", "outputs/1/wi": "trace/wi"},
        lambda: (params(), params(), array("fsdp")),
    ),
}


def replaced(function, arguments):
    report = program_report(function, *arguments, explain=False)
    return {one.path: one.replaces for one in report.outputs if one.replaces is not None}


@pytest.mark.parametrize("name", REPLACED)
def test_an_updated_argument_is_replaced(name):
    function, expected, *make = REPLACED[name]
    assert replaced(function, make[0]() if make else (params(), array("fsdp"))) == expected


@pytest.mark.parametrize(
    ("axes", "count"),
    [(("model",), 1), (("fsdp", "model"), 0), (("fsdp", ("model", "one")), 0), ((("fsdp",), ("model",)), 0)],
)
def test_only_an_update_with_another_sharding_compiles_again(axes, count):
    def step(params, x):
        return {"wi": placed(sgd(params, x)["wi"], *axes), "wo": placed(params["wo"], "model", None)}

    arguments = params(), array("fsdp")
    assert len(replaced(step, arguments)) == count
    jitted = jax.jit(step)
    state = jitted(*arguments)
    with watch_compiles(jitted) as watch:
        jitted(state, arguments[1])
    assert watch.count == count


WORDS = "figures of the first call; if {} passed on as returned, the {} compiles again"


def matrix(*spec, shape=(64, 64)):
    return jax.device_put(jnp.ones(shape), NamedSharding(line("d"), P(*spec)))


def tall():
    return matrix(shape=(64, 32))


def two_layers():
    return {"a": tall(), "b": matrix(shape=(32, 64))}


def rows(x):
    return jax.lax.with_sharding_constraint(x, NamedSharding(line("d"), P("d")))


def relu_sum(w, x):
    return jax.nn.relu(x @ w).sum()


def descended(w, x):
    return rows(w - 0.1 * jax.grad(relu_sum)(w, x))


def trained(params, moments, x):
    gradients = jax.grad(lambda p: jnp.mean(jax.nn.relu(x @ p["a"]) @ p["b"]))(params)
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradients)
    return jax.tree.map(lambda p, m: rows(p - 0.1 * m), params, moments), moments


STEPS = {
    "update": (descended, matrix, ("w",)),
    "update of a leaf": (lambda p, x: {"w": descended(p["w"], x)}, lambda: {"w": matrix()}, ("p/w",)),
    "loss and update": (lambda w, x: (relu_sum(w, x), descended(w, x)), tall, ("w",)),
    "sum": (lambda w, x: rows(w + x @ x), matrix, ("w",)),
    "gradient": (lambda w, x: rows(jax.grad(relu_sum)(w, x)), tall, ("w",)),
    "donated": (jax.jit(lambda w, x: rows(jax.nn.relu(x @ w)), donate_argnums=0), tall, ("w",)),
    "same keys": (
        lambda state, x: {"w": rows(jax.nn.relu(x @ state["w"]))},
        lambda: {"w": tall()},
        ("state/w",),
    ),
    "momentum": (trained, two_layers, ("params/a", "params/b", "moments/a", "moments/b")),
    "static argument": (
        jax.jit(lambda w, x, power: rows(w + x @ x**power), static_argnames="power"),
        matrix,
        ("w",),
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_first_call_is_named_and_the_steady_figure_is_that_of_real_calls(name):
    function, make, paths = STEPS[name]
    step = function if hasattr(function, "lower") else jax.jit(function)
    count = 2 if name == "momentum" else 1
    rest = (matrix("d"), 2) if name == "static argument" else (matrix("d"),)
    arguments = (*(make() for _ in range(count)), *rest)
    report = program_report(step, *arguments, steady=True, explain=False)
    assert report.passed_on == paths
    for _ in range(4):  # until a call compiles no more
        found = program_report(step, *arguments, explain=False)
        returned = step(*arguments)
        if not found.passed_on:
            break
        returned = returned if isinstance(returned, tuple) else (returned,)
        arguments = (*returned[-count:], *rest)
    assert step._cache_size() > 1
    assert found.passed_on == ()
    assert report.steady_sent_nbytes == found.sent.nbytes
    assert found.steady_sent_nbytes is None  # it was not asked for


NOT_PASSED_ON = {
    "another value": lambda w, x: rows(jax.nn.relu(w)),
    "a product": lambda x, w: rows(x @ w),
    "another dtype": lambda w, x: rows(w + 1).astype(jnp.bfloat16),
    "one of two": lambda a, b: rows(a + b),
    "the same sharding": lambda w, x: w + x,
}


@pytest.mark.parametrize("name", NOT_PASSED_ON)
def test_other_outputs_are_not_passed_on(name):
    report = program_report(NOT_PASSED_ON[name], matrix(), matrix(), steady=True)
    assert (report.passed_on, report.first_call) == ((), "")
    assert report.steady_sent_nbytes == report.sent.nbytes


def test_nothing_is_said_of_a_stage_that_has_no_jaxpr_and_none_compiles_again():
    traced = jax.jit(descended).trace(matrix(), matrix("d"))
    assert program_report(traced).passed_on == ("w",)
    lowered = traced.lower()
    for stage in (lowered, lowered.compile()):
        assert program_report(stage).first_call == ""
    for stage in (traced, lowered):
        with pytest.raises(UnsupportedValueError, match="pass the function with its arguments"):
            program_report(stage, steady=True)


@pytest.mark.parametrize(
    ("function", "make", "is_steady", "words"),
    [
        (descended, lambda: (matrix(), matrix("d")), False, "w is"),
        (descended, lambda: (matrix(), matrix("d")), True, "w is"),
        (trained, lambda: (two_layers(), two_layers(), matrix("d")), False, "params and moments are"),
        (lambda p: {"w": p["w"].T}, lambda: ({"w": matrix("d")},), True, "p/w is"),
        (
            lambda p: {"w": rows(jax.lax.while_loop(lambda w: jnp.sum(w) > 0, lambda w: w - 1, p["w"]))},
            lambda: ({"w": matrix(None, "d")},),
            True,
            "p/w is",
        ),
    ],
    ids=["one", "steady", "several without their leaves", "turns with each call", "loop of unknown length"],
)
def test_the_line_names_the_arguments_and_what_later_calls_send_if_it_is_known(
    function, make, is_steady, words
):
    report = program_report(function, *make(), steady=is_steady, explain=False)
    is_known = is_steady and function is descended
    assert report.steady_sent_nbytes == (42 * 1024 if is_known else None)
    call = "second call" if function in (descended, trained) else "next step of the loop"
    sends = " and sends 42.0 KiB per device and call" if is_known else ""
    assert report.first_call == WORDS.format(words, call) + sends
    assert from_json(to_json(report)) == report
