"""Figures of the first call of a step, and those of the calls after it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import from_json, program_report, to_json
from jax_array_info_core.errors import UnsupportedValueError

pytestmark = [pytest.mark.once_per_version, pytest.mark.needs_devices(8)]

WORDS = "figures of the first call; if {} passed on as returned, the second call compiles again"


def on_mesh(*spec):
    return NamedSharding(Mesh(np.array(jax.devices()), ("d",)), P(*spec))


def array(*spec, shape=(64, 64)):
    return jax.device_put(jnp.ones(shape), on_mesh(*spec))


def rows(x):
    return jax.lax.with_sharding_constraint(x, on_mesh("d"))


def loss(w, x):
    return jax.nn.relu(x @ w).sum()


def descended(w, x):
    return rows(w - 0.1 * jax.grad(loss)(w, x))


def trained(params, moments, x):
    gradients = jax.grad(lambda p: jnp.mean(jax.nn.relu(x @ p["a"]) @ p["b"]))(params)
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradients)
    return jax.tree.map(lambda p, m: rows(p - 0.1 * m), params, moments), moments


def two_layers():
    return {"a": array(shape=(64, 32)), "b": array(shape=(32, 64))}


STEPS = {
    "update": (descended, lambda: (array(), array("d")), ("w",)),
    "update of a leaf": (
        lambda p, x: {"w": descended(p["w"], x)},
        lambda: ({"w": array()}, array("d")),
        ("p/w",),
    ),
    "loss and update": (
        lambda w, x: (loss(w, x), descended(w, x)),
        lambda: (array(shape=(64, 32)), array("d")),
        ("w",),
    ),
    "sum": (lambda w, x: rows(w + x @ x), lambda: (array(), array("d")), ("w",)),
    "gradient": (
        lambda w, x: rows(jax.grad(loss)(w, x)),
        lambda: (array(shape=(64, 32)), array("d")),
        ("w",),
    ),
    "donated": (
        jax.jit(lambda w, x: rows(jax.nn.relu(x @ w)), donate_argnums=0),
        lambda: (array(shape=(64, 32)), array("d")),
        ("w",),
    ),
    "same keys": (
        lambda state, x: {"w": rows(jax.nn.relu(x @ state["w"]))},
        lambda: ({"w": array(shape=(64, 32))}, array("d")),
        ("state/w",),
    ),
    "momentum": (
        trained,
        lambda: (two_layers(), two_layers(), array("d")),
        ("params/a", "params/b", "moments/a", "moments/b"),
    ),
    "static argument": (
        jax.jit(lambda w, x, power: rows(w + x @ x**power), static_argnames="power"),
        lambda: (array(), array("d"), 2),
        ("w",),
    ),
}


@pytest.mark.filterwarnings("ignore:Some donated buffers")
@pytest.mark.parametrize("name", STEPS)
def test_the_first_call_is_named_and_the_steady_figure_is_that_of_real_calls(name):
    function, make, paths = STEPS[name]
    step, arguments = function if hasattr(function, "lower") else jax.jit(function), make()
    report = program_report(step, *arguments, steady=True, explain=False)
    assert report.passed_on == paths
    for _ in range(4):  # until a call compiles no more
        found = program_report(step, *arguments, explain=False)
        returned = step(*arguments)
        count = 2 if name == "momentum" else 1
        returned = returned if isinstance(returned, tuple) else (returned,)
        arguments = (*returned[-count:], *make()[count:])
    assert step._cache_size() > 1
    assert found.passed_on == ()
    assert report.steady_sent_nbytes == found.sent.nbytes
    assert found.steady_sent_nbytes is None  # it was not asked for


NOT_PASSED_ON = {
    "another value": (lambda w: rows(jax.nn.relu(w)), lambda: (array(),)),
    "a product": (lambda x, w: rows(x @ w), lambda: (array(), array())),
    "the same sharding": (lambda w, x: rows(w + x), lambda: (array("d"), array("d"))),
    "another dtype": (lambda w: rows(w + 1).astype(jnp.bfloat16), lambda: (array(),)),
    "one of two": (lambda a, b: rows(a + b), lambda: (array(), array())),
}


@pytest.mark.parametrize("name", NOT_PASSED_ON)
def test_other_outputs_are_not_passed_on(name):
    function, make = NOT_PASSED_ON[name]
    report = program_report(function, *make(), steady=True)
    assert (report.passed_on, report.first_call) == ((), "")
    assert report.steady_sent_nbytes == report.sent.nbytes


def test_nothing_is_said_of_a_stage_that_has_no_jaxpr_and_none_compiles_again():
    traced = jax.jit(descended).trace(array(), array("d"))
    assert program_report(traced).passed_on == ("w",)
    lowered = traced.lower()
    for stage in (lowered, lowered.compile()):
        assert program_report(stage).first_call == ""
    for stage in (traced, lowered):
        with pytest.raises(UnsupportedValueError, match="pass the function with its arguments"):
            program_report(stage, steady=True)


def test_the_line_names_what_later_calls_send():
    report = program_report(descended, array(), array("d"), explain=False)
    first = report.first_call
    assert first == (
        "figures of the first call; if w is passed on as returned, the second call compiles again"
    )
    report = program_report(descended, array(), array("d"), steady=True)
    sends = " and sends 42.0 KiB per device and call"
    assert report.steady_sent_nbytes == 42 * 1024
    assert report.first_call == first + sends
    assert from_json(to_json(report)) == report


def test_several_arguments_are_named_without_their_leaves():
    report = program_report(trained, two_layers(), two_layers(), array("d"), explain=False)
    assert report.first_call == WORDS.format("params and moments are")


@pytest.mark.parametrize(
    ("function", "argument"),
    [
        (lambda p: {"w": p["w"].T}, lambda: {"w": array("d")}),
        (
            lambda p: {"w": rows(jax.lax.while_loop(lambda w: jnp.sum(w) > 0, lambda w: w - 1, p["w"]))},
            lambda: {"w": array(None, "d")},
        ),
    ],
    ids=["turns with each call", "loop of unknown length"],
)
def test_what_is_never_steady_or_unknown_has_no_figure(function, argument):
    report = program_report(function, argument(), steady=True, explain=False)
    assert report.passed_on == ("p/w",)
    assert report.steady_sent_nbytes is None
    assert report.first_call == WORDS.format("p/w is")
