"""Layouts, meshes and XLA shardings without devices."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    array_report,
    from_json,
    mesh_report,
    planned_mesh_report,
    planned_report,
    shard_report,
    spec_layout,
    spec_problems,
    to_json,
    uneven_axes,
    xla_report,
)
from jax_array_info_core.errors import LayoutError, SpecError, UnsupportedValueError
from jax_array_info_core.layouts import (
    MeshAxes,
    Spec,
    format_mesh,
    parse_spec,
    parse_xla_sharding,
    spec_of_xla,
)
from jax_array_info_core.reports import ShardReport
from tests.arrays import abstract_mesh, mesh_of

pytestmark = pytest.mark.newest

MESH = {"data": 8, "fsdp": 4, "model": 2}


@pytest.mark.parametrize(
    "spec",
    [
        (("data", "model"), None),
        [["data", "model"], None],
        P(("data", "model"), None),
        Spec((("data", "model"), ())),
    ],
)
def test_specs_are_accepted_in_several_forms(spec):
    assert spec_layout((16, 16), MESH, spec).shard_counts == (16, 1)
    assert spec_layout((16, 16), MESH, P(P.UNCONSTRAINED, "data")).shard_counts == (1, 8)


@pytest.mark.parametrize(
    ("shape", "mesh", "spec", "problems"),
    [
        (
            (17, 19),
            MESH,
            ("data", "model"),
            [
                "axis 0 of shape (17, 19) is not divisible by mesh axis 'data' of size 8: 17 % 8 = 1. "
                "Pad it to 24, or leave it unsharded.",
                "axis 1 of shape (17, 19) is not divisible by mesh axis 'model' of size 2: 19 % 2 = 1. "
                "Pad it to 20, or leave it unsharded.",
            ],
        ),
        (
            (12,),
            MESH,
            ("data",),
            [
                "axis 0 of shape (12,) is not divisible by mesh axis 'data' of size 8: 12 % 8 = 4. "
                "Pad it to 16, or shard it over 'fsdp' of size 4."
            ],
        ),
        (
            (18,),
            {"a": 4, "b": 3, "c": 2},
            (("a", "b"),),
            [
                "axis 0 of shape (18,) is not divisible by mesh axes ('a', 'b') of size 12: 18 % 12 = 6. "
                "Pad it to 24, or shard it over ('b', 'c') of size 6."
            ],
        ),
        (
            (16, 16),
            MESH,
            ("modle", "data", "data"),
            [
                "'modle' is not a mesh axis: the mesh has 'data', 'fsdp', 'model'",
                "'data' is used twice: a mesh axis can shard only one axis of an array",
                "the spec has 3 entries, but the array has 2 axes: shape (16, 16)",
            ],
        ),
        (
            (-1,),
            {"a": 0},
            (),
            ["axis 0 of shape (-1,) has a negative length", "mesh axis 'a' has no devices: its size is 0"],
        ),
        ((8,), MESH, "data", ["'data' is one name, not a spec: write ('data',)"]),
    ],
)
def test_one_error_lists_every_problem_with_its_fix(shape, mesh, spec, problems):
    with pytest.raises(ValueError) as raised:
        spec_layout(shape, mesh, spec)
    assert isinstance(raised.value, SpecError)
    assert list(raised.value.problems) == problems
    assert str(raised.value) == "\n".join(problems)


def test_planning_does_not_import_jax():
    code = """
import sys
import jax_array_info_core as core
core.spec_layout((16,), {"a": 4}, ("a",)), core.planned_report((16,), {"a": 4}, ("a",), dtype="bfloat16")
core.xla_report("{devices=[4]<=[4]}", {"a": 4}), core.planned_mesh_report({"a": 4})
core.from_json(core.to_json(core.planned_report((16,), {"a": 4}, ("a",))))
assert "jax" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_planned_array_has_bytes_and_unused_axes():
    report = planned_report((16, 16), MESH, ("data",), dtype="int4", name="w")
    assert (report.kind, report.nbytes, report.shard_nbytes) == ("planned", 128, 16)
    assert report.layout.replicas == 8
    assert report.sharding.unused_axes == ("fsdp", "model")
    assert planned_report((4,), {"a": 1, "b": 4}, ("b",)).sharding.unused_axes == ()
    with pytest.raises(SpecError) as raised:
        planned_report((17,), MESH, ("data",), dtype="float23")
    assert len(raised.value.problems) == 2


@pytest.mark.parametrize(
    "dtype",
    [*("float23", "str", "object", "f4,f4", "datetime64", ",", "", "__doc__", "finfo", "\0", ">f4"), None, 3],
)
def test_an_unknown_dtype_is_rejected(dtype):
    """Also what only NumPy accepts."""
    with pytest.raises(SpecError, match="is not an array dtype: use one such as float32, bfloat16 or int4"):
        planned_report((4,), {"a": 1}, (), dtype=dtype)


@pytest.mark.parametrize(
    ("names", "name", "bits"),
    [
        (("f4", "float32", float), "float32", 32),
        (("bf16", "bfloat16", jnp.bfloat16, np.dtype("bfloat16"), ml_dtypes.bfloat16), "bfloat16", 16),
        (("s32", "int", int), "int32", 32),
        ((bool,), "bool", 8),
        ((complex,), "complex64", 64),
        (("key<fry>",), "key<fry>", 64),
        (("key<rbg>",), "key<rbg>", 128),
    ],
)
def test_a_dtype_is_a_name_a_short_name_or_what_jax_takes(names, name, bits):
    for dtype in names:
        report = planned_report((4,), {"a": 2}, ("a",), dtype=dtype)
        assert (report.dtype, report.bits, report.nbytes, report.shard_nbytes) == (
            name,
            bits,
            bits // 2,
            bits // 4,
        )


def test_a_shard_report_has_the_shard_of_one_device():
    report = planned_report((16, 8), {"data": 4, "model": 2}, ("data",), dtype="bfloat16")
    assert shard_report(report, 5) == ShardReport(
        device_id=5, index=((8, 12), (0, 8)), nbytes=64, holders=(4, 5)
    )
    with pytest.raises(LayoutError, match="device 8 holds no shards of this array, which is on devices 0-7"):
        shard_report(report, 8)
    with pytest.raises(LayoutError, match="the device of each shard is not known"):
        shard_report(array_report(3), 0)
    uneven = planned_report((5,), {"a": 4}, ("a",), uneven=True)
    assert [shard_report(uneven, device).nbytes for device in range(4)] == [8, 8, 4, 0]
    assert shard_report(array_report(jax.random.key(0)), jax.devices()[0].id).nbytes == 8


def test_meshes_are_reported_with_and_without_devices():
    mesh = mesh_of((len(jax.devices()), 1), ("a", "b"), jax.devices()[::-1])
    report = mesh_report(mesh)
    assert (report.axes.names, report.axes.sizes) == (("a", "b"), (len(jax.devices()), 1))
    assert report.layout.device_ids.ravel().tolist() == [device.id for device in jax.devices()[::-1]]
    assert planned_mesh_report({"a": 2, "b": 3}).layout.device_ids[..., 0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert mesh_report(abstract_mesh(a=2, b=3)).layout == planned_mesh_report({"a": 2, "b": 3}).layout
    with pytest.raises(SpecError, match="mesh axis 'a' has no devices"):
        planned_mesh_report({"a": 0})


def test_an_xla_sharding_is_explained():
    report = xla_report("{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}", {"x": 4, "y": 2}, (17, 16))
    assert report.spec == Spec((("y",),))
    assert report.mesh == MeshAxes(("x", "y"), (4, 2))
    assert report.patterns == (
        "axis 0: 2 shards, shard k on devices 0,2,4,6 + k",
        "4 replicas of each shard, 2 devices apart",
    )
    assert report.uneven == (
        "axis 0 of shape (17, 16) is not divisible by 2 shards: 17 % 2 = 1. Pad it to 18, or leave it unsharded.",
    )
    assert report.layout.shape == (17, 16)
    assert xla_report("{devices=[4,2]<=[8]}").layout.shape == (4, 2)
    assert xla_report("{manual}").layout is None
    assert xla_report("{maximal device=3}", shape=(4, 4)).layout.device_ids.ravel().tolist() == [3]
    assert xla_report("{replicated}", {"a": 4}).layout.replicas == 4


@pytest.mark.parametrize(
    ("text", "mesh", "shape", "problem"),
    [
        ("{devices=[4]<=[4]}", {"a": 8}, None, "the mesh a=8 has 8 devices, but the sharding has 4"),
        (
            "{devices=[4]<=[4]}",
            None,
            (4, 4),
            r"the sharding is for 1 axis, but the array has 2 axes: shape \(4, 4\)",
        ),
        ("{devices=[4]<=[4]}", {"a": 0}, None, "mesh axis 'a' has no devices"),
    ],
)
def test_a_mesh_or_shape_that_does_not_fit_an_xla_sharding_is_rejected(text, mesh, shape, problem):
    with pytest.raises(SpecError, match=problem):
        xla_report(text, mesh, shape)


def test_devices_of_one_tile_can_hold_partial_sums_or_manual_parts():
    sums = xla_report("{devices=[2,4]<=[8] last_tile_dims={unreduced}}", {"a": 2, "b": 4})
    assert sums.patterns[-1] == "4 partial sums of each shard over b, on consecutive devices"
    manual = xla_report("{devices=[2,2,2]<=[8] last_tile_dims={manual, replicated}}")
    assert manual.patterns[-1] == "4 manual parts and replicas of each shard, on consecutive devices"


def test_a_layout_of_a_million_devices_is_one_array():
    layout = spec_layout((2**20, 2**20), {"a": 1024, "b": 1024}, ("a", "b"))
    assert layout.device_ids.size == 2**20
    assert layout.index_of(2**20 - 1) == (slice(2**20 - 1024, 2**20),) * 2
    assert isinstance(layout.device_ids, np.ndarray)


def test_problems_and_uneven_axes_accept_any_form_of_spec():
    shape, mesh = (17, 12), {"data": 8, "model": 4}
    for spec in (("model", "dada"), parse_spec("model,dada")):
        assert spec_problems(shape, mesh, spec) == ["'dada' is not a mesh axis: the mesh has 'data', 'model'"]
        assert [axis.axis for axis in uneven_axes(shape, mesh, spec)] == [0]


MANY = {f"a{number}": 1 for number in range(70)}


@pytest.mark.parametrize(
    ("shape", "mesh", "problem"),
    [
        ((1,) * 70, {"a": 1}, "an array of 70 axes exceeds the limit of"),
        ((4,), MANY, "a mesh of 70 axes exceeds the limit of"),
        ((4,), {"a": 10**12}, "1000000000000 devices exceed the limit of 1048576"),
        ((4,), {"a": 10**400}, r"a mesh with an axis of length 1.0e\+400 exceeds the limit of 2\^63 - 1"),
        (
            (-(10**5000),),
            {"a": 2},
            r"an array with an axis of length -1.0e\+5000 exceeds the limit of 2\^63 - 1",
        ),
        ((4,), dict.fromkeys("abcdefgh", 10**18), r"1.0e\+144 devices exceed the limit"),
        ((4,), {"a": -(10**15)}, "no devices: its size is"),
    ],
)
def test_a_shape_or_mesh_beyond_the_limits_is_rejected(shape, mesh, problem):
    for make in (spec_layout, planned_report):
        with pytest.raises(SpecError, match=problem):
            make(shape, mesh, ("a",))
    with pytest.raises(SpecError, match=problem):
        xla_report("{replicated}", mesh, shape)


def test_the_bytes_of_an_array_above_8_eib_are_none():
    for report in (
        planned_report((10**18 - 2,) * 17, {"a": 2}, ("a",)),
        planned_report((2**61,), {"a": 2}, ("a",)),
    ):
        assert report.nbytes is None
        assert from_json(to_json(report)) == report
    assert planned_report((2**61 - 2,), {"a": 2}, ("a",)).nbytes == 2**63 - 8


def test_fitting_axes_are_found_among_many():
    mesh = {"b": 3, **{f"a{number}": 2 for number in range(30)}}  # numpy 1 has no more than 31 axes
    [uneven] = uneven_axes((2**29,), mesh, ("b",))
    assert (uneven.fitting, uneven.fitting_count) == (tuple(f"a{number}" for number in range(29)), 2**29)


def test_the_number_of_problems_grows_linearly():
    names = [f"b{number}" for number in range(3000)]
    problems = spec_problems((1,), {"a": 1}, [*names, "b7"])
    assert len(problems) == 3002
    assert len(spec_problems((1,) * 3000, {"a": 1}, names)) == 1


def test_a_mesh_is_a_mesh_an_abstract_one_or_a_mapping():
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("a", "b"))
    for like in (mesh, mesh.abstract_mesh, MeshAxes(("a", "b"), (1, 1)), {"a": 1, "b": 1}):
        assert planned_report((4,), like, ("a",)).layout == spec_layout((4,), {"a": 1, "b": 1}, ("a",))
        assert mesh_report(like).axes.shape == planned_mesh_report(like).axes.shape == {"a": 1, "b": 1}
        assert xla_report("{replicated}", like, (4,)).spec == Spec(())
        assert spec_of_xla(parse_xla_sharding("{replicated}"), like) == Spec(())
        assert spec_problems((4,), like, ("c",)) == ["'c' is not a mesh axis: the mesh has 'a', 'b'"]
        assert uneven_axes((3,), like, ("a",)) == ()
        assert format_mesh(like) == "a=1,b=1"
    for wrong in (3, None, ["a"]):
        with pytest.raises(UnsupportedValueError, match="mesh must be a Mesh, an AbstractMesh or a mapping"):
            planned_report((4,), wrong, ())
