import json
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    ShardingLayout,
    array_report,
    compile_caches_report,
    devices_report,
    from_json,
    hosts_report,
    json_schema,
    live_array_report,
    log_report,
    memory_profile_report,
    memory_report,
    mesh_report,
    planned_report,
    reshard_report,
    shard_report,
    sharding_layout,
    to_json,
    tree_diff_report,
    tree_report,
    xla_report,
)
from jax_array_info_core.errors import ReportFormatError
from tests import sample_programs
from tests.arrays import mesh_of, sharded
from tests.goldens import one_of_each
from tests.logs import REFUSED, REMATERIALIZATION
from tests.sample_programs import DIFFERENCE, SCAN, STEP, TOO_LARGE

pytestmark = pytest.mark.newest


def tree_reports():
    """Return a report of each class that is about trees."""
    params = {
        "größe [/red]": {
            "w": jax.ShapeDtypeStruct((17, 8), jnp.float32),
            "b": jax.ShapeDtypeStruct((8,), "int4"),
        },
        "n": np.zeros((2, 3), np.int8),
        "other": None,
    }
    tree = tree_report(
        params,
        "state",
        mesh={"a": 4, "b": 2, "one": 1},
        specs={"größe [/red]": P("a"), "n": None, "other": None},
    )
    array = jnp.zeros((4, 2))
    placed = tree_report({"x": array, "tied": array, "key": jax.random.key(0)})
    return [
        tree,
        placed,
        tree_report({"x": array}, statistics=True),
        tree_report({}),
        tree_diff_report(tree, placed),
        tree_diff_report(tree, tree_report(tree, specs={"größe [/red]": P(None), "n": None})),
        tree_diff_report(placed, placed),
        reshard_report(tree, {"größe [/red]": {"w": P(), "b": P("b")}, "n": None}),
        reshard_report(placed, placed),
    ]


def every_report():
    count = len(jax.devices())
    array = sharded((count, 4), mesh_of((count, 1), ("a", "b")), "a", "b")
    traced = []
    jax.vmap(lambda x: traced.append(array_report(x)) or x)(array)
    return [
        array_report(array, "größe [/red]"),
        array_report(jax.ShapeDtypeStruct((2**70, 3), jnp.float32)),
        array_report({"w": array, "n": 3}),
        array_report(None),
        array_report(3),
        array_report(np.zeros((0, 3))),
        *traced,
        log_report(
            [REMATERIALIZATION, "Some donated buffers were not usable: key<fry>[2].", REFUSED],
            mesh={"x": 4, "y": 2},
        ),
        live_array_report(),
        live_array_report(origins=True),
        memory_report(jax.devices()[0]),
        memory_report(jax.devices()[0], {"num_allocs": 3, "bytes": 2**63, "share": 0.5, "note": "x"}),
        devices_report(),
        hosts_report(live_array_report()),
        memory_profile_report(),
        compile_caches_report(),
        sharding_layout(array.shape, array.sharding),
        mesh_report(array.sharding.mesh),
        shard_report(array_report(array), jax.devices()[0].id),
        planned_report((8, 4), {"a": 2}, ("a",), dtype="int4"),
        xla_report("{devices=[2,2]<=[2,2]T(1,0)}", {"x": 2, "y": 2}, (5, 4)),
        xla_report("{manual}"),
        *tree_reports(),
        *sample_programs.REPORTS,
        sample_programs.TIMELINE,
        # The compiler for GPUs refuses no program: one that does not fit has its memory.
        replace(TOO_LARGE, platform="gpu", memory=SCAN.memory),
        *one_of_each().values(),
    ]


def test_every_report_round_trips_through_json_and_matches_the_schema():
    validator = jsonschema.Draft202012Validator(json_schema())
    for report in every_report():
        text = to_json(report)
        assert "\n" not in text
        restored = from_json(text)
        assert restored == report
        assert type(restored) is type(report)
        validator.validate(json.loads(text))


@given(
    st.lists(st.integers(1, 3), max_size=3).flatmap(
        lambda counts: st.tuples(
            st.just(counts),
            st.lists(st.integers(0, 9), min_size=len(counts), max_size=len(counts)),
            st.integers(1, 3),
        )
    )
)
def test_every_layout_round_trips_through_json(case):
    counts, shape, replicas = case
    ids = np.arange(int(np.prod(counts)) * replicas).reshape(*counts, replicas)
    layout = ShardingLayout(shape=tuple(shape), device_ids=ids)
    assert from_json(to_json(layout)) == layout


def test_keys_are_the_field_names():
    report = memory_report(jax.devices()[0], {"num_allocs": 3, "bytes_in_use": 5})
    assert json.loads(to_json(report)) == {
        "report": "MemoryReport",
        "schema_version": 3,
        "device": "cpu:0",
        "stats": [["bytes_in_use", 5]],
        "allocation_count": 3,
        "missing_reason": None,
    }


def test_fields_of_a_later_version_are_ignored():
    report = memory_report(jax.devices()[0])
    assert from_json(json.dumps({**json.loads(to_json(report)), "later": 1})) == report


def test_json_has_the_shards_of_a_layout():
    count = len(jax.devices())
    array = sharded((4 * count, 3), mesh_of((count, 1), ("a", "b")), "a")
    layout = json.loads(to_json(array_report(array)))["layout"]
    assert (layout["shard_counts"], layout["shard_shape"], layout["replicas"]) == ([count, 1], [4, 3], 1)
    whole = json.loads(to_json(array_report(sharded((3,), mesh_of((count,), ("a",))))))["layout"]
    assert (whole["shard_counts"], whole["shard_shape"], whole["replicas"]) == ([1], [3], count)


def test_json_has_the_totals_of_live_arrays():
    kept = [jnp.zeros((3, 5), jnp.int8), jnp.zeros((7, 11), jnp.int16)]
    report = live_array_report(origins=True)
    totals = json.loads(to_json(report))["totals"]
    assert {total["by"] for total in totals} == {"origin", "device", "dtype", "sharding"}
    by_dtype = {total["of"]: total for total in totals if total["by"] == "dtype"}
    same = [group for group in report.groups if group.dtype == "int16"]
    assert by_dtype["int16"]["count"] == sum(group.count for group in same)
    assert by_dtype["int16"]["nbytes"] >= kept[1].nbytes
    by_device = {total["of"]: total["nbytes"] for total in totals if total["by"] == "device"}
    assert by_device == {f"cpu:{device}": nbytes for device, nbytes in report.device_nbytes}
    assert "origin" not in {total.by for total in live_array_report().totals}


def test_derived_fields_are_optional_and_recomputed():
    """Another writer of JSON may lack these fields, and edited values cannot contradict the other fields."""
    live, layout = live_array_report(origins=True), sharding_layout((8,), jnp.zeros(8).sharding)
    for report, derived in [(live, ["totals"]), (layout, ["shard_counts", "shard_shape", "replicas"])]:
        fields = json.loads(to_json(report))
        older = {name: value for name, value in fields.items() if name not in derived}
        restored = from_json(json.dumps(older))
        assert restored == report
        assert to_json(restored) == to_json(report)
    assert from_json(json.dumps({**fields, "replicas": 99})).replicas == 1


GOOD = {
    "report": "ShardingLayout",
    "schema_version": 3,
    "shape": [4],
    "device_ids": [[0], [1]],
    "platform": None,
}


def good(**fields):
    """Return the JSON of a layout with some fields replaced."""
    return json.dumps({**GOOD, **fields})


def changed(report, *keys, to):
    """Return the JSON of a report with the value at a path of keys replaced."""
    fields = json.loads(to_json(report))
    part = fields
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = to
    return json.dumps(fields)


def array_json(**fields):
    """Return the JSON of an array report with some fields replaced."""
    return json.dumps({**json.loads(to_json(array_report(None))), **fields})


def axes_json(*sizes, names="ab", **facts):
    """Return the JSON of an array report with a mesh of manual axes."""
    return array_json(manual_axes={"names": [*names], "sizes": sizes, **facts})


ROW = {"path": "w", "kind": "planned", "shape": [4], "dtype": "int8"}
MESH = {"axes": {"names": ["a"], "sizes": [2]}, "device_count": 2}


def tree_json(*rows, meshes=(MESH,), **fields):
    """Return the JSON of a tree with these rows, each with some fields of ``ROW`` replaced."""
    report = {"name": None, "type_name": "dict", "rows": [{**ROW, **row} for row in rows], "meshes": meshes}
    return json.dumps({"report": "TreeReport", "schema_version": 3, **report, **fields})


def diff_json(**fields):
    report = {"before_name": None, "after_name": None, **fields}
    return json.dumps({"report": "TreeDiff", "schema_version": 3, **report})


def reshard_json(*rows, **fields):
    row = {"path": "w", "shape": [4], "dtype": "int8", "before": None, "after": None}
    row = {**row, "device_nbytes": 1, "nbytes": 2, "process_nbytes": None}
    report = {"name": None, "rows": [{**row, **changed} for changed in rows], **fields}
    return json.dumps({"report": "ReshardReport", "schema_version": 3, **report})


UNEVEN = {"axis": 0, "shape": [4], "names": ["a"], "count": 3, "fitting": [], "fitting_count": 1}

PART = {
    "process": 0,
    "devices": [0],
    "shard_count": 1,
    "element_count": 5,
    "index": None,
    "nbytes": 1,
    "device_nbytes": 1,
}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected the JSON of a report"),
        (
            "[1]",
            "must name one of .*ArrayReport, CheckReport, ",
        ),
        (good(report="Nothing"), "must name one of .*, got 'Nothing'"),
        (
            good(schema_version=99),
            "schema_version 99 cannot be read, only 3: use the version",
        ),
        (good(shape="x"), r"not a valid ShardingLayout: .*\$\.shape"),
        (good(device_ids=[[0], [1, 2]]), "not a valid ShardingLayout"),
        (good(device_ids=[0, 1]), "not a valid ShardingLayout: .*does not fit"),
        ("[" * 200_000, "expected the JSON of a report"),
        (good(schema_version=True), "schema_version True cannot be read"),
        (good(device_ids=[[0], [1.5]]), "device ids must be integers"),
        (good(device_ids=[["0"], ["1"]]), "device ids must be integers"),
        (good(device_ids=[[0], [2**70]]), "device ids must be integers"),
        (good(device_ids=[*"ab" * 10**4, "x" * 10**7]), "device ids must be integers"),
        (good(shape=[-4]), "an axis of negative length"),
        (json.dumps({key: GOOD[key] for key in ("report", "schema_version")}), "missing required field"),
        (array_json(shape=[]).replace("[]", f"[{'9' * 5000}]", 1), "an integer is out of bounds$"),
        (array_json(shape=[10**300]), r"Expected `int` <= 9223372036854775807 - at `\$\.shape\[0\]`"),
        (good(later=0).replace("0}", "1" * 5000 + "}"), "expected the JSON of a report"),
        (good(later=float("nan")), "NaN is not a finite number"),
        (good(later=1.0).replace("1.0", "1e999"), "1e999 is not a finite number"),
        (good(processes=[[0, [1]]]), "devices that belong to no process"),
        (good(platform=3, report="\x1b[31m"), r"got '\\x1b\[31m'"),
        (axes_json(2), "2 names, 1 sizes and 0 types"),
        (axes_json(2, names="a", types=["Auto"] * 2), "1 sizes and 2 types"),
        (axes_json(0, names="a"), "a mesh of sizes"),
        (axes_json(*[2] * 1000, names=map(str, range(1000))), "a mesh of sizes"),
        (axes_json(2, 2, names="aa"), "two axes of the same name"),
        (
            array_json(
                sharding={"type": "x", "spec": {"axes": [["b"]]}, "mesh": {"names": ["a"], "sizes": [2]}}
            ),
            "a spec with 'b' over a mesh",
        ),
        (array_json(local_part=PART), "a local part larger than the array"),
        (
            array_json(local_part=PART, layout={"shape": [4], "device_ids": [[0], [1]]}),
            "larger than the array",
        ),
        (array_json(kind="\x1b[31m"), r"Invalid enum value '\\x1b"),
        (
            json.dumps(
                {
                    "report": "MeshReport",
                    "schema_version": 3,
                    "axes": {"names": ["a"], "sizes": [4]},
                    "layout": {"shape": [2], "device_ids": [[0], [1]]},
                }
            ),
            "a mesh of sizes",
        ),
        (tree_json({"mesh": 1}), "w is on mesh 1 of 1 meshes"),
        (tree_json({"mesh": -1}), "w is on mesh -1 of 1 meshes"),
        (tree_json({"mesh": 0, "spec": {"axes": [["b"]]}}), r"w: a spec with 'b' over a mesh with \('a',\)"),
        (tree_json({"mesh": 0, "spec": {"axes": [], "unreduced": ["b"]}}), "w: a spec with 'b'"),
        (tree_json({"mesh": 0, "replicas": 3}), "w: 3 replicas on 2 devices"),
        (
            tree_json({"spec": {"axes": [[]], "unconstrained": [2**29]}}),
            "a spec of 1 entries that leaves axis 536870912 to XLA",
        ),
        (tree_json({"spec": {"axes": [[], []]}}), r"w: a spec with 2 entries for an array of shape \(4,\)"),
        (tree_json({"shape": [4, 4], "spec": {"axes": [["a"], ["a"]]}}), "w: a spec with the same mesh axis"),
        (tree_json({"shard_shape": [4, 4]}), r"w: shards of shape \(4, 4\) of an array of shape \(4,\)"),
        (tree_json({"shard_shape": ["n"]}), r"w: shards of shape \('n',\) of an array of shape \(4,\)"),
        (
            tree_json({"uneven": [{**UNEVEN, "shape": [5]}]}),
            r"w: an uneven axis of another shape than \(4,\)",
        ),
        (tree_json({"batched_axes": [1]}), r"w: a batched axis that shape \(4,\) does not have"),
        (tree_json({}, {}), "2 leaves have the path 'w'"),
        (tree_json({"same_as": "v"}), "w is the same as 'v', which is not an earlier leaf"),
        (tree_json({"same_as": "w"}), "w is the same as 'w', which is not an earlier leaf"),
        (tree_json({"shape": [-1]}), r"Expected `int` >= 0 - at `\$\.rows\[0\]\.shape"),
        (tree_json({"nbytes": -1}), r"Expected `int` >= 0 - at `\$\.rows\[0\]\.nbytes"),
        (tree_json({"replicas": 0}), r"Expected `int` >= 1 - at `\$\.rows\[0\]\.replicas"),
        (tree_json(avoidable_nbytes=1), "avoidable_nbytes is more than fullest_device_nbytes"),
        (tree_json(meshes=[{**MESH, "device_count": 3}]), r"a mesh of sizes \(2,\) with 3 devices"),
        (
            tree_json(meshes=[{"axes": None, "device_count": 2, "devices": [1, 1]}]),
            "1 device ids for 2 devices",
        ),
        (
            tree_json(meshes=[{"axes": None, "device_count": 2**21}]),
            "2097152 devices exceed the limit of 1048576",
        ),
        (tree_json({"uneven": [{**UNEVEN, "axis": 1}]}), r"an uneven axis 1 of shape \(4,\)"),
        (tree_json({"uneven": [{**UNEVEN, "count": 0}]}), "an uneven axis 0 of shape"),
        (tree_json({"path": "\x1b", "mesh": 2}), r"valid TreeReport: \\x1b is on mesh 2"),
        (diff_json(added=[{**ROW, "mesh": 0}]), "w is on mesh 0 of 0 meshes"),
        (diff_json(removed=[ROW, ROW]), "2 leaves have the path 'w'"),
        (changed(DIFFERENCE, "figures", 0, "after", to=-1), r"`int` >= 0 - at `\$\.figures\[0\]\.after"),
        (reshard_json({"process_nbytes": -1}), r"at `\$\.rows\[0\]\.process_nbytes"),
        (changed(STEP, "collectives", 0, "sent_nbytes", to=-1), r"`int` >= 0 - at `\$\.collectives\[0\]"),
        (changed(STEP, "collectives", 0, "count", to=0), r"`int` >= 1 - at `\$\.collectives\[0\]\.count"),
        (changed(STEP, "collectives", 0, "shape", to=[-1]), r"`int` >= 0 - at `\$\.collectives\[0\]\.shape"),
        (changed(STEP, "device_count", to=2**63), r"`int` <= 9223372036854775807 - at `\$\.device_count"),
        (changed(STEP, "arguments", 0, "path", to="x"), "2 arguments have the path 'x'"),
        (changed(STEP, "outputs", 0, "path", to="outputs/wo"), "2 outputs have the path 'outputs/wo'"),
        (changed(SCAN, "memory", "peak_nbytes", to=-1), r"`int` >= 0 - at `\$\.memory\.peak_nbytes"),
    ],
)
def test_invalid_json_is_rejected_with_the_position_of_the_problem(text, problem):
    with pytest.raises(ReportFormatError, match=problem):
        from_json(text)


def test_a_contradiction_cannot_be_made_either():
    value = STEP.arguments[0]
    with pytest.raises(ValueError, match=f"2 arguments have the path {value.path!r}"):
        replace(STEP, arguments=(value, value))


def test_the_schema_in_the_docs_is_current():
    path = Path(__file__).parents[4] / "docs" / "schema.json"
    assert json.loads(path.read_text()) == json_schema(), "write json_schema() to docs/schema.json"
