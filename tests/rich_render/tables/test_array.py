"""Panels of arrays and other values."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import (
    array_report,
    config,
    label_of,
    planned_report,
    sharding_info,
    simple_array_info,
    to_text,
)
from jax_array_info.engine.render import render, text_of
from tests.arrays import mesh_of, sharded


def lines(report, **options):
    """Return the lines of a panel without its border."""
    return [line[1:-1].strip() for line in to_text(report, **options).splitlines()[1:-1]]


def lines_of(value):
    return lines(array_report(value))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ["None"]),
        (123, ["type: int", "value: 123"]),
        ("text", ["type: str", "value: text"]),
        (True, ["type: bool", "value: True"]),
        (np.float32(1.5), ["type: float32", "value: 1.5"]),
        ([1, 2, 3], ["type: list", "len: 3"]),
        (
            {"w": np.zeros((4, 4), np.float32), "n": 1},
            ["type: dict", "len: 2", "['n']: int", "['w']: float32[4,4]"],
        ),
        ((1, None), ["type: tuple", "len: 2", "[0]: int", "[1]: None"]),
        (np.zeros((2, 3)), ["shape: (2, 3)", "dtype: float64", "size: 48.0 B", "numpy array", "on the host"]),
        (np.array(3), ["shape: ()", "dtype: int64", "value: 3", "size: 8.0 B", "numpy array", "on the host"]),
        (
            jax.ShapeDtypeStruct((2,), jnp.float32),
            ["shape: (2,)", "dtype: float32", "size: 8.0 B", "ShapeDtypeStruct"],
        ),
    ],
)
def test_panels_of_values_other_than_jax_arrays_show_their_type(value, expected):
    assert lines_of(value) == expected


@pytest.mark.needs_devices(8)
def test_arrays_on_several_devices():
    mesh = mesh_of((4, 2), ("a", "b"), jax.devices()[::-1][:8])
    assert lines_of(sharded((8, 8), mesh, "a")) == [
        "shape: (8, 8)",
        "dtype: float32",
        "size: 256.0 B",
        "per device: 64.0 B, replicated over b (2 replicas)",
        "NamedSharding: P('a',)",
        f"axis 0 is sharded: CPU {jax.devices()[7].id} contains 0:2 (1/4)",
        "Total size: 8",
    ]
    assert lines_of(sharded((8,), mesh)) == [
        "shape: (8,)",
        "dtype: float32",
        "size: 32.0 B",
        "per device: 32.0 B, replicated over a, b (8 replicas)",
        "NamedSharding: P()",
    ]
    three = sharded((2, 4, 6), mesh_of((2, 2, 2), ("a", "b", "c")), "a", "b", "c")
    assert [line for line in lines_of(three) if line.startswith("axis")] == [
        f"axis {axis} is sharded: CPU 0 contains 0:{axis + 1} (1/2)" for axis in range(3)
    ]
    assert "not sharded" in lines_of(jnp.zeros(3))
    assert lines_of(jax.device_put(jnp.zeros(3), jax.devices()[2]))[3] == "device: cpu:2"
    assert lines_of(sharded((3,), mesh_of((1,), ("a",)), "a"))[-2:] == [
        "not sharded",
        "NamedSharding: P('a',)",
    ]


@pytest.mark.needs_devices(8)
def test_replicas_are_printed_only_if_the_spec_leaves_no_axis_to_xla():
    mesh = mesh_of((4, 2), ("a", "b"))

    def struct(*spec):
        return jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    assert lines_of(struct(None, "a"))[2:4] == [
        "size: 256.0 B",
        "per device: 64.0 B, replicated over b (2 replicas)",
    ]
    for spec in [("b", "a"), (P.UNCONSTRAINED, "a"), (("a", "b"),)]:
        assert not any("replica" in line for line in lines_of(struct(*spec)))


@pytest.mark.parametrize("name", ["params[layer1]", "[/oops]", "[bold]", r"\[red]", "größe"])
def test_names_are_printed_as_written(name, capsys):
    sharding_info(3, name)
    assert f" {name} " in capsys.readouterr().out.splitlines()[0]


def test_a_name_too_long_for_the_title_is_printed_in_full():
    name = "".join(f"layer{number}." for number in range(30))
    text = to_text(array_report(3, name), width=40)
    assert max(map(len, text.splitlines())) <= 40
    assert name in re.sub(r"[│\s]", "", text)


def test_a_layout_is_drawn_on_a_console_narrower_than_the_narrowest_picture():
    report = planned_report((8,), {"x": 2}, ("x",))
    drawn = text_of(render(report, width=80, is_drawn=True), width=10)
    assert max(map(len, drawn.splitlines())) <= 10
    assert "device 1" in "".join(drawn.split("\n"))


def test_a_name_becomes_a_label_unless_the_setting_is_off(capsys):
    array, other = jnp.zeros(3) + 1, jnp.zeros(3) + 2
    sharding_info(array, "first")
    simple_array_info(other)
    assert (label_of(array), label_of(other)) == ("first", None)
    simple_array_info(array)
    assert label_of(array) == "first", "a panel without a name keeps the label"
    config.assign_labels_to_arrays = False
    try:
        simple_array_info(other, "second")
    finally:
        config.assign_labels_to_arrays = True
    assert label_of(other) is None
    assert len(capsys.readouterr().out.splitlines()) > 8


def test_a_dumb_terminal_keeps_the_given_width(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    text = to_text(array_report({"a" * 60: 1}), width=40, color=True)
    assert max(map(len, re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines())) <= 40


def test_text_has_colors_only_with_color_true():
    mesh = mesh_of((len(jax.devices()),), ("a",))
    struct = jax.ShapeDtypeStruct((64, 3), jnp.float32, sharding=NamedSharding(mesh, P("a")))
    report = array_report(struct)
    assert "\x1b[" not in to_text(report)
    colored = to_text(report, color=True)
    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == to_text(report)
    if len(jax.devices()) > 1:
        assert "\x1b[1;32m64" in colored, "a sharded axis has its own color"
    assert "\x1b[1;35m3" in colored


def test_a_mesh_is_drawn_as_print_mesh_does(capsys):
    from jax_array_info import print_mesh

    mesh = mesh_of((len(jax.devices()),), ("a",))
    print_mesh(mesh)
    drawn = capsys.readouterr().out
    sharding_info(mesh)
    assert capsys.readouterr().out == drawn


def test_a_very_long_axis_length_is_clipped():
    report = replace(array_report(np.zeros(3)), shape=("n" * 10**6,))
    assert len("".join(lines(report, width=80))) < 3000


def test_the_middle_of_a_very_long_name_is_left_out():
    """The name is clipped before Rich measures it, which would take seconds for 10 MB."""
    long = "first" + "n" * 10**7 + "last"
    for report in [array_report(np.zeros(3), long), array_report({long: np.zeros(3)})]:
        text = "".join(lines(report, width=80))
        assert len(text) < 3000
        assert all(part in text for part in ("first", "...", "last"))
    assert "n" * 1000 in "".join(lines(array_report(np.zeros(3), "n" * 1000)))
