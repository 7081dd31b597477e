"""Tables that ``sharding_info`` and ``tap_sharding`` print for trees of arrays."""

import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from jax_array_info import (
    collect_reports,
    label_of,
    print_check,
    print_tree,
    sharding_info,
    simple_array_info,
    tap_sharding,
    to_text,
)
from tests.arrays import mesh_of, sharded
from tests.contexts import shard_map

pytestmark = [pytest.mark.needs_devices(8), pytest.mark.once_per_version]


@pytest.fixture
def mesh():
    return mesh_of((4, 2), ("data", "model"))


@pytest.fixture
def params(mesh):
    return {"head": sharded((64, 8), mesh), "layers": [{"w": sharded((64, 64), mesh, "data", "model")}] * 2}


def lines(capfd):
    """Return the printed lines without the spaces with which Rich pads a title."""
    return [line.rstrip() for line in capfd.readouterr().out.splitlines()]


@pytest.mark.parametrize("function", [sharding_info, simple_array_info, tap_sharding])
def test_a_tree_of_arrays_is_printed_as_by_print_tree(function, params, capfd):
    print_tree(params, "params")
    table = capfd.readouterr().out
    assert function(params, "params") in (None, params)
    assert capfd.readouterr().out == table
    assert "params: dict" in table


def test_a_container_without_arrays_keeps_its_panel(capfd):
    sharding_info({"rate": 0.1, "step": 7}, "state")
    assert (
        capfd.readouterr().out
        == """\
╭───── state ─────╮
│ type: dict      │
│ len: 2          │
│ ['rate']: float │
│ ['step']: int   │
╰─────────────────╯
"""
    )
    sharding_info([], "empty")
    assert "type: list" in capfd.readouterr().out


def test_the_table_of_a_traced_tree_has_the_source_of_each_leaf(params, capfd):
    def step(x):
        tree = tap_sharding({"fixed": params["head"], "unused": x + 1, "x": x}, "step")
        return tree["x"] * 2

    with collect_reports() as reports:
        jax.jit(lambda x: step(x))(params["layers"][0]["w"])
    [report] = reports
    assert [(row.path, row.source, row.shard_nbytes) for row in report.rows] == [
        ("fixed", "array", 2048),
        ("unused", "unknown", None),
        ("x", "compiler", 2048),
    ]
    assert report.rows[1].unknown_because == "the program does not use the tapped value"
    program = jax.jit(step)
    for _ in range(2):  # the second call is silent
        program(params["layers"][0]["w"])
    assert capfd.readouterr().out == f"{to_text(report)}\n"


def test_the_table_inside_shard_map_describes_one_shard(mesh, params, capfd):
    look = shard_map(lambda x: tap_sharding([x], "part")[0], mesh, P("data"))
    jax.jit(look)(params["head"])
    found = lines(capfd)
    assert "│ 0    │ float32[16,8] │ manual │    512.0 B │" in found
    assert found[-1] == "manual: all sizes are those of one shard inside shard_map or pmap"


def test_the_table_under_vmap_has_the_batched_axis(params, capfd):
    jax.vmap(lambda x: sharding_info([x], "rows") or x)(params["layers"][0]["w"])
    found = lines(capfd)
    assert any("float32[64,64]" in line and "2.0 KiB" in line for line in found)
    assert any("vmap: axis 0" in line for line in found)
    assert found[-1] == "vmap: the shape includes the batched axes"


def test_a_scalar_in_a_tree_is_not_read(monkeypatch):
    """Reading a 0-d array would wait for it."""
    monkeypatch.setattr("jax_array_info_core.compat.arrays.host_copy", None)
    with collect_reports() as reports:
        sharding_info({"loss": jnp.float32(3)})
        jax.jit(lambda x: tap_sharding([x]))(jnp.float32(3))
        with pytest.raises(TypeError):
            sharding_info(jnp.float32(3))
    assert [report.rows[0].shape for report in reports] == [(), ()]


def test_the_leaves_of_a_tree_get_no_labels(params):
    with collect_reports():
        sharding_info(params, "params")
    assert [label_of(leaf) for leaf in jax.tree.leaves(params)] == [None] * 3


def test_a_tree_keeps_no_array_alive():
    array = jnp.ones(3)
    known = weakref.ref(array)
    with collect_reports() as reports:
        tap_sharding({"w": array})
    del array
    assert known() is None
    assert len(reports) == 1


class Dataset:
    shape, dtype = (1024, 1024), np.dtype("float32")


class Unknown:
    shape, dtype = (4,), "mine"


def tree():
    return {"w": jnp.ones(3), "n": np.zeros(4, np.float32), "data": {"a": Dataset(), "b": Unknown()}}


def test_a_tree_inside_jit_has_the_places_of_its_other_leaves(capsys):
    @jax.jit
    def step(w):
        print_tree({**tree(), "w": w})
        return w

    step(jnp.ones(3))
    out = capsys.readouterr().out
    assert "on the host: 16.0 B, not included above" in out
    assert "not in device memory: 4.0 MiB + ?, not included above" in out


def test_a_plan_for_a_mesh_has_no_leaf_elsewhere(capsys):
    print_tree(
        {"a": Dataset(), "n": np.zeros(8, np.float32)}, mesh={"x": 8}, specs=jax.sharding.PartitionSpec("x")
    )
    print_check({"a": Dataset()}, mesh={"x": 8}, specs=jax.sharding.PartitionSpec("x"), hbm_nbytes="1MiB")
    out = capsys.readouterr().out
    assert "not in device memory" not in out
    assert "on the host" not in out
    assert "fits: needs 512.0 KiB of 1.0 MiB per device" in out
