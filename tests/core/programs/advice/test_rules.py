"""The rules that propose changes, and their order, on small programs with one mistake each."""

import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report
from jax_array_info_core.programs.advice import ranking, rules
from jax_array_info_core.programs.advice.edits import Candidate, Pin, Site, SiteValue
from jax_array_info_core.programs.advice.ranking import combined, ranked
from jax_array_info_core.xla.hlo.source import Frame

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]


@pytest.fixture(scope="module")
def mesh():
    return Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("data", "model"))


def struct(mesh, shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def site(function, text, shape, itemsize=4):
    """Return an expression of a function's source, with its shape."""
    lines, first = inspect.getsourcelines(function)
    number, line = next((number, line) for number, line in enumerate(lines) if text in line)
    column = line.index(text)
    place = Site(__file__, first + number, column, first + number, column + len(text))
    return SiteValue(site=place, shape=shape, nbytes=math.prod(shape) * itemsize)


def candidates_of(function, *arguments, sites=(), applied=None, can_place=True):
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    lowered = jitted.lower(*arguments)
    report = program_report(jitted, *arguments)
    result = ranked(lowered, report, sites, applied, can_place=can_place)
    assert result.left_out == ()
    return result


def first_of(result, rule):
    return next(candidate for candidate in result.candidates if candidate.rule == rule)


def test_a_constraint_that_drops_an_axis_gets_it_back(mesh):
    def step(x, w):
        y = jax.lax.with_sharding_constraint(x @ w, NamedSharding(mesh, P("data")))
        return jnp.tanh(y).sum()

    result = candidates_of(step, struct(mesh, (512, 256), "data"), struct(mesh, (256, 512), None, "model"))
    best = result.candidates[0]
    assert (best.rule, result.by_propagation) == ("restored", True)
    (pin,) = best.pins
    assert (pin.kind, pin.before, pin.axes) == ("respec", (("data",), ()), (("data",), ("model",)))
    assert pin.frames[0].file == __file__
    assert "model" in best.because


def test_constraints_that_drop_an_axis_one_after_another_get_it_back_together(mesh):
    def step(x, w):
        y = jax.lax.with_sharding_constraint(x @ w, NamedSharding(mesh, P("data")))
        return jax.lax.with_sharding_constraint(jnp.tanh(y), NamedSharding(mesh, P("data"))).sum()

    result = candidates_of(step, struct(mesh, (512, 256), "data"), struct(mesh, (256, 512), None, "model"))
    both = first_of(result, "restored together")
    assert [(pin.before, pin.axes) for pin in both.pins] == [((("data",), ()), (("data",), ("model",)))] * 2
    assert both.because == "2 constraints keep model"


def test_a_small_value_that_could_keep_an_axis_is_left_out(mesh):
    def step(x, w, scale):
        y = jax.lax.with_sharding_constraint(x @ w, NamedSharding(mesh, P("data")))
        scale = jax.lax.with_sharding_constraint(scale + 1, NamedSharding(mesh, P()))
        return (jnp.tanh(y) * scale).sum()

    x, w = struct(mesh, (512, 256), "data"), struct(mesh, (256, 512), None, "model")
    result = candidates_of(step, x, w, struct(mesh, (512,), "model"))
    assert all(len(one.pins) == 1 for one in result.candidates)


def test_a_constraint_keeps_the_batch_that_only_it_brings_to_the_value_and_to_its_gradient(mesh):
    """The rows of the table are sharded over no axis of the batch, and without the constraint all are whole."""

    def step(table, w, rows):
        def loss(table):
            h = jax.lax.with_sharding_constraint(jnp.take(table, rows, axis=0), NamedSharding(mesh, P()))
            return jnp.tanh(h @ w).sum()

        return jax.grad(loss)(table)

    table, w = struct(mesh, (4096, 512), "model", None), struct(mesh, (512, 512), None, "model")
    result = candidates_of(step, table, w, struct(mesh, (2048,), "data", dtype=jnp.int32))
    best = next(one for one in result.candidates if one.because.startswith("the constraint keeps data"))
    assert len(best.edits) == 2
    assert {edit.axes for edit in best.edits} == {(("data",), ())}


def test_moments_are_sharded_as_their_parameter_with_the_outputs_that_replace_them(mesh):
    def step(state, x):
        gradient = jax.grad(lambda w: jnp.tanh(x @ w).sum())(state["w"])
        moment = 0.9 * state["mu"] + gradient
        return {"w": state["w"] - moment, "mu": moment}

    state = {
        "w": struct(mesh, (256, 512), "data", "model"),
        "mu": struct(mesh, (256, 512)),
    }
    best = first_of(candidates_of(step, state, struct(mesh, (128, 256), "data")), "twins")
    (pin,) = best.pins
    assert pin.axes == (("data",), ("model",))
    assert pin.paths == ("state/mu", "outputs/mu")
    assert {edit.kind for edit in best.edits} == {"argument", "output"}


def test_equal_caches_are_sharded_together_as_the_products_use_them(mesh):
    def attend(k, v, q):
        return jnp.einsum("bhs,bshd->bhd", jnp.einsum("bhd,bshd->bhs", q, k), v)

    cache = struct(mesh, (8, 256, 4, 32))
    best = candidates_of(attend, cache, cache, struct(mesh, (8, 4, 32), "data", "model")).candidates[0]
    assert best.rule == "freed"
    assert best.pins[0].paths == ("k", "v")
    assert best.pins[0].axes == (("data",), (), ("model",), ())


def test_a_constraint_on_an_expression_is_on_each_of_its_evaluations(mesh):
    def transformed(field):
        return jnp.fft.fft(field, axis=0)

    def step(x):
        return transformed(x) * transformed(2 * x)

    value = site(transformed, "jnp.fft.fft(field, axis=0)", (512, 512), 8)
    result = candidates_of(step, struct(mesh, (512, 512), "data", dtype=jnp.complex64), sites=[value])
    changes = [one for one in result.candidates if one.pins[0].site == value.site]
    assert changes
    assert {len(one.edits) for one in changes} == {2}


def test_a_lookup_keeps_the_batch(mesh):
    def loss(table, rows, w):
        hidden = table[rows]
        return jnp.tanh(hidden @ w).sum()

    arguments = (
        struct(mesh, (512, 256), None, "data"),
        struct(mesh, (1024,), "data", dtype=jnp.int32),
        struct(mesh, (256, 256)),
    )
    sites = [site(loss, "table[rows]", (1024, 256)), site(loss, "hidden @ w", (1024, 256))]
    result = candidates_of(loss, *arguments, sites=sites)
    (best,) = [one for one in result.candidates if one.pins[0].site == sites[0].site and one.rule == "batch"]
    assert best.pins[0].axes == (("data",), ())
    assert best.because == "the batch stays sharded over data after gather"


def test_what_each_device_computes_whole_is_divided():
    mesh = Mesh(np.array(jax.devices()[:8]), ("x",))

    def area(scale):
        points = jnp.linspace(0.0, 1.0, 2**16)
        return jnp.sum(jnp.exp(-scale * points))

    sites = [site(area, "jnp.linspace(0.0, 1.0, 2**16)", (2**16,))]
    best = first_of(candidates_of(area, struct(mesh, ()), sites=sites), "whole")
    assert best.pins[0].axes == (("x",),)


def test_a_reduction_over_windows_is_not_sharded_along_them():
    mesh = Mesh(np.array(jax.devices()[:8]), ("x",))

    def sums(values):
        return jnp.cumsum(values)

    sites = [site(sums, "jnp.cumsum(values)", (2**15,))]
    best = first_of(candidates_of(sums, struct(mesh, (2**15,), "x"), sites=sites), "needed whole")
    assert best.pins[0].axes == ((),)


def test_candidates_on_top_of_another_have_its_changes(mesh):
    def step(x, w, v):
        y = jax.lax.with_sharding_constraint(x @ w, NamedSharding(mesh, P("data")))
        return jnp.tanh(y) @ v

    arguments = (
        struct(mesh, (512, 256), "data"),
        struct(mesh, (256, 512), None, "model"),
        struct(mesh, (512, 512)),
    )
    first = candidates_of(step, *arguments).candidates[0]
    second = candidates_of(step, *arguments, applied=first).candidates[0]
    assert set(second.edits) > set(first.edits)
    assert set(second.pins) > set(first.pins)
    assert first.because in second.because


def test_a_constraint_that_changes_twice_has_the_spec_of_the_source_before():
    lines = (Frame("step.py", 1, "step"),)
    first = Candidate("one", "", (Pin("respec", (("x",), ()), before=((), ()), frames=lines),), ())
    second = Candidate("two", "", (Pin("respec", ((), ("x",)), before=(("x",), ()), frames=lines),), ())
    (pin,) = combined(first, second).pins
    assert (pin.before, pin.axes) == (((), ()), ((), ("x",)))


def test_arguments_that_change_twice_are_named_once_with_what_each_has_in_the_source():
    first = Candidate("one", "", (Pin("argument", (("x",), ()), ((), ()), ("a", "b")),), ())
    second = Candidate("two", "", (Pin("argument", ((), ("x",)), (("x",), ()), ("b", "c")),), ())
    assert combined(first, second).pins == (
        Pin("argument", (("x",), ()), ((), ()), ("a",)),
        Pin("argument", ((), ("x",)), ((), ()), ("b",)),
        Pin("argument", ((), ("x",)), (("x",), ()), ("c",)),
    )


def test_arguments_that_cannot_be_placed_are_not_changed(mesh):
    arguments = struct(mesh, (512, 256)), struct(mesh, (256, 512), None, "model")
    result = candidates_of(lambda x, w: x @ w, *arguments, can_place=False)
    assert not any(pin.kind == "argument" for one in result.candidates for pin in one.pins)


def test_arguments_on_explicit_axes_have_candidates():
    devices = np.array(jax.devices()[:8]).reshape(4, 2)
    mesh = Mesh(devices, ("data", "model"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)

    def step(x, w):
        return jnp.tanh(x) @ w  # with a constraint of JAX

    with jax.set_mesh(mesh):
        arguments = struct(mesh, (512, 256), "data"), struct(mesh, (256, 256), None, "model")
        assert candidates_of(step, *arguments).candidates


def test_without_the_propagation_the_report_has_candidates(mesh, monkeypatch):
    """Those of state and arguments alone, in the order of the rules."""

    def refuse():
        raise ranking.UnsupportedValueError("needs JAX 0.10.1")

    monkeypatch.setattr(ranking, "require_shardy", refuse)

    def step(state):
        return {name: 2 * value for name, value in state.items()}

    state = {"w": struct(mesh, (256, 512), "data", "model"), "mu": struct(mesh, (256, 512))}
    result = candidates_of(step, state)
    assert not result.by_propagation
    assert result.candidates[0].rule == "twins"
    assert {pin.kind for one in result.candidates for pin in one.pins} <= {"argument", "output"}


def test_a_rule_that_fails_is_left_out(mesh, monkeypatch):
    def fails(pins):
        raise IndexError("lost")

    monkeypatch.setitem(rules.RULES, "freed", fails)
    jitted = jax.jit(lambda x, w: x @ w)
    arguments = struct(mesh, (512, 256)), struct(mesh, (256, 512), None, "model")
    result = ranked(jitted.lower(*arguments), program_report(jitted, *arguments), ())
    (left_out,) = result.left_out
    assert "freed" in left_out.part
    assert result.candidates


def test_no_two_candidates_are_equal(mesh):
    def step(x, w):
        return jnp.tanh(x @ w) @ w.T

    arguments = struct(mesh, (512, 256), "data"), struct(mesh, (256, 512), None, "model")
    result = candidates_of(step, *arguments)
    edits = [frozenset(candidate.edits) for candidate in result.candidates]
    assert len(edits) == len(set(edits)) > 3
    for candidate in result.candidates:
        for edit in candidate.edits:
            names = [name for dim in edit.axes or () for name in dim]
            assert len(names) == len(set(names))
