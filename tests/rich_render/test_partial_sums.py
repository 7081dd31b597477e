"""Unreduced arrays: devices hold partial sums, not replicas."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import (
    array_report,
    check_report,
    from_json,
    live_array_report,
    planned_report,
    program_report,
    shard_report,
    sharding_info,
    sharding_vis,
    spec_layout,
    to_json,
    to_svg,
    to_text,
    tree_report,
    xla_report,
)
from jax_array_info.layouts import Spec, parse_spec

MESH = {"data": 2, "model": 4}
SPEC = Spec((("data",), ()), unreduced=("model",))


@pytest.mark.newest
def test_replicas_of_a_partial_sum_are_neighbors_in_a_layout():
    layout = spec_layout((8,), {"a": 2, "b": 2, "c": 3}, Spec((), unreduced=("c",)))
    assert (layout.partial_sums, layout.replicas, layout.unreduced) == (3, 4, ("c",))
    assert layout.device_ids.tolist() == [[0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]]
    assert layout != spec_layout((8,), {"a": 2, "b": 2, "c": 3}, ())
    assert spec_layout((8,), {"a": 2, "one": 1}, Spec((), unreduced=("one",))).unreduced == ()


@pytest.mark.newest
def test_a_planned_unreduced_array_has_partial_sums():
    report = planned_report((8, 32), MESH, SPEC)
    assert from_json(to_json(report)) == report
    assert "per device: 512.0 B (1/2, 4 partial sums over model)" in to_text(report)
    assert "replicated" not in to_text(report)
    words = " ".join(to_text(shard_report(report, 1)).split())
    assert words.endswith("512.0 B, one of 4 partial sums; the others are on devices 0,2,3")
    assert to_text(report.layout).splitlines()[-1] == "each cell: 4 partial sums over model"
    assert "4 partial sums over model" in to_svg(report)


@pytest.mark.newest
def test_partial_sums_and_replicas_of_an_xla_sharding_are_told_apart():
    report = xla_report(
        "{devices=[2,2,2]<=[8] last_tile_dims={replicated, unreduced}}", {"a": 2, "b": 2, "c": 2}
    )
    assert report.layout.device_ids.tolist() == [[0, 2, 1, 3], [4, 6, 5, 7]]
    assert report.patterns[1:] == (
        "2 partial sums of each shard over c, on consecutive devices",
        "2 replicas of each partial sum, 2 devices apart",
    )
    assert "each cell: 2 partial sums over c, 2 replicas of each" in to_text(report)


@pytest.mark.newest
def test_a_tree_counts_partial_sums_apart_from_replicas():
    plan = {"w": jax.ShapeDtypeStruct((8, 32), jnp.float32), "v": jax.ShapeDtypeStruct((8,), jnp.float32)}
    specs = {"w": parse_spec("P('data', unreduced={'model'})"), "v": parse_spec("P(unreduced={'model'})")}
    report = tree_report(plan, mesh=MESH, specs=specs)
    assert [(row.replicas, row.partial_sums, row.unreduced) for row in report.rows] == [
        (2, 4, ("model",)),
        (1, 4, ("model",)),
    ]
    # w: 512 of 1024 B, where 128 B would be even. v: 32 B, where 4 B would be; 16 B of them for its replicas.
    assert [(part.cause, part.axes, part.nbytes) for part in report.excess] == [
        ("partial sums", ("model",), 384 + 12),
        ("replicated over", ("data",), 16),
    ]
    text = to_text(report, width=100)
    assert text.count("4 partial sums over model") == 2
    assert "396.0 B partial sums over model in 2 leaves" in text
    assert from_json(to_json(report)) == report


@pytest.mark.newest
def test_the_padding_of_an_unreduced_leaf_is_that_of_its_shards():
    tree = {"w": jax.ShapeDtypeStruct((17,), jnp.int8)}
    report = check_report(tree, mesh=MESH, specs=Spec((("data",),), unreduced=("model",)))
    (padding,) = (found for found in report.findings if found.kind == "padding")
    assert padding.nbytes == 9 - 17 // 2


@pytest.fixture
def unreduced():
    """A jitted function with an unreduced result and its arguments."""
    if jax.__version_info__ < (0, 8):
        pytest.skip(f"jax {jax.__version__} has no jitted functions with unreduced results")
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    x = jax.device_put(jnp.ones((8, 16)), NamedSharding(mesh, P("data", "model")))
    w = jax.device_put(jnp.ones((16, 32)), NamedSharding(mesh, P("model", None)))
    out = NamedSharding(mesh, P("data", None, unreduced={"model"}))

    def product(x, w):
        y = jnp.einsum("ab,bc->ac", x, w, out_sharding=out)
        sharding_info({"traced": y})
        sharding_info(y, "traced y")
        return y

    with jax.set_mesh(mesh):
        yield jax.jit(product), (x, w)


@pytest.mark.once_per_version
@pytest.mark.needs_devices(8)
def test_partial_sums_of_an_array_are_not_replicas(unreduced, capsys):
    function, arguments = unreduced
    y = function(*arguments)
    traced = capsys.readouterr().out
    assert "per device: 512.0 B, 4 partial sums over model" in traced
    assert traced.count("4 partial sums over model") == 2
    assert "replica" not in traced
    report = array_report(y, "y")
    assert (report.replicas, report.partial_sums, report.unreduced) == (1, 4, ("model",))
    assert "per device: 512.0 B, 4 partial sums over model" in to_text(report)
    sharding_vis(y)
    assert capsys.readouterr().out.splitlines()[-1] == "each cell: 4 partial sums over model"
    (group,) = (group for group in live_array_report().groups if group.shape == (8, 32))
    assert (group.replicas, group.partial_sums, group.unreduced) == (1, 4, ("model",))
    assert "(1.0 KiB total, 4 partial sums over model)" in to_text(live_array_report(), width=120)
    rows = tree_report({"y": y, "x": arguments[0]}, statistics=True).rows
    assert [row.statistics is None for row in rows] == [False, True], "no element of y is on a device"
    (output,) = program_report(function, *arguments).outputs
    assert output.got.spec.unreduced == ("model",)


@pytest.mark.once_per_version
@pytest.mark.needs_devices(8)
def test_a_value_in_shard_map_can_be_a_partial_sum(unreduced, capsys):
    _, (x, w) = unreduced
    if jax.__version_info__ < (0, 10):
        pytest.skip(f"jax {jax.__version__} has no types of partial sums in shard_map")

    @jax.jit
    @functools.partial(
        jax.shard_map,
        in_specs=(P("data", "model"), P("model", None)),
        out_specs=P("data", None, unreduced={"model"}),
    )
    def product(x, w):
        y = jax.lax.pcast(x @ w, "model", to="unreduced")
        sharding_info(y, "y")
        return y

    product(x, w)
    assert "│ partial sums over: model " in capsys.readouterr().out
