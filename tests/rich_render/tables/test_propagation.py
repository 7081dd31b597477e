"""Text for propagations: findings, the letters of operands, and the values in 80 columns."""

from dataclasses import replace

import pytest

from jax_array_info import config, to_text
from jax_array_info.engine.render import render, text_of
from jax_array_info.reports import AxisOrigin, SourceLine
from jax_array_info_core.layouts.spec import MeshAxes
from tests.sample_propagations import FROM_X, LOSS, WHY, line, spec

pytestmark = pytest.mark.oldest_and_newest

TEXT = """\
3 findings: JAI301 conflicting-shardings, JAI302 lost-mesh-axis, JAI303
  replicated-value
step, lowered for TPU, 8 devices: data=2, fsdp=2, tensor=2
── JAI301 conflicting-shardings: smallest operands, 512.0 KiB per device ───────
2 operations have operands that exclude each other, so that data moves: one
operand is gathered, or the result is summed over devices.
Shard one operand over another mesh axis, or constrain it before the operation.
  512.0 KiB  data: dot_general ik,kj->ij ×2  train.py:9 loss
    x 'i' over data (argument), P('data',)
    wi 'k' over data (argument), P('data', 'tensor')
    result P('data', 'tensor')
── JAI302 lost-mesh-axis: 512.0 KiB per device ─────────────────────────────────
1 result lacks a mesh axis of an operand, so that each device holds more.
In the constraint, write the mesh axis, or P.UNCONSTRAINED to leave the
dimension to XLA: None replicates it.
  512.0 KiB  data: left out by the constraint on tanh float32[512,1024]
               train.py:11 loss (forward)
    x P('data',) became P(None, 'tensor')
    the requested sharding leaves it out
── JAI303 replicated-value: 512.0 KiB per device ───────────────────────────────
1 value is replicated over mesh axes that divide a dimension.
In the constraint, write the mesh axis, or P.UNCONSTRAINED to leave the
dimension to XLA: None replicates it.
  512.0 KiB  float32[512,1024]  train.py:11 loss
    P(None, 'tensor'), replicated over data: tanh
    data: left out by the constraint on tanh at train.py:11:
      the requested sharding leaves it out
nothing propagates through ?
                                 values
┏━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┓
┃ per device ┃ value                 ┃ line, op and origin             ┃
┡━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┩
│  512.0 KiB │ float32[512,1024]     │ train.py:9 dot_general          │
│            │   P('data', 'tensor') │   data: argument x              │
│            │                       │   tensor: constraint train.py:8 │
└────────────┴───────────────────────┴─────────────────────────────────┘
                   not shown at this width: function"""


def shown(report, width=80):
    """Return the lines of a report, without spaces at their ends."""
    return [text.rstrip() for text in to_text(report, width=width).splitlines()]


def cells(report, width=80):
    """Return the rows of the table of values, each as its lines in a cell."""
    rows = [text for text in shown(report, width) if text.startswith("│")]
    return [[cell.strip() for cell in text.strip("│").split("│")] for text in rows]


def with_values(*values):
    """Return a report with some values alone."""
    return replace(WHY, values=values, conflicts=(), lost=(), replicated=())


def value(*axes, **fields):
    """Return a value with the origins of its mesh axes."""
    return replace(WHY.values[0], axes=axes, **fields)


def argument(mesh_axis, path):
    """Return an argument as the origin of a mesh axis."""
    return AxisOrigin(mesh_axis=mesh_axis, kind="argument", path=path)


def test_a_report_without_findings_has_no_empty_line():
    report = replace(with_values(*WHY.values), unread=())
    assert not shown(report)[2].strip("values ")
    assert "" not in shown(report)


def test_titles_are_whole_in_narrow_consoles():
    text = " ".join(to_text(WHY, width=40).split())
    assert "JAI301 conflicting-shardings: smallest operands, 512.0 KiB per device" in text


def test_the_function_is_shown_where_it_fits_80_columns():
    [row] = [row for row in cells(with_values(value(argument("data", "x")))) if row[0]]
    assert row == ["512.0 KiB", "float32[512,1024]", "train.py:9 dot_general", "loss"]


def test_a_value_in_a_shard_map_has_the_shape_of_a_shard():
    axes = MeshAxes(("data", "model"), (4, 2))
    for facts, words in (
        ({"manual_axes": axes}, "manual: 1 of 8 shards over ('data','model')"),
        (
            {"manual_axes": axes, "invariant_axes": ("data",)},
            "manual: 1 of 2 shards over ('model'), 4 replicas",
        ),
        ({"manual_axes": axes, "invariant_axes": None}, "manual over data=4, model=2"),
        ({}, "P() in shard_map"),  # of an older report
    ):
        inside = value(spec=spec(), in_shard_map=True, **facts)
        assert words in to_text(with_values(inside), width=160)


def test_a_wide_console_has_a_line_for_each_value_and_all_columns():
    [row] = cells(WHY, 160)
    assert row == [
        "512.0 KiB",
        "float32[512,1024]",
        "P('data', 'tensor')",
        "data: argument x; tensor: constraint train.py:8",
        "train.py:9",
        "dot_general",
        "loss",
    ]
    assert "not shown" not in to_text(WHY, width=160)


@pytest.mark.parametrize(("width", "left_out"), [(150, "function"), (80, "function"), (50, "function, op")])
def test_the_function_is_left_out_first_and_then_the_operation(width, left_out):
    text = " ".join(to_text(WHY, width=width).split())
    assert text.endswith(f"not shown at this width: {left_out}") == (width < 150)


def test_long_origins_lose_the_begin_of_their_path():
    path = "params/encoder/layers/attention/query/kernel"
    rows = cells(with_values(value(argument("data", path))))
    assert [row[-1] for row in rows] == ["train.py:9 dot_general", "data: ⋯/layers/attention/query/kernel"]
    assert path in to_text(with_values(value(argument("data", path))), width=140)


def test_alike_values_of_a_line_are_one_row_with_their_operations():
    values = [
        value(argument("data", f"layers/{number}/w"), op=op, phase=phase)
        for number in range(3)
        for op, phase in (("sub", "forward"), ("exp", "forward"), ("mul", "backward"))
    ]
    assert cells(with_values(*values)) == [
        ["512.0 KiB each", "float32[512,1024] ×9", "train.py:9 sub forward and 2 more"],
        ["", "P('data', 'tensor')", "data: argument layers/0-2/w"],
    ]
    wide = cells(with_values(*values), 180)[0]
    assert wide[5] == "sub forward, exp forward, mul backward"


def test_mesh_axes_of_one_origin_are_together():
    origins = [argument("data", "h"), argument("tensor", "h")]
    assert cells(with_values(value(*origins)))[-1][2] == "data, tensor: argument h"


def test_an_output_is_named_once():
    axis = AxisOrigin(mesh_axis="data", kind="output", path="outputs/wi")
    assert str(axis) == "outputs/wi"
    assert cells(with_values(value(axis)))[-1][2] == "data: outputs/wi"


def test_callers_are_shown_where_the_settings_ask_for_them(monkeypatch):
    origin = replace(line(9), callers=(SourceLine(file="a.py", line=3, function="step"),))
    report = with_values(value(FROM_X, origin=origin))
    assert "a.py:3" not in to_text(report)
    monkeypatch.setattr(config, "callers", 2)
    assert "from a.py:3 step" in " ".join(to_text(report).split())


@pytest.mark.parametrize(
    ("fields", "head", "why"),
    [
        ({"constraint": line(8)}, "left out by the constraint on tanh", "constraint train.py:8"),
        ({"op": "sharding_constraint"}, "left out by the constraint", "the requested sharding leaves it out"),
        ({"op": "return"}, "left out by the requested output", "the requested sharding leaves it out"),
        ({"reason": "uneven"}, "lost in tanh", "the dimension does not divide by it"),
        (
            {"reason": "uneven", "size": 15, "divisor": MeshAxes(("data", "tensor"), (4, 2))},
            "lost in tanh",
            "15 does not divide by data=4, tensor=2",
        ),
        ({"reason": "conflict"}, "lost in tanh", "another operand is sharded in another way"),
    ],
)
def test_a_loss_has_its_reason(fields, head, why):
    lines = shown(replace(WHY, lost=(replace(LOSS, phase=None, **fields),), conflicts=(), replicated=()), 100)
    assert f"  512.0 KiB  data: {head} float32[512,1024]  train.py:11 loss" in lines
    assert f"    {why}" in lines


def test_an_operand_of_another_value_has_the_origin_of_its_mesh_axis():
    [conflict] = WHY.conflicts
    operands = (replace(conflict.operands[0], name="tanh of train.py:8"), conflict.operands[1])
    lines = shown(replace(WHY, conflicts=(replace(conflict, operands=operands),)))
    assert "    tanh of train.py:8 'i' over data (argument x), P('data',)" in lines


def test_a_dimension_that_is_needed_whole_is_named():
    [conflict] = WHY.conflicts
    lines = shown(replace(WHY, conflicts=(replace(conflict, operands=conflict.operands[:1]),)))
    assert "    x needs all of 'i' over data (argument), P('data',)" in lines


def test_conflicts_that_differ_in_indices_are_one():
    [conflict] = WHY.conflicts
    first, second = conflict.operands
    conflicts = tuple(
        replace(conflict, operands=(first, replace(second, name=f"layers/{number}/wi")))
        for number in range(4)
    )
    lines = shown(replace(WHY, conflicts=conflicts))
    assert "  2.0 MiB  data: dot_general ik,kj->ij ×8  train.py:9 loss" in lines
    assert "    layers/0-3/wi 'k' over data (argument wi), P('data', 'tensor')" in lines


def test_replicated_values_of_several_operations_are_one():
    [found] = WHY.replicated
    rows = tuple(replace(found, op=op) for op in ("sub", "exp", "mul", "div", "neg"))
    lines = shown(replace(WHY, replicated=rows))
    assert "  2.5 MiB  float32[512,1024] ×5  train.py:11 loss" in lines
    assert "    P(None, 'tensor'), replicated over data: sub, exp, mul, div and 1 more" in lines


def test_a_line_alone_has_the_way_of_each_mesh_axis_and_no_table():
    via = (SourceLine(file="train.py", line=10, function="loss"),)
    report = with_values(value(replace(FROM_X, via=via), spec=spec("data"), phase="forward", count=2))
    text = text_of(render(report, with_ways=True))
    lines = [one.rstrip() for one in text.splitlines()]
    assert "  512.0 KiB each  dot_general  float32[512,1024] ×2 P('data',)  train.py:9 loss" in " ".join(
        lines
    )
    assert "    data: from argument x by way of train.py:10" in lines
    assert "values" not in lines


def test_ascii_consoles_have_the_same_table():
    path = "params/encoder/layers/attention/query/kernel"
    text = text_of(render(with_values(value(argument("data", path)))), encoding="ascii")
    assert "data: .../attention/query/kernel" in text
