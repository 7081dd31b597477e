"""Leaves in host memory, in trees and compared with the memory of a host."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import CheckError, assert_tree, check_report, from_json, to_json, tree_report
from jax_array_info_core.errors import SpecError, UnsupportedValueError
from jax_array_info_core.trees.checks.memory import host_bytes
from jax_array_info_core.trees.plan import plan_tree
from jax_array_info_core.trees.totals import tree_of_rows
from tests.arrays import FakeDevice, abstract_mesh, mesh_of
from tests.core.trees.checks.findings import the_finding

pytestmark = pytest.mark.newest

KIB = 1024


class FakeTpu(FakeDevice):
    platform = "tpu"


def hosted(shape, spec, mesh=None, kind="pinned_host", dtype=jnp.float32):
    """Return an abstract array in a memory of the host."""
    mesh = abstract_mesh(x=8) if mesh is None else mesh
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec, memory_kind=kind))


keeps_memory_kinds = pytest.mark.skipif(
    NamedSharding(abstract_mesh(x=8), P(), memory_kind="pinned_host").memory_kind is None,
    reason=f"jax {jax.__version__} drops the memory kind of a sharding on an AbstractMesh",
)


def on_hosts(devices, hosts=None, **specs):
    """Return the bytes of a host for leaves of 8 KiB on fake devices, as if they were in host memory."""
    mesh = mesh_of((len(devices),), ("x",), devices)
    tree = {
        name: jax.ShapeDtypeStruct((8, 256), jnp.float32, sharding=NamedSharding(mesh, spec))
        for name, spec in specs.items()
    }
    planned = plan_tree(tree)
    rows = [replace(row, memory_kind="pinned_host", is_in_host_memory=True) for row in planned.report.rows]
    return host_bytes(tree_of_rows(rows, planned.devices), planned.devices, hosts)


def fake(make, owners):
    return [make(number, owner) for number, owner in enumerate(owners)]


@keeps_memory_kinds
@pytest.mark.parametrize("spec", [P("x"), P()])
@pytest.mark.parametrize("kind", ["pinned_host", "unpinned_host"])
def test_a_tree_and_its_check_have_the_bytes_of_both_memories(spec, kind):
    on_device = jax.ShapeDtypeStruct((8, 64), jnp.float32, sharding=NamedSharding(abstract_mesh(x=8), P("x")))
    tree = {"w": on_device, "ema": hosted((8, 256), spec, kind=kind), "same": hosted((8,), P("x"), kind=kind)}
    report = tree_report(tree)
    shard = 8 * KIB // (8 if spec else 1)
    assert (report.fullest_device_nbytes, report.host_nbytes) == (256, shard + 4)
    assert (report.nbytes, report.host_global_nbytes) == (2 * KIB, 8 * KIB + 32)
    # All elements have 4 bytes: the bytes of both memories are those of all elements.
    assert report.nbytes + report.host_global_nbytes == 4 * report.elements
    assert report.host_memory_kinds == (kind,)
    check = check_report(tree, hbm_nbytes=256, max_replicated=1)
    assert (check.required_nbytes, check.hosted_nbytes) == (256, shard + 4)
    assert (check.required_host_nbytes, check.host_memory_kinds) == (8 * (shard + 4), (kind,))
    assert from_json(to_json(check)) == check


@pytest.mark.parametrize(
    ("devices", "hosts", "expected"),
    [
        (fake(FakeTpu, [0] * 4 + [1] * 4), None, (4 * 9 * KIB, 4, "host")),
        (fake(FakeTpu, [0] * 6 + [1] * 2), None, (6 * 9 * KIB, 6, "host")),
        (fake(FakeDevice, [0] * 4 + [1] * 4), None, (4 * 9 * KIB, 4, "process")),
        (fake(FakeDevice, range(8)), None, (9 * KIB, 1, "process")),
        (fake(FakeDevice, [0] * 8), None, (8 * 9 * KIB, 8, "host")),
        (fake(FakeDevice, range(8)), 1, (8 * 9 * KIB, 8, "host")),
        (fake(FakeTpu, [0] * 4 + [1] * 4), 4, (2 * 9 * KIB, 2, "host")),
    ],
)
def test_a_host_holds_what_its_devices_hold(devices, hosts, expected):
    """A replica of 8 KiB and a shard of 1 KiB on each device."""
    found = on_hosts(devices, hosts, whole=P(), sharded=P("x"))
    assert (found.nbytes, found.device_count, found.unit) == expected


@given(st.lists(st.integers(0, 3), min_size=8, max_size=8), st.lists(st.booleans(), max_size=5))
def test_the_fullest_host_is_that_of_a_sum_by_hand(owners, replicated):
    specs = {f"leaf{number}": P() if whole else P("x") for number, whole in enumerate(replicated)}
    found = on_hosts(fake(FakeTpu, owners), None, **specs, one=P("x"))
    each = KIB * (1 + sum(8 if whole else 1 for whole in replicated))
    most = max(map(owners.count, owners))
    assert (found.nbytes, found.device_count, found.unit) == (each * most, most, "host")


@keeps_memory_kinds
def test_without_processes_all_devices_count_and_the_answer_tells_it():
    tree = {"mu": hosted((8, 256), P("x")), "nu": hosted((8, 256), P("x"))}
    report = check_report(tree, host_nbytes="16KiB")
    assert (report.required_host_nbytes, report.host_unit, report.host_device_count) == (
        16 * KIB,
        "all devices",
        8,
    )
    assert report.answer == "host memory fits: needs 16.0 KiB of 16.0 KiB for all 8 devices; no findings"
    report = check_report(tree, host_nbytes="16KiB", hosts=2, hbm_nbytes=1)
    assert report.answer == (
        "fits: needs 0.0 B of 1.0 B per device, without gradients and activations; "
        "host memory fits: needs 8.0 KiB of 16.0 KiB per host of 4 devices; no findings"
    )
    assert check_report(tree_report(tree), host_nbytes="16KiB").required_host_nbytes == 16 * KIB


@keeps_memory_kinds
@pytest.mark.parametrize(
    ("spec", "options", "words"),
    [
        (P("x"), {"hosts": 2}, "shard them over more hosts"),
        (P(), {"hosts": 2}, "Evenly sharded, without replicas, it would take 4.0 KiB per host"),
        (P("x"), {}, "If the devices are on several hosts, pass hosts"),
    ],
)
def test_a_tree_that_does_not_fit_a_host_is_a_finding(spec, options, words):
    tree = {"ema": hosted((8, 256), spec)}
    options |= {"max_replicated": 1, "replicated_over": "x"}
    needed = check_report(tree, host_nbytes=2**40, **options).required_host_nbytes
    # A replicated leaf fits once it is sharded; a sharded one does not.
    limit = needed - 1 if spec == P("x") else needed // 2
    report = check_report(tree, host_nbytes=limit, **options)
    finding = the_finding(report, "memory")
    assert (finding.code, words in finding.remedy) == ("JAI108", True)
    assert report.answer.startswith("host memory does not fit: needs ")
    with pytest.raises(CheckError, match="of host memory for"):
        assert_tree(tree, host_nbytes=limit, **options)
    assert_tree(tree, host_nbytes=needed, **options)


@keeps_memory_kinds
def test_the_moments_of_parameters_in_host_memory_take_host_memory():
    report = check_report({"params": {"w": hosted((8, 256), P("x"))}}, optimizer="adam", host_nbytes=24 * KIB)
    assert (report.optimizer_nbytes, report.optimizer_hosted_nbytes) == (0, 2 * KIB)
    assert (report.hosted_nbytes, report.required_host_nbytes, report.passed) == (KIB, 24 * KIB, True)
    [finding] = check_report(
        {"params": {"w": hosted((8, 256), P("x"))}}, optimizer="adam", host_nbytes=23 * KIB
    ).findings
    assert "with adam: 2 float32 moments" in finding.problem


@keeps_memory_kinds
def test_a_leaf_of_unknown_size_may_not_fit_a_host():
    tree = {"big": hosted((2**62, 4), P("x")), "w": hosted((8,), P("x"))}
    report = check_report(tree, host_nbytes=2**40)
    assert report.answer.startswith("host memory may not fit: needs more than 32.0 B")
    assert the_finding(report, "memory").leaves[0].path == "big"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"hosts": 2}, UnsupportedValueError, "hosts needs host_nbytes"),
        ({"host_nbytes": 0}, UnsupportedValueError, "host_nbytes must be a positive integer, got 0"),
        ({"host_nbytes": "1GiB", "hosts": 3}, SpecError, "8 devices cannot be divided among 3 hosts"),
    ],
)
def test_arguments_that_do_not_fit(options, error, message):
    with pytest.raises(error, match=message):
        check_report({"w": hosted((8,), P("x"))}, **options)


def test_a_tree_on_the_device_says_nothing_of_the_host():
    report = check_report({"w": np.zeros(4, np.float32), "x": jnp.zeros(8)}, devices=1)
    assert (report.hosted_nbytes, report.required_host_nbytes, report.host_memory_kinds) == (0, 0, ())
    assert "host" not in report.answer
