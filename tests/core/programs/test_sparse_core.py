"""A gather that libtpu 0.0.50.1 gives to the SparseCore of a v5p: its start has no operands."""

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report
from jax_array_info_core.programs import program_report as report_module
from tests.hlo_texts import stored
from tests.programs import abstract

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]

MIB = 2**20


def test_the_report_has_all_parts(monkeypatch):
    """The record is that of libtpu; CPU compiles the same function for its arguments."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("fsdp", "tensor"))
    module = stored("embed", "embed")
    monkeypatch.setattr(report_module, "module_of", lambda *_: module)

    def embed(table, w, tokens):
        constraint = jax.lax.with_sharding_constraint
        x = constraint(table[tokens], NamedSharding(mesh, P("fsdp")))
        return constraint(x @ w, NamedSharding(mesh, P("fsdp", None, "tensor")))

    report = program_report(
        embed,
        abstract(mesh, P("tensor", "fsdp"), (128256, 8192), "bfloat16"),
        abstract(mesh, P("fsdp", "tensor"), (8192, 8192), "bfloat16"),
        abstract(mesh, P("fsdp"), (16, 2048), "int32"),
        timeline=True,
    )
    assert report.left_out == ()
    sent = {(row.kind, row.axes): row.nbytes for row in report.sent.by_kind_and_axes}
    assert sent["all-reduce", ("tensor",)] == 2 * 16 * 2048 * 2048 * 2 // 2  # of the rows of half the table
    assert sent["all-to-all", ("fsdp",)] == 16 * 2048 * 2048 * 2 * 3 // 4
    assert sent["all-gather", ("fsdp",)] == 3 * 2048 * 4096 * 2  # of w
    assert sum(sent.values()) == report.sent.nbytes < 273 * MIB  # the rest are tokens
    assert report.dot_flops == 2 * 16 * 2048 * 8192 * 8192 // 8
    [first, *_] = report.memory.temporaries
    assert (first.nbytes * first.count, first.origin.function) == (128 * MIB, "embed")
    assert report.repeated == ()
