"""Reports of JAX objects other than arrays: shardings, specs, meshes and shards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import array_report, from_json, to_json
from jax_array_info_core.reports import ContainerLeaf
from tests.arrays import mesh_of, sharded


def test_shardings_and_specs_are_leaves_with_their_spec_as_the_type():
    mesh = mesh_of((1, 1), ("a", "b"))
    leaves = array_report({"s": NamedSharding(mesh, P("a")), "p": P(None, ("a", "b")), "m": mesh}).leaves
    assert leaves == (
        ContainerLeaf(path="['m']", type="Mesh"),
        ContainerLeaf(path="['p']", type="P(None, ('a', 'b'))"),
        ContainerLeaf(path="['s']", type="P('a',) over a=1,b=1"),
    )


def test_the_report_of_a_sharding_has_its_spec_mesh_and_devices():
    count = len(jax.devices())
    report = array_report(NamedSharding(mesh_of((count,), ("a",)), P("a", None)), "name")
    assert (report.kind, report.name, report.type_name) == ("object", "name", "NamedSharding")
    assert str(report.sharding.spec) == "P('a', None)"
    assert report.sharding.mesh.shape == {"a": count}
    assert report.devices == tuple(sorted(device.id for device in jax.devices()))
    single = array_report(SingleDeviceSharding(jax.devices()[-1]))
    assert single.device == f"cpu:{jax.devices()[-1].id}"


def test_objects_without_devices_are_reported_with_their_spec_and_mesh():
    abstract = mesh_of((1,), ("a",)).abstract_mesh
    report = array_report(NamedSharding(abstract, P("a")))
    assert (str(report.sharding.spec), report.devices) == ("P('a',)", ())
    spec = array_report(P("a", P.UNCONSTRAINED))
    assert (spec.type_name, str(spec.sharding.spec)) == ("PartitionSpec", "P('a', UNCONSTRAINED)")
    assert array_report(abstract).sharding.mesh.shape == {"a": 1}
    empty = Mesh(np.empty((), object), ())
    assert array_report(empty).kind == array_report(NamedSharding(empty, P())).kind == "object"


@pytest.mark.needs_devices(8)
def test_the_report_of_a_shard_has_its_device_and_index_and_does_not_read_its_data(monkeypatch):
    array = sharded((8, 6), mesh_of((4, 2), ("a", "b")), "a")
    shard = array.addressable_shards[3]
    monkeypatch.setattr(jax.Shard, "data", property(lambda self: pytest.fail("its data were read")))
    report = array_report(shard)
    assert (report.kind, report.type_name) == ("object", "Shard")
    assert (report.device, report.index, report.replica) == ("cpu:3", ((2, 4), (0, 6)), 1)
    assert from_json(to_json(report)) == report


def test_a_shard_of_a_scalar_has_an_empty_index():
    report = array_report(jnp.float32(1).addressable_shards[0])
    assert (report.index, report.replica) == ((), 0)
