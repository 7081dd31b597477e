"""Leaves on fewer devices than the mesh of their tree."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    CheckError,
    PathRules,
    assert_tree,
    check_report,
    from_json,
    to_json,
    tree_report,
)
from jax_array_info_core.compat.shardings import mesh_context
from tests.arrays import mesh_of, sharded
from tests.core.trees.checks.findings import abstract, kinds, paths, the_finding

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]

MIB = 2**20


def on_one_device(*shape, dtype=jnp.float32):
    """Return an array on one device, which was never sharded."""
    return jnp.zeros(shape, dtype)


def model(**leaves):
    """Return a tree on a mesh of 8 devices, with more leaves."""
    return {"wi": sharded((512, 512), mesh_of((4, 2), ("x", "y")), ("x", "y")), **leaves}


def test_a_parameter_that_was_never_sharded_is_found_with_the_bytes_of_both_states():
    """All 4 MiB are on one device; each of 8 devices could hold 0.5 MiB."""
    tree = model(head=on_one_device(128, 8192))
    finding = the_finding(check_report(tree), "fewer devices")
    assert finding.nbytes == 4 * MIB
    [leaf] = finding.leaves
    assert (leaf.path, leaf.nbytes, leaf.nbytes_after) == ("head", 4 * MIB, MIB // 2)
    assert leaf.remedy == "on 1 of 8 devices; shard axis 1 over ('x', 'y')"
    with pytest.raises(CheckError, match=r"devices; shard axis 1 over .*: 512\.0 KiB"):
        assert_tree(tree)
    assert kinds(check_report(tree)) == kinds(check_report(from_json(to_json(tree_report(tree)))))
    assert from_json(to_json(check_report(tree))) == check_report(tree)


@pytest.mark.parametrize("shape", [(), (2,), (128, 8192)])
def test_a_leaf_that_is_committed_to_other_devices_is_found_whatever_its_size(shape):
    """JAX refuses it in a call with the others."""
    head = jax.device_put(on_one_device(*shape), jax.devices()[1])
    tree = model(head=head, other=on_one_device())
    finding = the_finding(check_report(tree), "incompatible devices")
    assert paths(finding) == ["head"]
    assert finding.leaves[0].remedy == "committed to device 1"
    assert kinds(check_report(tree)) == ["incompatible devices"]
    assert kinds(check_report(from_json(to_json(tree_report(tree))))) == ["incompatible devices"]
    with pytest.raises(CheckError, match="JAI112 incompatible-devices"):
        assert_tree(tree)
    for accepted in ({"ignore": "head"}, {"devices": 1}, {"ignore_codes": ("JAI112", "JAI102")}):
        assert kinds(check_report(tree, **accepted)) == []


def test_the_meshes_of_a_pipeline_are_no_incompatible_devices_and_what_is_on_neither_is():
    stages = [mesh_of((4,), ("s",), jax.devices()[first : first + 4]) for first in (0, 4)]
    tree = {f"w{number}": sharded((64, 8), mesh, "s") for number, mesh in enumerate(stages)}
    assert "incompatible devices" not in kinds(check_report(tree))
    tree["count"] = jax.device_put(jnp.zeros(()), jax.devices()[5])
    assert paths(the_finding(check_report(tree), "incompatible devices")) == ["count"]


def test_a_parameter_that_was_never_sharded_is_accepted_by_name_count_and_expectation():
    """``ignore``, ``devices=1`` and its own sharding in ``expect``."""
    tree = model(head=on_one_device(64, 64))
    for accepted in (
        {"ignore": "head"},
        {"devices": 1},
        {"expect": {"wi": None, "head": tree["head"].sharding}},
    ):
        assert_tree(tree, **accepted)
    other = check_report(tree, expect=PathRules({"head": P("x"), "*": None}))
    assert kinds(other) == ["unexpected sharding"], "listed once"


def test_replication_over_the_data_axis_does_not_hide_it():
    """The leaf is not replicated. It would be over ``x`` only."""
    report = check_report(model(head=on_one_device(256, 256)), replicated_over="x")
    [leaf] = the_finding(report, "fewer devices").leaves
    assert leaf.nbytes_after == 256 * 256 * 4 // 2
    report = check_report(model(odd=on_one_device(2**16 + 1)), replicated_over=("x", "y"))
    [leaf] = the_finding(report, "fewer devices").leaves
    assert leaf.remedy == "on 1 of 8 devices; replicate"
    assert report.findings[0].problem.endswith("256.0 KiB as it is, 256.0 KiB per device on all 8.")


def test_scalars_keys_host_arrays_and_other_meshes_are_no_finding():
    """Stages of a pipeline have meshes of their own, and their devices may hold leaves without a mesh."""
    stage = mesh_of((4,), ("s",), jax.devices()[4:])
    tree = model(
        step=on_one_device(dtype=jnp.int32),
        temperature=on_one_device(1),
        key=jax.random.key(0),
        keys=jax.random.split(jax.random.key(0), 3),
        raw=jax.random.PRNGKey(0),
        host=np.zeros((64, 64)),
        number=0.5,
        nothing=on_one_device(0, 8),
        planned=abstract(),
        stage=sharded((64, 64), stage, "s"),
        last=sharded((64, 64), mesh_of((1,), ("s",), jax.devices()[:1])),
    )
    assert_tree(tree)
    report = tree_report(model(stage=tree["stage"], other=tree["stage"] + 1))
    rows = [
        replace(row, spec=None, sharding="GSPMDSharding") if row.path == "stage" else row
        for row in report.rows
    ]
    assert_tree(replace(report, rows=tuple(rows)))


def test_a_tree_on_one_device_is_a_finding_where_the_mesh_says_more():
    """Also if replication is intended: the leaves are not replicated yet."""
    tree = {"a": on_one_device(512, 512), "b": on_one_device(2**15), "step": on_one_device()}
    assert_tree(tree)
    mesh = mesh_of((8,), ("data",))
    for more in ({"mesh": mesh}, {"mesh": {"data": 8}}, {"devices": 8}):
        finding = the_finding(check_report(tree, **more), "fewer devices")
        assert paths(finding) == ["a", "b"]
        assert finding.nbytes == 512 * 576 * 4
        assert sum(leaf.nbytes_after for leaf in finding.leaves) == 512 * 576 * 4 // 8
        assert "avoidable replication" not in kinds(check_report(tree, **more)), "listed once"
    assert finding.leaves[0].remedy == "on 1 of 8 devices; shard axis 0 over 8 devices"
    assert kinds(check_report(tree, mesh=mesh, replicated_over="data")) == ["fewer devices"]
    assert_tree(tree, mesh=mesh, devices=1)


def test_specs_plan_leaves_that_are_on_one_device():
    """Leaves without a spec stay where they are."""
    tree = {"a": on_one_device(512, 512), "b": on_one_device(512, 64)}
    assert_tree(tree, mesh={"x": 8}, specs=P("x"))
    report = check_report(tree, mesh={"x": 8}, specs=PathRules({"a": P("x")}))
    assert paths(the_finding(report, "fewer devices")) == ["b"]
    assert_tree({"w": abstract(64, 8)}, mesh={"x": 8}, specs=P("x"))
    specs = {"a": P("x"), "b": SingleDeviceSharding(jax.devices()[1])}
    assert paths(
        the_finding(check_report(tree, mesh=mesh_of((8,), ("x",)), specs=specs), "fewer devices")
    ) == ["b"]


def test_a_struct_on_one_device_and_meshes_of_the_same_size():
    """The first of the largest meshes says over which mesh axes the leaf could be sharded."""
    struct = jax.ShapeDtypeStruct((512, 512), jnp.float32, sharding=SingleDeviceSharding(jax.devices()[3]))
    tree = {"a": sharded((8, 8), mesh_of((8,), ("z",)), "z"), **model(), "x": struct}
    [leaf] = the_finding(check_report(tree), "fewer devices").leaves
    assert leaf.remedy == "on 1 of 8 devices; shard axis 0 over 'z'"


def test_a_number_of_devices_applies_to_leaves_of_any_mesh():
    """The caller says how many devices each leaf must be on."""
    half = mesh_of((4,), ("x",), jax.devices()[:4])
    tree = {"w": jax.device_put(on_one_device(512, 512), NamedSharding(half, P("x")))}
    assert_tree(tree)
    assert paths(the_finding(check_report(tree, devices=8), "fewer devices")) == ["w"]
    for wrong in (0, True, 2.5):
        with pytest.raises(ValueError, match="devices must be a positive integer, got"):
            check_report(tree, devices=wrong)


def struct_on_one_device(*shape):
    sharding = SingleDeviceSharding(jax.devices()[0])
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)


def test_the_first_line_says_that_a_tree_is_on_one_of_several_devices():
    report = check_report({"w": struct_on_one_device(4096, 4096)})
    assert report.answer == f"no findings; on 1 of {jax.device_count()} devices"
    assert report.subject == f"1 leaf on 1 of {jax.device_count()} devices"
    assert from_json(to_json(report)).answer == report.answer
    assert check_report({"w": abstract(64, 8)}).answer == "no findings", "planned for one device"


def test_a_tree_on_one_device_is_a_finding_below_a_mesh_that_is_set_and_from_a_gibibyte_on():
    small, large = {"w": struct_on_one_device(4096, 4096)}, {"w": struct_on_one_device(2**14, 2**14)}
    with mesh_context(mesh_of((8,), ("x",))):
        [leaf] = the_finding(check_report(small), "fewer devices").leaves
        assert_tree(small, devices=1)
    assert leaf.remedy == "on 1 of 8 devices; shard axis 0 over 'x'"
    [leaf] = the_finding(check_report(large), "fewer devices").leaves
    assert (
        leaf.remedy == f"on 1 of {jax.device_count()} devices; shard axis 0 over {jax.device_count()} devices"
    )
    assert_tree(large, devices=1)
