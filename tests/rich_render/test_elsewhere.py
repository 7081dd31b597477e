"""Leaves that take no memory of devices, on each page that has them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info import (
    print_check,
    print_tree,
)

pytestmark = pytest.mark.once_per_version


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
