"""Leaves that take no memory of devices, on each page that has them."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info import (
    check_report,
    print_check,
    print_tree,
    sharding_info,
    to_html,
    to_json,
    to_svg,
    to_text,
    tree_report,
)
from jax_array_info.engine.render import render, text_of

pytestmark = pytest.mark.once_per_version


class Dataset:
    shape, dtype = (1024, 1024), np.dtype("float32")


class Unknown:
    shape, dtype = (4,), "mine"


def tree():
    return {"w": jnp.ones(3), "n": np.zeros(4, np.float32), "data": {"a": Dataset(), "b": Unknown()}}


@pytest.mark.parametrize("show", [to_text, to_html, to_svg])
def test_each_place_has_its_sum_in_one_line(show):
    text = show(tree_report(tree()))
    assert "12.0 B on 1 device" in text
    assert "on the host: 16.0 B, not included above" in text
    assert "not in device memory: 4.0 MiB + ?, not included above" in text
    assert "of unknown size" not in text
    text = show(check_report(tree(), hbm_nbytes=100))
    assert "fits: needs 12.0 B of 100.0 B per device" in text
    assert "1 leaf on 1 device takes 12.0 B per device" in text
    assert "on the host: 16.0 B in 1 leaf" in text
    assert "not in device memory: 4.0 MiB + ? in 2 leaves" in text


def test_json_has_each_place_with_its_sum():
    for report in (tree_report(tree()), check_report(tree())):
        assert json.loads(to_json(report))["elsewhere"] == [
            {"place": "on the host", "leaf_count": 1, "nbytes": 16, "unknown_count": 0},
            {"place": "not in device memory", "leaf_count": 2, "nbytes": 2**22, "unknown_count": 1},
        ]


def test_rows_have_the_place_and_the_bytes_below_the_path():
    text = to_text(tree_report(tree()))
    assert "not in device memory: 4.0 MiB " in text
    assert "not in device memory: ? " in text
    assert "on the host: 16.0 B " in text
    folded = text_of(render(tree_report(tree()), depth=1))
    assert "not in device memory: 4.0 MiB + ? " in folded


def test_one_value_has_its_place(capsys):
    sharding_info(Dataset(), "density")
    out = capsys.readouterr().out
    assert "shape: (1024, 1024)" in out
    assert "not in device memory" in out
    sharding_info(np.zeros(3))
    assert "on the host" in capsys.readouterr().out


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
