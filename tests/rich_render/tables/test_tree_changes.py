"""Tables of the differences of trees, and of the traffic of a resharding."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import (
    print_reshard,
    print_tree_diff,
    reshard_report,
    to_text,
    tree_diff_report,
    tree_report,
)
from jax_array_info.engine.render import render, text_of
from tests.arrays import FakeDevice

pytestmark = pytest.mark.oldest_and_newest


MESH = {"fsdp": 8, "context": 1, "tensor": 1}


def planned(specs, name=None, mesh=None, **dtypes):
    tree = {path: jax.ShapeDtypeStruct((1024, 512), dtypes.get(path, jnp.float32)) for path in specs}
    return tree_report({"params": tree}, name, mesh=mesh or {"fsdp": 8}, specs={"params": specs})


def lines(text):
    return [line.rstrip() for line in text.splitlines()]


def test_removed_added_and_changed_leaves_are_listed_with_both_trees_below():
    before = planned({"b": P(), "old": P("fsdp"), "same": P(), "w": P("fsdp")}, "run-41")
    after = planned({"b": P(None), "new": P(), "same": P(), "w": P()}, "run-42", {"fsdp": 16}, b=jnp.bfloat16)
    expected = """
4 of 5 leaves differ: 1 removed, 1 added, 2 changed; values are not compared
                differences from run-41 to run-42
┏━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━┓
┃ leaf       ┃ change  ┃ before            ┃ after              ┃
┡━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━┩
│ params/old │ removed │ float32[1024,512] │                    │
│            │         │ P('fsdp',)        │                    │
│            │         │ 256.0 KiB         │                    │
│ params/new │ added   │                   │ float32[1024,512]  │
│            │         │                   │ P()                │
│            │         │                   │ 2.0 MiB            │
│ params/b   │ dtype   │ float32[1024,512] │ bfloat16[1024,512] │
│            │         │ 2.0 MiB           │ 1.0 MiB            │
│ params/w   │ spec    │ P('fsdp',)        │ P()                │
│            │         │ 256.0 KiB         │ 2.0 MiB            │
└────────────┴─────────┴───────────────────┴────────────────────┘
               Sizes in the table are per device.
shape, dtype, spec, memory kind: 1 leaf removed, 1 added, 2 changed, 1 equal
mesh before: fsdp=8
mesh after: fsdp=16
per device: 4.5 MiB before, 7.0 MiB after (2.5 MiB more)
global size: 8.0 MiB before, 7.0 MiB after (1.0 MiB less)
"""
    assert lines(to_text(tree_diff_report(before, after))) == expected.strip("\n").splitlines()


def test_specs_have_no_mesh_axes_of_size_1():
    """The difference of two MaxText dumps is an axis, not the list of the axes that both leave at 1."""
    before = planned({"w": P(("fsdp", "context"), ("tensor", "expert"))}, mesh=MESH | {"expert": 1})
    after = planned({"w": P(("fsdp", "context"), ("tensor", "expert"))}, mesh=MESH | {"expert": 2})
    moved = planned({"w": P("tensor", ("expert", "fsdp"))}, mesh=MESH | {"expert": 2})
    assert tree_diff_report(before, after).is_empty
    assert "│ params/w │ spec   │ P('fsdp',) │ P(None, ('expert', 'fsdp')) │" in to_text(
        tree_diff_report(before, moved)
    )


def test_equal_trees_have_no_table():
    tree = planned({"w": P("fsdp")})
    assert to_text(tree_diff_report(tree, tree)).splitlines() == [
        "no differences in shape, dtype, spec or memory kind; values are not compared",
        "shape, dtype, spec, memory kind: 1 leaf equal",
        "per device: 256.0 KiB before and after",
        "global size: 2.0 MiB before and after",
    ]


def test_zeros_and_ones_are_not_called_equal_in_value():
    text = to_text(tree_diff_report({"w": jnp.zeros(4)}, {"w": jnp.ones(4)}))
    assert text.startswith("no differences in shape, dtype, spec or memory kind; values are not compared\n")


def test_leaves_without_a_spec_say_what_they_are():
    array = jnp.zeros(4)
    text = to_text(
        tree_diff_report({"a": np.zeros(4), "b": array, "c": array}, {"a": array, "b": array.astype("int8")})
    )
    assert "on the host" in text
    assert text.count("SingleDeviceSharding") == 2  # of a and c; b has the same in both trees
    assert "no sharding" in to_text(tree_diff_report({}, {"x": jax.ShapeDtypeStruct((2,), "int8")}))


def test_shardings_without_a_spec_are_told_apart_by_shards_and_replicas():
    def in_tiles(spec):
        tree = planned({"w": spec})
        [row] = tree.rows
        return replace(tree, rows=(replace(row, spec=None, sharding="GSPMDSharding"),))

    text = to_text(tree_diff_report(in_tiles(P("fsdp")), in_tiles(P())), width=100)
    assert "│ GSPMDSharding, shards [128,512] │ GSPMDSharding, 8 replicas │" in text


def test_paths_wrap_after_slashes_and_are_never_truncated():
    key = "self_attention/query/kernel"
    tree = {"decoder": {f"layer_{'x' * 30}": {key: jax.ShapeDtypeStruct((8,), jnp.float32)}}}
    report = tree_diff_report({}, tree)
    for width in (20, 40, 60, 80, 120):
        text = to_text(report, width=width)
        cells = [line.split("│")[1].strip() for line in text.splitlines() if line.startswith("│")]
        assert "".join(cells).startswith(report.added[0].path)
        assert max(map(len, text.splitlines())) <= width
        if width == 80:
            assert [cell for cell in cells if cell] == ["decoder/", f"layer_{'x' * 30}/", f"'{key}'"]


def test_the_traffic_of_each_leaf_and_the_sums_are_listed_the_most_first():
    tree = planned({"b": P(), "v": P("fsdp"), "w": P("fsdp")}, "state")
    report = reshard_report(tree, {"params": {"b": P("fsdp"), "v": P(None, "fsdp"), "w": P()}})
    expected = """
each device receives at most 2.0 MiB, then holds up to 2.5 MiB; all 8 devices
receive 15.8 MiB
                           bytes to receive for state
┏━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━┓
┃                     ┃            ┃               ┃            ┃     sum over ┃
┃ leaf                ┃ before     ┃ after         ┃ per device ┃      devices ┃
┡━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━┩
│ params/w            │ P('fsdp',) │ P()           │    1.8 MiB │     14.0 MiB │
│   float32[1024,512] │            │               │            │              │
│ params/v            │ P('fsdp',) │ P(None,       │  224.0 KiB │      1.8 MiB │
│   float32[1024,512] │            │ 'fsdp')       │            │              │
├─────────────────────┼────────────┼───────────────┼────────────┼──────────────┤
│ all leaves          │            │               │    2.0 MiB │     15.8 MiB │
└─────────────────────┴────────────┴───────────────┴────────────┴──────────────┘
mesh: fsdp=8
between live arrays; a restore from files needs up to 2.5 MiB for each device
without traffic: 1 leaf
"""
    assert lines(to_text(report)) == expected.strip("\n").splitlines()


def test_specs_are_below_the_leaf_where_their_columns_would_break_words():
    tree = planned({"self_attention_output": P("fsdp", "tensor")}, mesh={"fsdp": 4, "tensor": 2})
    report = reshard_report(tree, P(("fsdp", "tensor"), None))
    cells = [line.split("│")[1].strip() for line in to_text(report, width=76).splitlines() if "│" in line]
    assert cells[:4] == [
        "params/self_attention_output",
        "float32[1024,512]",
        "before: P('fsdp', 'tensor')",
        "after: P(('fsdp', 'tensor'), None)",
    ]
    assert "params/self_attention_output │ P('fsdp', 'tensor') │" in to_text(report, width=160)


def test_bytes_from_other_processes_have_a_column():
    devices = np.array([FakeDevice(number, number // 2) for number in range(4)])
    sharding = NamedSharding(Mesh(devices, ("x",)), P("x"))
    tree = {"w": jax.ShapeDtypeStruct((1024,), jnp.float32, sharding=sharding)}
    expected = """
each device receives at most 3.0 KiB, then holds up to 4.0 KiB; all 4 devices
receive 12.0 KiB
                                bytes to receive
┏━━━━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━┓
┃                 ┃         ┃       ┃            ┃     sum over ┃        other ┃
┃ leaf            ┃ before  ┃ after ┃ per device ┃      devices ┃    processes ┃
┡━━━━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━┩
│ w               │ P('x',) │ P()   │    3.0 KiB │     12.0 KiB │      8.0 KiB │
│   float32[1024] │         │       │            │              │              │
├─────────────────┼─────────┼───────┼────────────┼──────────────┼──────────────┤
│ all leaves      │         │       │    3.0 KiB │     12.0 KiB │      8.0 KiB │
└─────────────────┴─────────┴───────┴────────────┴──────────────┴──────────────┘
mesh: x=4
between live arrays; a restore from files needs up to 4.0 KiB for each device
"""
    assert lines(to_text(reshard_report(tree, P()))) == expected.strip("\n").splitlines()
    [one_process] = jax.local_devices()[:1]
    host = reshard_report({"w": np.zeros(4)}, jax.sharding.SingleDeviceSharding(one_process))
    assert "from other processes: none" in to_text(host)


def test_a_resharding_without_traffic_has_no_table():
    tree = planned({"w": P()})
    assert to_text(reshard_report(tree, P("fsdp"))).splitlines() == [
        "bytes to receive: none",
        "mesh: fsdp=8",
        "between live arrays; a restore from files needs up to 256.0 KiB for each device",
        "without traffic: 1 leaf",
    ]
    array = jnp.zeros(3)
    array.delete()
    assert to_text(reshard_report({"x": array}, None)).splitlines()[1:] == [
        "left out: 1 leaf, deleted, unreduced or of unknown size or sharding"
    ]


def layers(spec):
    tree = {"layers": [{"w": jax.ShapeDtypeStruct((64, 8), jnp.float32)} for _ in range(32)]}
    return tree_report(tree, mesh={"x": 8}, specs=spec)


def test_leaves_that_differ_only_in_an_index_share_a_row():
    before, after = layers(P("x")), layers(P())
    text = to_text(tree_diff_report(before, after))
    assert "│ layers/0-31/w ×32 │ spec   │ P('x',) │ P()      │" in text
    assert "│                   │        │ 8.0 KiB │ 64.0 KiB │" in text
    assert "Rows of several leaves show the sum of their bytes." in text
    text = to_text(reshard_report(before, after))
    assert "│ layers/0-31/w ×32 │ P('x',) │ P()   │   56.0 KiB │        448.0 KiB │" in text
    assert "│ all leaves        │         │       │   56.0 KiB │        448.0 KiB │" in text
    ascii_text = text_of(render(reshard_report(before, after)), encoding="ascii")
    assert "layers/0-31/w x32" in ascii_text


def test_further_leaves_share_a_row():
    specs = {name: P("fsdp") for name in "abcde"}
    before, after = planned(specs), planned(dict.fromkeys(specs, P()))
    assert "│ 3 more leaves │" in text_of(render(tree_diff_report(before, after), max_rows=2))
    text = text_of(render(reshard_report(before, after), max_rows=4))
    [rest] = [line for line in text.splitlines() if "1 more leaf" in line]
    assert rest.split("│")[5].strip() == "14.0 MiB"
    for verb, arguments in ((print_tree_diff, (before, after)), (print_reshard, (before, after))):
        with pytest.raises(ValueError, match="max_rows must be at least 0"):
            verb(*arguments, max_rows=-1)
