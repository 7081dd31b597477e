"""Reports in every context of this version of JAX: jit, vmap, autodiff, export and others."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import collect_reports, sharding_info, sharding_vis, simple_array_info, tap_sharding
from tests.arrays import mesh_of
from tests.contexts import CONTEXTS, expected
from tests.rich_render.test_boxes import Param, Partitioned

COUNT = len(jax.devices())
SIZES = {1: (1, 1), 4: (2, 2), 8: (4, 2)}[COUNT]


FUNCTIONS = (sharding_info, simple_array_info, sharding_vis, tap_sharding)
WITHOUT_VALUE = (
    "ahead of time",
    "ahead of time without data",
    "export",
    "make jaxpr",
    "eval shape",
    "eval shape on explicit mesh",
)

UNKNOWN = {
    "reducer function": "a reducer sees single elements",
    "jet": "jax.experimental.jet computes Taylor coefficients",
}


UNUSED = ("prng key", "ref in jit", "jit of nested vmap")
"""The contexts in which the function that inspects a tree returns only one of its leaves."""


def inspecting(function):
    """Return a new function, not yet traced by JAX, that inspects a value and returns it."""

    def inspect(x):
        seen = function(x)
        return x if seen is None else seen

    return inspect


def numbers(leaf):
    """Return the elements of an array, a Ref or a PRNG key as a NumPy array."""
    if hasattr(leaf, "dtype") and jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf[...] if hasattr(leaf, "shape") else leaf)


@pytest.fixture
def mesh():
    return mesh_of(SIZES, ("a", "b"))


def sources(context):
    source = expected(context)
    if source is None:
        pytest.skip(f"jax {jax.__version__} has no {context}")
    if context == "custom partitioning" and COUNT == 1:
        return "compiler"  # there is nothing to partition
    return source


@pytest.mark.parametrize("context", CONTEXTS)
def test_each_context_is_reported_with_its_source_and_computes_the_same(context, array, mesh):
    source = sources(context)
    plain = CONTEXTS[context].run(inspecting(lambda x: x), array, mesh)
    for function in FUNCTIONS:
        with collect_reports() as reports:
            inspected = CONTEXTS[context].run(inspecting(function), array, mesh)
        assert [report.source for report in reports] == [source] * CONTEXTS[context].reports, function
        for report in reports:
            assert report.called_under == CONTEXTS[context].called_under
            because = UNKNOWN.get(context, "not compiled") if source == "unknown" else None
            assert report.unknown_because == because
            assert (report.sharding is not None) or source in ("unknown", "manual")
        if context not in WITHOUT_VALUE:
            assert jax.tree.structure(inspected) == jax.tree.structure(plain)
            for leaf, expected_leaf in zip(jax.tree.leaves(inspected), jax.tree.leaves(plain), strict=True):
                np.testing.assert_array_equal(numbers(leaf), numbers(expected_leaf))


def inspecting_a_tree(function):
    """Return a new function that inspects a tree with a value and another one, and returns the value."""

    def inspect(x):
        is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        is_ref = not isinstance(x, jax.Array) or type(x.aval).__name__ == "AbstractRef"
        other = jax.random.key_data(x) if is_key else x[...] if is_ref else x * 2
        tree = {"x": x, "more": [other, None]}
        seen = function(tree) or tree
        assert jax.tree.structure(seen) == jax.tree.structure(tree)
        # The function of a reduction has to stay simple; keys and Refs cannot be added.
        return seen["x"] if is_key or is_ref or x.shape == () else seen["x"] + 0 * seen["more"][0]

    return inspect


@pytest.mark.once_per_version
@pytest.mark.parametrize("function", [sharding_info, tap_sharding])
@pytest.mark.parametrize("context", CONTEXTS)
def test_each_context_has_one_report_for_a_tree(context, function, array, mesh):
    source = sources(context)
    with collect_reports() as reports:
        CONTEXTS[context].run(inspecting_a_tree(function), array, mesh)
    assert len(reports) == CONTEXTS[context].reports
    for report in reports:
        other, row = report.rows
        assert (other.path, row.path, report.others) == ("more/0", "x", 0)
        assert row.source == source
        because = UNKNOWN.get(context, "not compiled") if source == "unknown" else None
        assert row.unknown_because == because
        if context not in UNUSED:
            assert other.unknown_because == because


@pytest.mark.parametrize(
    ("context", "line"),
    [
        ("vmap", "called under vmap"),
        ("grad", "called under autodiff"),
        ("linearize", "called under autodiff"),
        ("jit of vmap", "called in jit"),
        ("jit of grad", "called in jit"),
    ],
)
def test_the_panel_has_the_transformation_of_the_caller(context, line, array, mesh, capfd):
    CONTEXTS[context].run(inspecting(sharding_info), array, mesh)
    lines = [printed.strip("│ ") for printed in capfd.readouterr().out.splitlines()]
    assert [found for found in lines if found.startswith("called")] == [line]


def test_an_eager_checkpoint_is_not_called_in_jit(array, capfd):
    jax.checkpoint(inspecting(sharding_info))(array)
    printed = capfd.readouterr().out
    assert "known from: the array" in printed
    assert "called" not in printed


@pytest.mark.needs_devices(8)
def test_under_vmap_the_bytes_per_device_include_the_batched_axis(mesh, capfd):
    array = jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, P("a")))
    jax.vmap(inspecting(sharding_info))(array)
    lines = [line.strip("│ ") for line in capfd.readouterr().out.splitlines()]
    assert lines[3:5] == ["size: 32.0 B", "per device: 64.0 B of (8, 8), replicated over b (2 replicas)"]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("box_class", [Param, Partitioned])
def test_the_value_of_a_box_inside_jit_is_known_from_the_compiler(function, box_class, array):
    def inspect(x):
        box = box_class(x)
        assert function(box) in (None, box)
        return x

    with collect_reports() as reports:
        jax.jit(inspect)(array)
    assert [(report.source, report.shape) for report in reports] == [("compiler", (8, 8))]


@pytest.mark.parametrize(
    "context", ["outside transformations", "jit", "jit on one device", "pmap", "export", "cond", "vmap"]
)
def test_each_report_is_printed_as_one_panel(context, array, mesh, capfd):
    with collect_reports():
        CONTEXTS[context].run(inspecting(sharding_info), array, mesh)
    assert capfd.readouterr().out == ""
    CONTEXTS[context].run(inspecting(sharding_info), array, mesh)
    out = capfd.readouterr().out
    repeated = sum(int(count) - 1 for count in re.findall(r" ×(\d+), each ─", out))
    assert out.count("shape: ") + repeated == CONTEXTS[context].reports


@pytest.mark.needs_devices(8)
def test_a_layout_from_the_compiler_has_each_shard_on_its_device(mesh):
    """The layout reported for a traced value matches the layout of the returned array."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        spec = [None, "a", "b", ("a", "b"), ("b", "a")]
        entries = [spec[rng.integers(5)], None]
        entries[rng.integers(2)] = None
        sharding = NamedSharding(mesh, P(*entries))

        @jax.jit
        def function(x, sharding=sharding):
            return tap_sharding(jax.lax.with_sharding_constraint(x, sharding))

        with collect_reports() as reports:
            result = function(jnp.zeros((8, 8)))
        [report] = reports
        for device, index in result.sharding.devices_indices_map((8, 8)).items():
            expected_index = tuple(slice(*part.indices(8)[:2]) for part in index)
            assert report.layout.index_of(device.id) == expected_index
        assert report.shard_nbytes == result.addressable_shards[0].data.nbytes
