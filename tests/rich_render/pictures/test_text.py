"""Text pictures: literal output of small ones, properties of all."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import (
    ShardingLayout,
    array_report,
    planned_mesh_report,
    sharding_layout,
    sharding_vis,
    to_text,
)
from jax_array_info.pictures.text import array_picture, mesh_picture
from jax_array_info_core.layouts.layout import mesh_layout
from tests.arrays import mesh_of, sharded

pytestmark = pytest.mark.oldest_and_newest

TWO_AXES = mesh_layout((16, 8), {"a": 4, "b": 2}, [["a"], ["b"]], platform="cpu")


def picture(layout, **options):
    return array_picture(layout, **options).plain


def test_two_axes():
    assert picture(mesh_layout((16, 16), {"a": 2, "b": 2}, [["b"], ["a"]], platform="cpu")) == (
        "┌──────────┬──────────┐\n"
        "│          │          │\n"
        "│  CPU 0   │  CPU 2   │\n"
        "│          │          │\n"
        "│          │          │\n"
        "├──────────┼──────────┤\n"
        "│          │          │\n"
        "│  CPU 1   │  CPU 3   │\n"
        "│          │          │\n"
        "│          │          │\n"
        "└──────────┴──────────┘"
    )


def test_one_axis_is_one_line_high():
    assert picture(mesh_layout((8,), {"a": 2, "b": 2}, [["a"]], platform="gpu")) == (
        "┌───────┬───────┐\n│GPU 0,1│GPU 2,3│\n└───────┴───────┘"
    )


def test_no_axis():
    assert (
        picture(ShardingLayout(shape=(), device_ids=np.arange(4), platform="cpu"))
        == "┌───────┐\n│CPU 0-3│\n└───────┘"
    )


def test_above_two_dimensions_the_sharded_axes_are_shown_with_their_aspect_ratio():
    layout = mesh_layout((2, 64, 8), {"a": 4, "b": 2}, [[], ["a"], ["b"]], platform="cpu")
    lines = picture(layout).splitlines()
    assert lines[0] == f"{'─' * 14} showing dims [1, 2] from original shape (2, 64, 8) {'─' * 14}"
    assert len(lines) == 10, "as high as a (64, 8) array, not as a (2, 64) one"


def test_more_than_two_sharded_axes_have_a_grid_for_each_shard_of_the_leading_ones():
    layout = mesh_layout((4, 6, 8), dict.fromkeys("abc", 2), [["a"], ["b"], ["c"]], platform="cpu")
    assert picture(layout, scale=0.4) == (
        "────────────── showing dims [1, 2] from original shape (4, 6, 8) ───────────────\n"
        "────────────────────────────── axis 0 = 0:2 (1/2) ──────────────────────────────\n"
        "┌───────┬───────┐\n"
        "│ CPU 0 │ CPU 1 │\n"
        "├───────┼───────┤\n"
        "│ CPU 2 │ CPU 3 │\n"
        "└───────┴───────┘\n"
        "────────────────────────────── axis 0 = 2:4 (2/2) ──────────────────────────────\n"
        "┌───────┬───────┐\n"
        "│ CPU 4 │ CPU 5 │\n"
        "├───────┼───────┤\n"
        "│ CPU 6 │ CPU 7 │\n"
        "└───────┴───────┘"
    )


def test_slices_are_in_the_order_of_numpy():
    layout = mesh_layout((2, 3, 2, 2), dict(zip("abcd", (2, 3, 2, 2), strict=True)), [[n] for n in "abcd"])
    rules = [line.strip("─ ") for line in picture(layout).splitlines() if "axis 0 =" in line]
    assert rules == [
        f"axis 0 = {first}:{first + 1} ({first + 1}/2), axis 1 = {second}:{second + 1} ({second + 1}/3)"
        for first in range(2)
        for second in range(3)
    ]


def test_scale_makes_cells_larger():
    heights = [len(picture(TWO_AXES, scale=scale).splitlines()) for scale in (0.1, 1, 2, 4)]
    assert heights == sorted(heights)
    assert heights[0] < heights[-1]


def test_boxes_are_ascii_on_ascii_consoles():
    text = picture(mesh_layout((4, 4, 4), {"a": 2}, [["a"]], platform="cpu"), encoding="ascii")
    assert text.isascii()
    assert "+-" in text


def test_filled_cells_have_the_boxes_of_the_plain_picture():
    both = mesh_layout((8, 8), {"a": 2, "b": 2}, [["a"], ["b"]], platform="cpu")
    replicated = mesh_layout((8, 8), {"a": 2, "b": 2}, [["a"]], platform="cpu")
    for layout, colors in ((both, 4), (replicated, 2)):
        filled = array_picture(layout, use_color=True)
        assert filled.plain == picture(layout)
        assert len({str(span.style) for span in filled.spans}) == colors


def test_a_color_map_sets_the_colors():
    seen = []

    def color_map(position):
        seen.append(position)
        return (position, 0.0, 1 - position, 1.0)

    drawn = array_picture(
        mesh_layout((8,), {"a": 3}, [["a"]], platform="cpu"), use_color=True, color_map=color_map
    )
    assert seen == [0, 0.5, 1]
    assert {str(span.style) for span in drawn.spans} == {
        "#ffffff on #0000ff",
        "#ffffff on #7f007f",
        "#000000 on #ff0000",
    }


@st.composite
def parts_of_layouts(draw, most_axes):
    """Return the shape of an array of any rank with uneven axes, the sizes of a mesh, and the axes over it."""
    sizes = dict(zip("abcd", draw(st.lists(st.integers(1, 12), max_size=4)), strict=False))
    rank = draw(st.integers(0, most_axes))
    axes = [[] for _ in range(rank)]
    for name in draw(st.permutations(sorted(sizes))):
        if rank and draw(st.booleans()):
            axes[draw(st.integers(0, rank - 1))].append(name)
    return draw(st.lists(st.integers(0, 5000), min_size=rank, max_size=rank)), sizes, axes


LAYOUTS = parts_of_layouts(6).map(lambda parts: mesh_layout(*parts, platform="cpu"))


@settings(max_examples=200, deadline=None)
@given(LAYOUTS, st.booleans(), st.integers(20, 200), st.sampled_from([0.1, 1.0, 3.0]))
def test_no_line_is_too_wide_and_no_label_is_lost(layout, use_color, max_width, scale):
    text = picture(layout, use_color=use_color, max_width=max_width, scale=scale)
    assert max(map(len, text.splitlines())) <= max_width
    # On narrow terminals, the lines above and below the boxes wrap.
    assert len(text.splitlines()) <= max(40, round(40 * scale)) + (20 if max_width < 40 else 0)
    assert "CPU" in text
    assert max(line.count("⋯") for line in text.splitlines()) <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 0}, "scale must be a number above 0 and at most 1000, got 0"),
        ({"scale": float("nan")}, "scale must be a number above 0 and at most 1000, got nan"),
        ({"scale": float("inf")}, "scale must be a number above 0 and at most 1000, got inf"),
        ({"max_width": 3}, "max_width must be an integer of at least 20, got 3"),
    ],
)
def test_no_room_for_a_picture_is_an_error(options, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        picture(TWO_AXES, **options)


def test_arrays_structs_layouts_and_reports_are_drawn(capsys):
    mesh = mesh_of((len(jax.devices()),), ("a",))
    array = sharded((16, 16), mesh, "a")
    deleted = sharded((16, 16), mesh, "a")
    deleted.delete()
    struct = jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=array.sharding)
    layout = sharding_layout(array.shape, array.sharding)
    drawn = []
    for value in (array, deleted, struct, layout, array_report(array)):
        sharding_vis(value)
        drawn.append(capsys.readouterr().out)
    assert len(set(drawn)) == 1
    (lines,) = (text.splitlines()[1:] for text in set(drawn))
    assert [re.sub(r" \d+:\d+$", "", line) for line in lines] == to_text(layout).splitlines()
    sharding_vis(jax.random.split(jax.random.key(0), 4))
    sharding_vis(jnp.float32(3))
    assert capsys.readouterr().out.count("CPU 0") == 2


def test_a_report_has_the_picture_of_its_layout():
    from jax_array_info import array_picture as public

    array = jnp.zeros((4, 4))
    report = array_report(array)
    assert public(report).plain == picture(report.layout)
    with pytest.raises(
        ValueError, match="no picture: the sharding does not say which device holds each shard"
    ):
        public(array_report(3))


def test_a_traced_value_is_drawn_once_its_sharding_is_known(capsys):
    @jax.jit
    def function(x):
        sharding_vis(x)
        return x

    jax.eval_shape(function, jnp.zeros(4))
    assert capsys.readouterr().out == "sharding unknown: not compiled\n"
    function(jnp.zeros(3))
    assert capsys.readouterr().out == "   0:3\n┌───────┐\n│ CPU 0 │\n└───────┘\n"


@pytest.mark.parametrize("value", [np.zeros(3), 3, None, "x", {"w": 1}])
def test_a_value_that_is_not_an_array_is_an_error(value):
    with pytest.raises(ValueError, match="is not a jax array, got ") as raised:
        sharding_vis(value)
    assert str(raised.value).startswith(f"is not a jax array, got {type(value)}")
    assert ("use print_tree" in str(raised.value)) == isinstance(value, dict)


def test_a_struct_without_a_sharding_is_an_error():
    with pytest.raises(ValueError, match="has no sharding to draw: set one with sharding="):
        sharding_vis(jax.ShapeDtypeStruct((4,), jnp.float32))


@pytest.mark.needs_devices(8)
@pytest.mark.parametrize(
    ("shape", "spec"),
    [
        ((16, 16), ("a", "b")),
        ((16, 16), ("b", None)),
        ((64, 8), ("a", "b")),
        ((8, 24), (None, "b")),
        ((16,), (("a", "b"),)),
    ],
)
def test_sizes_are_those_of_jax(shape, spec, capsys):
    from rich.text import Text

    sharding = NamedSharding(mesh_of((4, 2), ("a", "b")), P(*spec))
    jax.debug.visualize_sharding(shape, sharding, use_color=False)
    theirs = Text.from_ansi(capsys.readouterr().out).plain.rstrip("\n")
    assert picture(sharding_layout(shape, sharding)) == theirs


def test_extreme_shapes_stay_readable():
    for shape in [(2, 100_000), (100_000, 2), (4, 4000), (1, 2**40)]:
        lines = picture(mesh_layout(shape, {"a": 1, "b": 2}, [["a"], ["b"]]), max_width=200).splitlines()
        assert max(map(len, lines)) <= 200
        assert 3 <= len(lines) <= 12
        assert sum(line.count("device") for line in lines) == 2


def test_processes_are_listed_below_the_picture():
    processes = ((0, (0, 1, 2, 3)), (3, (8, 9)))
    ids = np.array([0, 1, 2, 3, 8, 9])
    text = picture(mesh_layout((6,), {"a": 6}, [["a"]], ids, "gpu", processes))
    assert text.splitlines()[-1] == "process 0: GPU 0-3  process 3: GPU 8,9"
    many = tuple((number, (number,)) for number in range(16))
    text = picture(mesh_layout((16,), {"a": 16}, [["a"]], np.arange(16), "gpu", many))
    assert all(f"process {number}: GPU {number}" in text for number in range(16))
    many = tuple((number, (number,)) for number in range(64))
    text = picture(mesh_layout((64,), {"a": 64}, [["a"]], np.arange(64), "gpu", many))
    assert text.splitlines()[-1] == "showing 32 of 64 processes"
    assert "process 63: GPU 63" in text


@pytest.mark.parametrize("width", [20, 33, 80])
def test_wide_characters_take_two_columns(width):
    from rich.cells import cell_len

    for mesh in [{"日本語日本語日本語日本語": 2, "b": 2}, {"日本": 2, "本日": 2, "c": 2, "d": 2}]:
        text = mesh_picture(planned_mesh_report(mesh), max_width=width).plain
        assert max(map(cell_len, text.splitlines())) <= width


def test_mesh_grids_have_their_position_as_a_title():
    lines = mesh_picture(planned_mesh_report({"data": 2, "fsdp": 2, "tensor": 2})).plain.splitlines()
    assert [line.strip("─") for line in lines if " = " in line] == [" data = 0 ", " data = 1 "]


@settings(max_examples=200, deadline=None)
@given(LAYOUTS)
def test_labels_name_every_device_that_is_shown(layout):
    text = picture(layout, max_width=1000)
    assume(
        not re.search(r"showing \d+ of|\d,\s*(│|\n|$)", text)
    )  # neither thinned nor with wrapped device lists
    cells = [line.strip("│") for line in text.splitlines() if line.startswith("│")]
    if "cells show CPU ids" in text:
        labels = [cell.strip() for line in cells for cell in line.split("│")]
    else:
        labels = re.findall(r"CPU ([\d,:-]+)", text)
    named = set()
    for devices in filter(None, labels):
        for piece in devices.split(","):
            first, _, rest = piece.partition("-")
            last, _, step = rest.partition(":")
            named.update(range(int(first), int(last or first) + 1, int(step or 1)))
    assert named == set(layout.device_ids.ravel().tolist())


def test_a_mesh_picture_names_its_axes(capsys):
    from jax_array_info import print_mesh

    print_mesh({"data": 2, "model": 2})
    assert capsys.readouterr().out == (
        "mesh data=2, model=2\n"
        "─────────────────────────── data down, model across ────────────────────────────\n"
        "┌──────────┬──────────┐\n"
        "│          │          │\n"
        "│ device 0 │ device 1 │\n"
        "│          │          │\n"
        "│          │          │\n"
        "├──────────┼──────────┤\n"
        "│          │          │\n"
        "│ device 2 │ device 3 │\n"
        "│          │          │\n"
        "│          │          │\n"
        "└──────────┴──────────┘\n"
    )
    count = len(jax.devices())
    print_mesh(mesh_of((count, 1, 1), ("a", "b", "c"), jax.devices()[::-1]))
    out = capsys.readouterr().out
    assert out.startswith(f"mesh a={count}, b=1, c=1\n")
    assert all(f"CPU {device.id}" in out for device in jax.devices())


def test_a_mesh_picture_shows_the_process_of_each_device(capsys):
    from jax_array_info import print_mesh
    from tests.arrays import FakeDevice

    print_mesh(
        mesh_of((2, 2), ("data", "model"), [FakeDevice(10 * number, number % 2) for number in range(4)])
    )
    out = capsys.readouterr().out
    assert all(f"CPU {10 * number} p{number % 2}" in out for number in range(4))
    assert out.splitlines()[-1] == "process 0: CPU 0,20   process 1: CPU 10,30"
    with pytest.raises(
        ValueError,
        match="mesh must be a Mesh, an AbstractMesh or a mapping of axis names to sizes, got <class 'int'>",
    ):
        print_mesh(3)
