"""Figures that are larger than a device can have: sums and products of sizes have no bound, arrays have one."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import (
    check_report,
    from_json,
    program_report,
    reshard_report,
    to_json,
    to_text,
    tree_diff_report,
    tree_report,
)
from tests.arrays import mesh_of

pytestmark = pytest.mark.once_per_version

LARGE = {str(number): jax.ShapeDtypeStruct((2**60,), jnp.float32) for number in range(6)}
PLANNED = tree_report(LARGE, mesh={"data": 4}, specs=P())


@pytest.mark.parametrize(
    "report",
    [
        PLANNED,
        check_report(PLANNED, hbm_nbytes="16GiB", optimizer="adam"),
        tree_diff_report(PLANNED, {"0": LARGE["0"]}),
        reshard_report(tree_report(LARGE, mesh={"data": 4}, specs=P("data")), P()),
    ],
    ids=lambda report: type(report).__name__,
)
def test_sums_above_2_to_63_are_written_and_read(report):
    assert "EiB" in to_text(report)
    assert from_json(to_json(report)) == report


def test_flops_and_sent_bytes_above_2_to_63_are_written_and_read():
    matrix = jax.ShapeDtypeStruct((2**24, 2**20), jnp.float32)
    report = program_report(lambda a, b: (a @ b.T).sum(), matrix, matrix)
    assert report.dot_flops == 2 * 2**68
    assert from_json(to_json(report)) == report
    if jax.device_count() < 2:
        return
    mesh = mesh_of((2,), ("data",))

    def constrained(value, *spec):
        return lax.with_sharding_constraint(value, NamedSharding(mesh, P(*spec)))

    def step(x):
        return lax.fori_loop(0, 2**31 - 1, lambda _, c: constrained(constrained(c * 2), "data"), x)

    x = jax.ShapeDtypeStruct((2**32, 8), jnp.float32, sharding=NamedSharding(mesh, P("data")))
    report = program_report(jax.jit(step), x)
    assert report.sent.nbytes > 2**63
    assert from_json(to_json(report)) == report


def test_an_array_above_2_to_63_has_no_size():
    (row,) = tree_report(
        jax.ShapeDtypeStruct((2**41, 2**41), jnp.float32), mesh={"data": 4}, specs=P("data")
    ).rows
    assert (row.nbytes, row.shard_nbytes) == (None, None)
