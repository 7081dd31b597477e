"""Shardings that XLA chooses for traced values, reported without changing the user's program."""

import gc
import re
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import (
    collect_reports,
    print_program,
    program_report,
    sharding_info,
    sharding_vis,
    tap_sharding,
    to_text,
)
from jax_array_info.reports import BatchAxes
from jax_array_info_core.arrays.traced import traced_report
from jax_array_info_core.arrays.traced import traced_report as primitives
from jax_array_info_core.compat import inspection
from tests.arrays import sharded
from tests.contexts import PMAP_IS_SHARD_MAP, VERSION, shard_map
from tests.documents import run_python

pytestmark = pytest.mark.needs_devices(8)


def look(x):
    sharding_info(x)
    return x


@pytest.mark.parametrize(
    ("way", "line"),
    [
        (lambda look, mesh: lambda x: look(x + 1), "known from: the compiler"),
        (lambda look, mesh: jax.vmap(look), "vmap: axis 0 of (8, 8)"),
        (lambda look, mesh: shard_map(look, mesh, P("a", "b")), "manual: 1 of 8 shards over ('a','b')"),
    ],
    ids=["jit", "vmap", "shard_map"],
)
def test_the_panel_of_a_traced_value_is_the_page_of_its_report(way, line, array, mesh, capfd):
    """Stored pages have such panels, to the byte."""
    with collect_reports() as reports:
        jax.jit(way(lambda x: look(x), mesh))(array)
    jax.jit(way(lambda x: look(x), mesh))(array)
    printed = capfd.readouterr().out
    assert printed == f"{to_text(*reports)}\n"
    assert f"│ {line} " in printed
    assert "│ called in jit " in printed


def test_a_traced_value_has_the_picture_of_the_array_or_a_line_with_the_reason(array, mesh, capfd):
    def drawn(f):
        f(array)
        return capfd.readouterr().out

    def draw(x):
        sharding_vis(x)
        return x

    assert drawn(jax.jit(lambda x: draw(x))) == drawn(draw)
    assert drawn(lambda x: jax.eval_shape(draw, x)) == "sharding unknown: not compiled\n"
    one_of_eight = "manual: 1 of 8 shards over ('a','b')\n"
    assert drawn(jax.jit(shard_map(draw, mesh, P("a", "b")))) == one_of_eight
    if VERSION >= (0, 6):  # JAX tracks varying axes

        def sums(x):
            sharding_vis(jax.lax.psum(x, ("a", "b")))
            return x

        specs = {"mesh": mesh, "in_specs": P("a", "b"), "out_specs": P("a", "b")}
        assert drawn(jax.jit(jax.shard_map(sums, **specs))) == "manual: 8 replicas over ('a','b')\n"
        assert drawn(jax.jit(jax.shard_map(sums, check_vma=False, **specs))) == one_of_eight


def test_each_vmap_adds_a_batched_axis(mesh):
    array = sharded((2, 3, 8, 8), mesh, None, None, "a", "b")
    with collect_reports() as reports:
        jax.jit(jax.vmap(jax.vmap(lambda x: tap_sharding(x), in_axes=2), in_axes=0))(array)
    [report] = reports
    assert (report.shape, report.batch) == ((3, 8), BatchAxes(axes=(0, 3), shape=(2, 3, 8, 8)))
    assert report.layout.shape == (2, 3, 8, 8)
    assert report.sharding.spec.axes == ((), (), ("a",), ("b",))


def test_with_some_manual_axes_the_others_are_known_from_the_compiler(array, mesh):
    with collect_reports() as reports:
        jax.jit(shard_map(lambda x: sharding_info(x) or x, mesh, P("a"), axis_names=("a",)))(array)
    [report] = reports
    assert (report.source, report.shape, report.manual_axes.shape) == ("manual", (2, 8), {"a": 4})
    assert report.layout is None, "the global shape is unknown"
    # JAX 0.6 and earlier really replicate over the other axes.
    assert report.sharding.spec.axes == (((), ("b",)) if VERSION >= (0, 7) else ())
    assert report.sharding.mesh.names == ("b",)


def test_pmap_has_one_shard_per_device():
    with collect_reports() as reports:
        jax.pmap(lambda x: sharding_info(x) or x)(jnp.zeros((8, 3)))
    [report] = reports
    assert (report.source, report.shape, report.manual_axes.sizes) == ("manual", (3,), (8,))
    assert report.manual_axes.names == ("unnamed",) or VERSION >= PMAP_IS_SHARD_MAP


def test_a_sharding_without_an_equivalent_spec_has_the_text_of_xla(array):
    with collect_reports() as reports:
        result = jax.jit(lambda v: (look(v.reshape(2, 4, 8)) + 1).reshape(8, 8))(array)
    [report] = reports
    assert report.sharding.text == "{devices=[2,2,2]<=[8]}"
    assert report.layout.shard_counts == (2, 2, 2)
    assert report.layout.index_of(7) == (slice(1, 2), slice(2, 4), slice(4, 8))
    np.testing.assert_array_equal(result, array + 1)


def test_uneven_shards_have_the_sizes_that_xla_uses(array, mesh):
    sharding = NamedSharding(mesh, P("a", "b"))
    with collect_reports() as reports:
        sliced = jax.jit(lambda x: look(jax.lax.with_sharding_constraint(x[:6, :7], sharding)).sum())
        assert sliced(array) == array[:6, :7].sum()
    assert reports[0].layout.index_of(7) == (slice(6, 6), slice(4, 7))
    assert reports[0].sharding.spec.axes == (("a",), ("b",))


def test_an_uneven_value_has_its_padding_inside_and_its_sharding_as_returned(mesh, capfd):
    sharding = NamedSharding(mesh, P(("a", "b")))

    def program(x):
        return tap_sharding(jax.lax.with_sharding_constraint(x * 2, sharding), "constrained") + 1

    x = jax.device_put(jnp.ones((17, 16)), NamedSharding(mesh, P()))
    jax.jit(program)(x)
    panel = capfd.readouterr().out
    assert "NamedSharding: P(('a', 'b'),)" in panel
    assert "inside: padded to (24, 16)" in panel
    with collect_reports():  # without the panel
        report = program_report(program, x)
    assert [(str(one.got.spec), one.is_padded_inside) for one in report.outputs] == [("P()", True)]
    print_program(report)
    assert "P() as returned" in capfd.readouterr().out


def test_prng_keys_have_the_shape_that_the_user_sees(mesh):
    keys = jax.device_put(jax.random.split(jax.random.key(0), 8), NamedSharding(mesh, P("a")))
    with collect_reports() as reports:
        jax.jit(look)(keys)
    assert (reports[0].shape, reports[0].sharding.spec.axes) == ((8,), (("a",),))
    assert reports[0].layout.shard_shape == (2,)


@pytest.mark.parametrize(
    ("error_class", "logged"),
    [
        (OSError, "a report could not be written: no space left"),
        (RuntimeError, "\nRuntimeError: no space left"),
    ],
)
def test_a_failed_inspection_leaves_the_program_alone(error_class, logged, array, monkeypatch, caplog):
    def fail(*args, **kwargs):
        raise error_class("no space left")

    monkeypatch.setattr("jax_array_info.verbs.show.terminal_console", fail)
    for one in (array, jnp.ones(3)):
        np.testing.assert_array_equal(jax.jit(lambda x: look(x) * 2)(one), one * 2)
    assert caplog.text.count(logged) == 2


def test_an_unexpected_version_of_jax_leaves_the_program_alone(array, monkeypatch, caplog):
    def fail(*args):
        raise AttributeError("another jax")

    monkeypatch.setattr(traced_report, "lowering_place", fail)
    with collect_reports() as reports:
        np.testing.assert_array_equal(jax.jit(lambda x: look(x) * 2)(array), array * 2)
    assert [report.unknown_because for report in reports] == ["this version of jax does not tell"]
    assert "another jax" in caplog.text


@pytest.fixture
def without_primitives(monkeypatch):
    """Simulate a version of JAX without the private parts that the primitives need."""

    def fail(name):
        raise ImportError(name)

    monkeypatch.setattr(inspection, "private", fail)
    primitives._primitive.cache_clear()
    yield
    primitives._primitive.cache_clear()


def test_without_the_primitives_the_inspection_of_jax_is_used(without_primitives, array):
    with collect_reports() as reports:
        result = jax.jit(lambda x: tap_sharding(look(x) * 2))(array)
    np.testing.assert_array_equal(result, array * 2)
    assert [report.source for report in reports] == ["compiler"] * 2
    assert reports[0].layout.index_of(7) == (slice(6, 8), slice(4, 8))


def test_without_the_primitives_a_batched_value_is_unknown(without_primitives, array):
    with collect_reports() as reports:
        jax.vmap(jax.jit(look))(array)
    assert [report.source for report in reports] == ["unknown"]


def test_gradients_pass_through_a_tap(array):
    def loss(x, look):
        return (look(jnp.sin(look(x))) ** 2).sum()

    with collect_reports() as reports:
        tapped = jax.jit(jax.grad(lambda x: loss(x, tap_sharding)))(array)
        jax.hessian(lambda x: loss(x, tap_sharding))(array[0])
        jax.jit(jax.linearize(lambda x: loss(x, tap_sharding), array)[1])(array)
    np.testing.assert_array_equal(tapped, jax.jit(jax.grad(lambda x: loss(x, lambda y: y)))(array))
    assert reports
    double = jax.linear_transpose(lambda x: tap_sharding(x) * 2.0, array)
    np.testing.assert_array_equal(double(array)[0], array * 2)


def test_a_tap_whose_result_is_not_used_is_dropped(array):
    with collect_reports() as reports:
        jax.jit(lambda x: (tap_sharding(x + 1, "unused"), x)[1])(array)
    assert reports == []


def test_only_a_call_with_a_new_sharding_is_reported_again(array, mesh):
    function = jax.jit(lambda x: look(x) * 2)
    other = jax.device_put(array, NamedSharding(mesh, P(None, "a")))
    with collect_reports() as reports:
        function(array)
        function(array)
        function(other)
        function(other)
    assert [report.sharding.spec.axes for report in reports] == [(("a",), ("b",)), ((), ("a",))]


def test_an_inner_function_is_reported_once_for_each_sharding(array, mesh):
    inner = jax.jit(lambda x: look(x) * 2)
    sharding = NamedSharding(mesh, P(None, "a"))

    def outer(x):
        return inner(x), inner(x), inner(jax.lax.with_sharding_constraint(x, sharding))

    with collect_reports() as reports:
        jax.jit(outer)(array)
    assert [report.sharding.spec.axes for report in reports] == [(("a",), ("b",)), ((), ("a",))]


def test_a_value_that_xla_removes_is_reported_as_removed(array):
    def function(x):
        return jax.lax.cond(x.shape == (8, 8), lambda: look(x + 1), lambda: look(x * 2))

    with collect_reports() as reports:
        jax.jit(function)(array)
    assert [report.unknown_because for report in reports] in (
        [None, "the compiler removed it"],
        [None, None],  # JAX 0.8.3 and 0.4.38 keep both branches until after the partitioner
    )


def test_an_inspection_changes_no_collective_and_no_fusion(mesh):
    weights = sharded((32, 64), mesh, None, "b")
    batch = sharded((64, 32), mesh, "a", None)

    def program(look):
        def function(x, w):
            hidden = look(jnp.tanh(look(x @ w)) * 2 + 1)
            chosen = look(jax.nn.softmax(hidden, axis=0))
            return look(chosen @ w.T).sum(axis=0), jnp.where(hidden > 0, jnp.exp(hidden), hidden).mean()

        return jax.jit(function).lower(batch, weights).compile().as_text()

    def counts(text):
        names = ("all-reduce", "all-gather", "reduce-scatter", "collective-permute", "all-to-all", "fusion")
        return {name: len(re.findall(rf"\b{name}(?:-start)?\(", text)) for name in names}

    plain = counts(program(lambda x: x))
    assert plain["all-reduce"] > 0
    assert plain["fusion"] > 0
    with collect_reports() as reports:
        assert counts(program(look)) == plain
        assert counts(program(tap_sharding)) == plain
    assert len(reports) == 8


def test_an_inspection_inside_a_function_adds_no_array_and_keeps_none_alive(array):
    with collect_reports():
        function = jax.jit(lambda x: look(x) * 2)
        gc.collect()
        gc.disable()
        try:
            before = len(jax.live_arrays())
            argument = array + 1
            references = [weakref.ref(argument), weakref.ref(function(argument))]
            del argument
            assert [reference() for reference in references] == [None, None], "kept alive for a while"
            assert len(jax.live_arrays()) == before
        finally:
            gc.enable()


def test_a_function_with_an_inspection_is_exported_before_and_after_compiling(array):
    from jax import export

    function = jax.jit(lambda x: look(x) * 2)
    with collect_reports() as reports:
        for _ in range(2):
            exported = export.deserialize(export.export(function)(array).serialize())
            np.testing.assert_array_equal(exported.call(array), array * 2)
            assert not exported.unordered_effects
            function(array)
    assert [report.unknown_because for report in reports] == ["not compiled", None]


@pytest.mark.once_per_version
@pytest.mark.needs_devices(8)  # runs a program of its own, so only once per JAX version
def test_the_first_inspection_of_a_program_does_not_compile_it_twice():
    code = """
import jax
from jax_array_info import *
compiled = []
count = lambda event, duration, **_: compiled.append(event) if "backend_compile" in event else None
array = jax.numpy.ones(8)
jax.monitoring.register_event_duration_secs_listener(count)
for look in (tap_sharding, sharding_info, sharding_vis):
    function = jax.jit(lambda x: x if look(x) is x else x * 2)
    with collect_reports():
        for _ in range(3):
            function(array)
    print(len(compiled), function._cache_size())
    compiled.clear()
"""
    assert run_python(code) == "1 1\n" * 3


def test_other_effects_of_the_program_are_kept(array, capfd):
    """Removing the effect of an inspection keeps the effect of ``jax.debug.print``."""

    @jax.jit
    def function(x):
        jax.debug.print("sum {}", x.sum())
        return look(x) * 2

    with collect_reports():
        for _ in range(3):
            function(array)
        jax.effects_barrier()
    assert capfd.readouterr().out.count("sum 2016") == 3


def test_a_failed_compilation_makes_no_report(array):
    for one in (array, jnp.ones(3)):
        with collect_reports() as reports:
            lowered = jax.jit(lambda x: tap_sharding(x * 3)).lower(one)
            with pytest.raises(Exception, match="no_such_option"):
                lowered.compile(compiler_options={"no_such_option": "1"})
            assert reports == []
            try:
                raise ValueError("handled while the next compilation goes well")
            except ValueError:
                lowered.compile()
        assert [report.source for report in reports] == ["compiler"]
