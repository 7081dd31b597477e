"""Trees with traced leaves: one report for each compilation, as soon as every leaf is known."""

import dataclasses
import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import collect_reports
from jax_array_info_core.compat import inspection
from jax_array_info_core.traced import traced_report
from jax_array_info_core.traced import traced_report as primitives
from jax_array_info_core.trees.tree_report import report_tree_when_known, tap_tree_when_known
from tests.arrays import mesh_of, sharded
from tests.contexts import VERSION

pytestmark = [pytest.mark.needs_devices(8), pytest.mark.once_per_version]

UNUSED = "the program does not use the tapped value"
TRANSPOSED = "never computed, only transposed"


@pytest.fixture
def mesh():
    return mesh_of((4, 2), ("a", "b"))


@pytest.fixture
def array(mesh):
    return jax.device_put(jnp.arange(64.0).reshape(8, 8), NamedSharding(mesh, P("a", "b")))


def printed(report):
    raise AssertionError(f"not collected: {report}")


def info(tree, name=None):
    report_tree_when_known(tree, name, printed)
    return tree


def tap(tree, name=None):
    return tap_tree_when_known(tree, name, printed)


LOOKS = (info, tap)


def pair(look):
    """Return a function that inspects a tree of two values and uses both."""

    def function(x):
        tree = look({"a": x, "b": x * 2})
        return jnp.sin(tree["a"]) + jnp.sin(tree["b"])

    return function


def axes(report):
    return [row.spec and row.spec.axes for row in report.rows]


def reasons(report):
    return [row.unknown_because for row in report.rows]


@pytest.mark.parametrize("look", LOOKS)
def test_each_compilation_has_one_report(look, array, mesh):
    function = jax.jit(pair(look))
    other = jax.device_put(array, NamedSharding(mesh, P(None, "a")))
    with collect_reports() as reports:
        for argument in (array, array, other, other):
            np.testing.assert_allclose(function(argument), pair(lambda tree: tree)(argument), rtol=1e-5)
    assert [axes(report) for report in reports] == [[(("a",), ("b",))] * 2, [((), ("a",))] * 2]


@pytest.mark.parametrize("look", LOOKS)
def test_an_inner_function_has_one_report_for_each_sharding(look, array, mesh):
    inner = jax.jit(pair(look))
    sharding = NamedSharding(mesh, P(None, "a"))

    def outer(x):
        return inner(x), inner(x), inner(jax.lax.with_sharding_constraint(x, sharding))

    with collect_reports() as reports:
        jax.jit(outer)(array)
    assert [axes(report) for report in reports] == [[(("a",), ("b",))] * 2, [((), ("a",))] * 2]


def test_leaves_of_every_kind_are_in_one_report(array):
    def function(x):
        tree = {"host": np.ones(3), "known": array, "none": None, "step": 3, "tied": [x, x + 1], "x": x}
        seen = tap(tree, "state")
        assert jax.tree.structure(seen) == jax.tree.structure(tree)
        assert seen["known"] is array
        assert seen["host"] is tree["host"]
        assert seen["tied"][0] is seen["x"]
        return seen["x"], seen["tied"][1]

    with collect_reports() as reports:
        jax.jit(function)(array)
    [report] = reports
    assert (report.name, report.type_name, report.others) == ("state", "dict", 1)
    assert [(row.path, row.source, row.same_as) for row in report.rows] == [
        ("host", "unknown", None),
        ("known", "array", None),
        ("tied/0", "compiler", None),
        ("tied/1", "compiler", None),
        ("x", "compiler", "tied/0"),
    ]
    assert (report.nbytes, report.fullest_device_nbytes) == (3 * 256, 3 * 32)
    assert (report.elements, report.numpy_nbytes) == (3 * 64 + 3, 24)


def test_a_tree_without_traced_leaves_is_reported_immediately_and_returned(array):
    tree = {"w": array, "scalar": jnp.float32(3)}
    with collect_reports() as reports:
        assert tap(tree) is tree
    assert [row.source for row in reports[0].rows] == ["array"] * 2


def test_under_vmap_a_row_has_the_batched_axes(array):
    with collect_reports() as reports:
        jax.jit(jax.vmap(pair(info), in_axes=1))(array)
        jax.vmap(lambda x: info({"x": x, "known": array}) and x)(array)
    for report in reports:
        row = report.rows[-1]
        assert (row.shape, row.nbytes, row.shard_shape, row.shard_nbytes) == ((8, 8), 256, (2, 4), 32)
        assert row.spec.axes == (("a",), ("b",))
    assert [report.rows[-1].batched_axes for report in reports] == [(1,), (0,)]
    assert reports[1].rows[0].batched_axes == ()


def test_prng_keys_under_vmap_have_the_bytes_of_all(mesh):
    keys = jax.device_put(jax.random.split(jax.random.key(0), 8), NamedSharding(mesh, P("a")))
    with collect_reports() as reports:
        jax.jit(jax.vmap(lambda key: info({"key": key}) and 0))(keys)
    [row] = reports[0].rows
    assert (row.shape, row.nbytes, row.batched_axes, row.is_key) == ((8,), 64, (0,), True)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.vmap], ids=["alone", "vmap"])
def test_a_leaf_that_jax_removes_is_unknown(wrap, array):
    with collect_reports() as reports:
        jax.jit(wrap(lambda x: tap({"a": x, "b": x * 2})["a"] + 1))(array)
        jax.jit(wrap(lambda x: tap({"a": x, "b": x * 2})["b"] + 1))(array)
        jax.jit(wrap(lambda x: (tap({"a": x, "b": x * 2}), x)[1]))(array)
    assert [reasons(report) for report in reports] == [[None, UNUSED], [UNUSED, None]]
    assert [report.unknown_count for report in reports] == [1, 1]


def test_a_leaf_that_xla_removes_is_unknown(array):
    def function(x):
        return jax.lax.cond(x.shape == (8, 8), lambda: pair(info)(x), lambda: pair(info)(x + 1))

    with collect_reports() as reports:
        jax.jit(function)(array)
    assert [reasons(report) for report in reports] in (
        [[None, None], ["the compiler removed it"] * 2],
        [[None, None]] * 2,  # JAX 0.8.3 and 0.4.38 keep both branches until after the partitioner
    )


@pytest.mark.parametrize("look", LOOKS)
def test_rematerialized_leaves_are_reported_once_for_each_program(look, array):
    def loss(x):
        return jax.checkpoint(pair(look))(jnp.sin(x)).sum()

    def partly(x):
        return jax.checkpoint(lambda x: jnp.sin(look({"a": x, "b": x * 2})["a"]))(jnp.sin(x)).sum()

    with collect_reports() as reports:
        jax.jit(jax.grad(loss))(array)
        jax.jit(jax.grad(partly))(array)
    assert [reasons(report) for report in reports] == [[None, None], [None, None if look is info else UNUSED]]


def test_values_that_jax_computes_without_compiling_are_reported_when_the_last_one_is_known(array):
    with collect_reports() as reports:
        jax.checkpoint(pair(tap))(array)
        jaxpr = jax.make_jaxpr(pair(tap))(array).jaxpr
        for _ in range(2):
            jax.core.eval_jaxpr(jaxpr, [], array)
    assert [[row.source for row in report.rows] for report in reports] == [
        ["array"] * 2,
        ["unknown"] * 2,
        ["array"] * 2,
        ["array"] * 2,
    ]
    assert reasons(reports[1]) == ["not compiled"] * 2


def test_transposed_leaves_are_unknown(array):
    def linear(x):
        tree = tap({"a": x, "b": x * 2.0, "c": array})
        return tree["a"] + tree["b"]

    with collect_reports() as reports:
        np.testing.assert_array_equal(jax.linear_transpose(linear, array)(array)[0], array * 3)
        jax.jit(lambda x: jax.linear_transpose(linear, x)(x))(array)
        jax.linear_transpose(lambda x: tap({"a": x, "b": x * 2.0})["a"], array)(array)
    assert [reasons(report) for report in reports] == [
        [TRANSPOSED, TRANSPOSED, None],
        [TRANSPOSED, TRANSPOSED, None],
        [TRANSPOSED, UNUSED],
    ]


def test_gradients_pass_through_the_tapped_leaves(array):
    def loss(x, look):
        return (pair(look)(x) ** 2).sum()

    plain = jax.jit(jax.grad(lambda x: loss(x, lambda tree: tree)))(array)
    with collect_reports() as reports:
        np.testing.assert_array_equal(jax.jit(jax.grad(lambda x: loss(x, tap)))(array), plain)
        np.testing.assert_allclose(jax.grad(lambda x: loss(x, tap))(array), plain, rtol=1e-4)
    assert [[row.source for row in report.rows] for report in reports] == [
        ["compiler"] * 2,
        ["array"] * 2,
    ]


def test_reports_of_trees_are_in_the_order_of_the_program(array):
    def function(x):
        tree = tap({"x": x}, "first")
        y = jax.lax.cond(x.sum() > 0, lambda y: tap([y], "true")[0], lambda y: tap([y * 2], "false")[0], x)
        return tap((tree["x"] + y,), "last")

    with collect_reports() as reports:
        lowered = jax.jit(function).lower(array)
        assert reports == []
        lowered.compile()
    assert [report.name for report in reports] == ["first", "true", "false", "last"]


def test_a_failed_compilation_makes_no_report(array):
    for one in (array, jnp.ones(3)):
        with collect_reports() as reports:
            lowered = jax.jit(pair(info)).lower(one)
            with pytest.raises(Exception, match="no_such_option"):
                lowered.compile(compiler_options={"no_such_option": "1"})
            assert reports == []
            lowered.compile()
        assert [reasons(report) for report in reports] == [[None, None]]


def test_a_trace_that_was_not_compiled_is_reported_again_when_it_is(array):
    function = jax.jit(pair(info))
    with collect_reports() as reports:
        jax.eval_shape(function, array)
        function(array)
    before, after = [["not compiled"] * 2], [[None, None]]
    assert [reasons(report) for report in reports] in (before + after, after)


class Opaque:
    """A box like ``nnx.Param`` before Flax 0.12: a leaf."""

    def __init__(self, value):
        self.raw_value = value


@dataclasses.dataclass
class Unregistered:
    w: object


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Boxed:
    """A box like ``flax.linen.Partitioned``."""

    value: object
    names: tuple = dataclasses.field(default=(), metadata={"static": True})


def test_objects_that_jax_does_not_flatten_stay_as_they_are(array):
    def function(x):
        tree = {"box": Opaque(x), "object": Unregistered(x * 2), "untouched": {"n": 1}, "w": Boxed(x * 3)}
        seen = tap(tree)
        assert all(seen[key] is tree[key] for key in ("box", "object", "untouched"))
        assert type(seen["w"]) is Boxed
        assert seen["w"] is not tree["w"]
        return seen["w"].value

    with collect_reports() as reports:
        jax.jit(function)(array)
    assert [(row.path, row.source) for row in reports[0].rows] == [
        ("box", "compiler"),
        ("object/w", "compiler"),
        ("w", "compiler"),
    ]


def test_containers_that_jax_rejects_are_reported(array):
    def function(x):
        tree = {1: x, "itself": None, "x": [x * 2]}
        tree["itself"] = tree
        assert tap(tree) is tree
        looped = [x + 1]
        looped.append(looped)
        seen = tap(looped)
        assert seen[1] is looped
        return seen[0]

    with collect_reports() as reports:
        jax.jit(function)(array)
    assert [[(row.path, row.source) for row in report.rows] for report in reports] == [
        [("1", "compiler"), ("x/0", "compiler")],
        [("0", "compiler")],
    ]


def test_inspecting_a_tree_changes_no_collective_and_keeps_no_leaf_that_the_program_does_not_use(mesh):
    weights, batch = sharded((32, 64), mesh, None, "b"), sharded((64, 32), mesh, "a")

    def facts(look):
        def function(w, x):
            hidden = x @ w
            tree = look({"hidden": hidden, "square": hidden @ hidden.T, "w": w})
            return (tree["hidden"] @ tree["w"].T).sum(axis=0)

        compiled = jax.jit(function).lower(weights, batch).compile()
        temporary = compiled.memory_analysis().temp_size_in_bytes
        return temporary, compiled.as_text().count("all-reduce("), compiled.as_text().count("dot(")

    with collect_reports() as reports:
        assert facts(tap) == facts(lambda tree: tree)
    assert reasons(reports[0]) == [None, UNUSED, None]


def test_a_tree_inside_a_function_adds_no_array_and_keeps_none_alive(array):
    with collect_reports():
        function = jax.jit(pair(tap))
        jax.block_until_ready(function(array + 0))
        gc.collect()
        gc.disable()
        try:
            before = len(jax.live_arrays())
            argument = array + 1
            references = [weakref.ref(argument), weakref.ref(function(argument))]
            del argument
            assert [reference() for reference in references] == [None, None]
            assert len(jax.live_arrays()) == before
        finally:
            gc.enable()


def test_donation_stays_the_same_with_tapped_leaves():
    def donated(look):
        x, y = jnp.ones((8, 8)), jnp.ones((8, 8)) * 2

        def function(x, y):
            tree = look([x, y])
            return tree[0] + 1

        jax.jit(function, donate_argnums=(0, 1))(x, y)
        return x.is_deleted(), y.is_deleted()

    with collect_reports():
        assert donated(tap) == donated(lambda tree: tree)


def test_an_error_while_a_report_is_made_leaves_the_program_alone(array, caplog):
    def fail(report):
        raise RuntimeError("no picture")

    function = jax.jit(lambda x: tap_tree_when_known({"x": x}, None, fail)["x"] * 2)
    np.testing.assert_array_equal(function(array), array * 2)
    assert "RuntimeError: no picture" in caplog.text


def test_an_unexpected_version_of_jax_leaves_the_program_alone(array, monkeypatch, caplog):
    def fail(*args):
        raise AttributeError("another jax")

    monkeypatch.setattr(traced_report, "lowering_place", fail)
    with collect_reports() as reports:
        jax.jit(pair(info))(array)
    assert [reasons(report) for report in reports] == [["this version of jax does not tell"] * 2]


def test_without_the_primitives_the_inspection_of_jax_is_used(array, monkeypatch):
    def fail(name):
        raise ImportError(name)

    monkeypatch.setattr(inspection, "private", fail)
    primitives._primitive.cache_clear()
    try:
        with collect_reports() as reports:
            jax.jit(pair(tap))(array)
    finally:
        primitives._primitive.cache_clear()
    assert [[(row.source, row.shard_shape) for row in report.rows] for report in reports] == [
        [("compiler", (2, 4))] * 2
    ]


@pytest.mark.skipif(VERSION < (0, 6), reason="no Explicit axes")
def test_leaves_from_the_type_and_from_the_compiler_are_in_one_report(array, mesh):
    explicit = jax.make_mesh((8,), ("e",), axis_types=(jax.sharding.AxisType.Explicit,))
    typed = jax.device_put(jnp.ones((8, 8)), NamedSharding(explicit, P("e")))
    with collect_reports() as reports:
        jax.jit(lambda x: info({"typed": x, "known": array}) and x)(typed)
    assert [(row.source, row.spec.axes) for row in reports[0].rows] == [
        ("array", (("a",), ("b",))),
        ("type", (("e",),)),
    ]


def test_a_constant_on_one_device_has_the_id_of_the_device():
    """A count or a number of the set would be read as an id."""
    constant = jax.device_put(jnp.ones(8), jax.devices()[5])

    @jax.jit
    def function(x):
        info({"x": x, "constant": constant, "y": jnp.ones(3) * x.sum()})
        return x * 2

    with collect_reports() as reports:
        function(jax.device_put(jnp.ones(4), jax.devices()[3]))
    (report,) = reports
    sets = {row.path: report.meshes[row.mesh].devices for row in report.rows}
    assert sets == {"x": (3,), "constant": (5,), "y": (3,)}
