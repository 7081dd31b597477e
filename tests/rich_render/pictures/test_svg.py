"""SVG drawings of layouts: literal content of small ones, properties of all."""

import re
from dataclasses import replace
from itertools import pairwise

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_array_info import (
    ShardingLayout,
    array_picture,
    array_report,
    planned_mesh_report,
    planned_report,
    sharding_vis,
    spec_layout,
    to_html,
    to_svg,
    xla_report,
)
from jax_array_info.pictures import svg_plan
from jax_array_info.pictures.svg import layout_figures
from jax_array_info.svg import COLORS, GREY, svg
from jax_array_info_core.layouts.layout import mesh_layout
from tests.rich_render.pictures.test_text import parts_of_layouts
from tests.rich_render.svg.reading import SVG, cells, contrast, extent, listed, parsed, texts, words

pytestmark = pytest.mark.oldest_and_newest

TWO_AXES = planned_report(
    (1024, 2048), {"data": 4, "model": 2}, ("data", "model"), dtype="bfloat16", name="params"
)


def test_a_tooltip_has_devices_slice_and_bytes_per_device():
    assert [cell.title for cell in cells(to_svg(TWO_AXES))][:3] == [
        "device 0\n[0:256, 0:1024]\n512.0 KiB",
        "device 1\n[0:256, 1024:2048]\n512.0 KiB",
        "device 2\n[256:512, 0:1024]\n512.0 KiB",
    ]
    replicated = planned_report((8,), {"a": 2, "b": 2}, ("b",), dtype="int4")
    assert [cell.title for cell in cells(to_svg(replicated))] == [
        "device 0,2\n[0:4]\n2.0 B per device",
        "device 1,3\n[4:8]\n2.0 B per device",
    ]


def test_uneven_last_shards_have_their_own_size_and_bytes():
    report = planned_report((5, 3), {"a": 3}, ("a",), dtype="float32", uneven=True)
    drawn = cells(to_svg(report))
    assert [cell.title.split("\n", 1)[1] for cell in drawn] == [
        "[0:2, 0:3]\n24.0 B",
        "[2:4, 0:3]\n24.0 B",
        "[4:5, 0:3]\n12.0 B",
    ]
    assert drawn[2].height == pytest.approx(drawn[0].height / 2, abs=0.2)


def test_caption_axes_and_shard_bounds():
    assert words(to_svg(TWO_AXES.layout)) == [
        "(1024, 2048) in 8 shards of shape (256, 1024)",
        *(f"device {number}" for number in range(8)),
        *("0", "1024", "2048", "axis 1: 2048"),
        *("0", "256", "512", "768", "1024", "axis 0: 1024"),
    ]
    shown = words(to_svg(TWO_AXES))
    for line in (
        "(1024, 2048) bfloat16, 4.0 MiB, 512.0 KiB per device",
        "P('data', 'model') on mesh data=4, model=2",
        "mesh: data=4, model=2",
    ):
        assert line in shown
    assert "params" in shown


def test_the_aspect_ratio_is_that_of_the_array():
    width, height = extent(cells(to_svg(TWO_AXES.layout)))
    assert width / height == pytest.approx(2, rel=0.02)
    assert not [line for line in words(to_svg(TWO_AXES)) if "aspect ratio" in line]
    assert {cell.width for cell in cells(to_svg(TWO_AXES))} == {cells(to_svg(TWO_AXES))[0].width}


@pytest.mark.parametrize(
    ("shape", "note"),
    [
        ((16, 16384), "aspect ratio 1024:1, drawn as 6.16:1"),
        ((16384, 16), "aspect ratio 1:1024, drawn as 1:6.16"),
        ((2**20, 1), "aspect ratio 1:1048576, drawn as 1:7.66"),
    ],
)
def test_extreme_aspect_ratios_are_compressed_with_a_note(shape, note):
    drawing = to_svg(spec_layout(shape, {"a": 1}, (None,)))
    assert note in words(drawing)
    width, height = extent(cells(drawing))
    drawn_width, drawn_height = map(float, note.split()[-1].split(":"))
    assert width / height == pytest.approx(drawn_width / drawn_height, rel=0.02)


@pytest.mark.parametrize("shards", [1, 8, 64])
@pytest.mark.parametrize("axis", [0, 1])
def test_compressed_ratios_keep_their_order_and_transposition(shards, axis):
    def drawn_ratio(shape, axis):
        spec = tuple("a" if number == axis else None for number in (0, 1))
        width, height = extent(cells(to_svg(spec_layout(shape, {"a": shards}, spec))))
        return width / height

    ratios = []
    for length in (64, 128, 320, 384, 640, 6400, 64 * 10**4, 64 * 10**6):
        ratios.append(drawn_ratio((64, length), axis))
        assert drawn_ratio((length, 64), 1 - axis) == pytest.approx(1 / ratios[-1], rel=0.02)
    assert ratios[:3] == pytest.approx([1, 2, 5], rel=0.02)
    assert ratios == sorted(set(ratios))


def test_arrays_of_one_shape_have_one_size_in_all_drawings_of_a_document():
    specs = (("x", "y"), (None, "y"), (("x", "y"), None), (None, ("x", "y")))
    plans = [planned_report((4096, 16384), {"x": 4, "y": 8}, spec) for spec in specs]
    alone = {extent(cells(to_svg(plan))) for plan in plans}
    together = [
        extent(cells(svg(figure)))
        for figure in layout_figures([*plans, planned_mesh_report({"x": 4, "y": 8})])
    ]
    assert len(alone) > 1
    for size in together[: len(plans)]:
        assert size == pytest.approx(together[0], abs=0.5)


def test_extreme_arrays_have_room_for_their_labels():
    for shape, spec in (((16, 2**20), ("a", None)), ((2**20, 16), (None, "a"))):
        shown = words(to_svg(spec_layout(shape, {"a": 8}, spec)))
        assert {str(number) for number in range(8)} <= {line.removeprefix("device ") for line in shown}


def test_the_same_devices_have_the_same_color_and_others_do_not():
    drawn = cells(to_svg(spec_layout((4, 6, 8), {"a": 2, "b": 2}, ("b", None, "a"))))
    again = cells(to_svg(ShardingLayout(shape=(4, 4), device_ids=np.array([[[0], [1]], [[1], [0]]]))))
    assert len({cell.fill for cell in drawn}) == 4
    assert [cell.fill for cell in again] == [again[0].fill, again[1].fill, again[1].fill, again[0].fill]
    assert again[0].fill != again[1].fill


def test_a_color_map_sets_the_colors():
    layout = spec_layout((8,), {"a": 3}, ("a",), uneven=True)
    drawn = cells(to_svg(layout, color_map=lambda position: (position, 0, 1 - position, 1)))
    assert [cell.fill for cell in drawn] == ["#0000ff", "#7f007f", "#ff0000"]


def test_more_than_two_sharded_axes_have_a_grid_for_each_shard_of_the_leading_ones():
    drawing = to_svg(spec_layout((4, 6, 8), dict.fromkeys("abc", 2), ("a", "b", "c")))
    shown = words(drawing)
    assert [line for line in shown if "=" in line] == ["axis 0 = 0:2 (1/2)", "axis 0 = 2:4 (2/2)"]
    assert cells(drawing)[5].title == "device 5\n[2:4, 0:3, 4:8]"


def test_axis_titles_name_the_mesh_axes():
    assert {"axis 0: 1024 over data", "axis 1: 2048 over model"} <= set(words(to_svg(TWO_AXES)))
    mesh = {"data": 4, "model": 2}
    assert {"axis 0: 64 over data, model", "axis 1: 8"} <= set(
        words(to_svg(planned_report((64, 8), mesh, (("data", "model"),))))
    )
    report = xla_report("{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}", {"x": 4, "y": 2})
    assert "axis 0: 2 over y" in words(to_svg(report))
    facets = planned_report((4, 4, 4), dict.fromkeys("abc", 2), tuple("abc"))
    assert "axis 0 over a = 0:2 (1/2)" in words(to_svg(facets))


def test_processes_have_borders_labels_and_a_legend():
    layout = TWO_AXES.layout
    processes = tuple((process, (2 * process, 2 * process + 1)) for process in range(4))
    own = ShardingLayout(
        shape=layout.shape, device_ids=layout.device_ids, platform="cpu", processes=processes
    )
    drawing = to_svg(replace(TWO_AXES, layout=own))
    assert cells(drawing)[2].title == "CPU 2, process 1\n[256:512, 0:1024]\n512.0 KiB"
    shown = words(drawing)
    assert "CPU 2 p1" in shown
    assert any("process 3: CPU 6,7" in line for line in shown)
    black, white = (path for path in parsed(drawing).iter() if "#" in path.get("stroke", ""))
    assert (black.get("stroke"), white.get("stroke")) == ("#000", "#fff"), "visible on any color"
    assert float(black.get("stroke-width")) > float(white.get("stroke-width"))
    borders = black.get("d")
    assert borders == white.get("d")
    assert (borders.count("h"), borders.count("v")) == (6, 0), "three lines of two columns, none down"
    both = ShardingLayout(
        shape=(4,),
        device_ids=np.array([[0, 2], [1, 3]]),
        platform="cpu",
        processes=((0, (0, 1)), (1, (2, 3))),
    )
    assert cells(to_svg(both))[0].title == "CPU 0,2, processes 0,1\n[0:2]"


def test_a_mesh_has_axis_names_and_device_positions():
    drawing = to_svg(planned_mesh_report({"data": 2, "model": 3}))
    assert words(drawing)[0] == "mesh data=2, model=3"
    assert {"data: 2", "model: 3"} <= set(words(drawing))
    assert cells(drawing)[5].title == "device 5\ndata=1, model=2"


def test_mesh_grids_have_their_position_as_a_title_that_wraps_at_their_width():
    axes = {"pipeline": 4, "data": 4, "fsdp": 4, "sequence": 4, "tensor": 4, "expert": 2}
    drawing = to_svg(planned_mesh_report(axes))
    lines = [line for line in words(drawing) if " = " in line]
    assert lines[:3] == ["pipeline = 0", "data = 0, fsdp = 0", "sequence = 0"]
    drawn = cells(drawing)
    assert float(parsed(drawing).get("width")) < 1.5 * svg_plan.MOST
    tops = [cell.y for cell in drawn if cell.title.endswith("tensor=0, expert=0")]
    assert len(set(tops)) == 4, "sixteen grids in four rows, whatever stands over them"
    long = planned_mesh_report({"x" * 100: 2, "b": 2, "c": 2})
    assert float(parsed(to_svg(long)).get("width")) < svg_plan.MOST


def test_an_xla_sharding_is_explained_and_drawn():
    report = xla_report("{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}", {"x": 4, "y": 2})
    drawing = to_svg(report)
    assert "P('y',) on mesh x=4, y=2 (--spec y)" in words(drawing)
    assert [cell.title.split("\n")[0] for cell in cells(drawing)] == ["device 0,2,4,6", "device 1,3,5,7"]
    assert cells(to_svg(xla_report("{manual}"))) == []


def test_scalars_and_empty_axes_are_drawn():
    [cell] = cells(to_svg(ShardingLayout(shape=(), device_ids=np.arange(4), platform="cpu")))
    assert cell.title == "CPU 0-3\n[]"
    drawn = cells(to_svg(mesh_layout((0, 8), {"a": 2, "b": 2}, [["a"], ["b"]], platform="cpu")))
    assert [cell.title.split("\n")[0] for cell in drawn] == ["CPU 0", "CPU 1", "CPU 2", "CPU 3"]
    assert min(min(cell.width, cell.height) for cell in drawn) >= svg_plan.LEAST_CELL


@pytest.mark.parametrize("page", ["#ffffff", "#000000"])
def test_all_text_is_legible_on_white_and_on_black_pages(page):
    """Text outside the cells is grey in a file and has the page's color in a page."""
    assert contrast(GREY, page) >= 4.5
    for color in COLORS.values():
        assert contrast(color, page) >= 4.5
    assert parsed(to_svg(TWO_AXES)).get("color") == GREY


def test_labels_are_legible_on_their_cells():
    layout = spec_layout((64, 64), {"a": 8, "b": 4}, ("a", "b"))
    drawing = to_svg(layout)
    ink = {line.text: line.fill for line in texts(drawing)}
    drawn = cells(drawing)
    assert len({cell.fill for cell in drawn}) == 32
    for cell in drawn:
        assert contrast(ink[cell.title.split("\n")[0]], cell.fill) >= 4.5


@pytest.mark.parametrize("picture", [to_svg, to_html])
def test_a_drawing_has_an_accessible_title(picture):
    assert 'aria-label="params: (1024, 2048) bfloat16, 4.0 MiB, 512.0 KiB per device P(' in picture(TWO_AXES)
    assert 'aria-label="mesh a=4"' in picture(planned_mesh_report({"a": 4}))


@pytest.mark.parametrize("picture", [to_svg, to_html])
def test_a_drawing_has_no_links_scripts_styles_or_ids(picture):
    drawing = (
        picture(array_report({"w": np.zeros(3)})) + picture(TWO_AXES) + picture(planned_mesh_report({"a": 4}))
    )
    for word in ("href", "url(", "<script", "<style", "@import", " id=", " class=", "javascript", "onload"):
        assert word not in drawing
    assert set(re.findall(r"\w+://[^\"' ]+", drawing)) == {"http://www.w3.org/2000/svg"}, (
        "a namespace, never loaded"
    )


@pytest.mark.parametrize("scale", [0, -1, float("nan"), float("inf"), 11])
def test_a_scale_out_of_range_is_an_error(scale):
    with pytest.raises(ValueError, match=r"scale must be a number from 0\.1 to 10, got "):
        to_svg(TWO_AXES, scale=scale)


@pytest.mark.parametrize(
    ("option", "error", "message"),
    [
        ({"scale": "1"}, TypeError, "scale must be a number from 0.1 to 10, got '1'"),
        ({"width": 0}, ValueError, "width must be a number of characters, at least 1, got 0"),
        ({"width": 7.5}, TypeError, "width must be a number of characters, at least 1, got 7.5"),
        ({"color_map": "viridis"}, TypeError, "color_map must be a function that returns red, "),
    ],
)
def test_invalid_options_are_errors(option, error, message):
    with pytest.raises(error, match=re.escape(message)):
        to_html(TWO_AXES, **option)


@pytest.mark.parametrize(
    "color", [(255, 128, 0), (-1, 0, 0), "red", "#ff0000", (float("nan"), 0, 0), (1, 0), None, 0.5]
)
def test_a_color_map_that_does_not_return_colors_is_an_error(color):
    must = "color_map must return red, green and blue from 0 to 1, like matplotlib's colormaps"
    with pytest.raises(ValueError, match=re.escape(f"{must}, got {color!r} for 0.0")):
        to_svg(TWO_AXES, color_map=lambda at: color)
    for in_color in (True, False):
        with pytest.raises(ValueError, match="color_map must return"):
            sharding_vis(TWO_AXES, use_color=in_color, color_map=lambda at: color)
    with pytest.raises(ValueError, match="color_map must return"):
        array_picture(TWO_AXES, use_color=True, color_map=lambda at: color)


def test_a_color_map_may_return_numpy_arrays_with_rounding_errors():
    drawn = cells(to_svg(TWO_AXES, color_map=lambda at: np.array([1 + 1e-12, -1e-17, at, 1])))
    assert (drawn[0].fill, drawn[-1].fill) == ("#ff0000", "#ff00ff")


def test_a_color_map_is_not_called_while_jax_traces():
    called = []

    def inspected(x):
        sharding_vis(x, color_map=lambda at: called.append(at) or (at, 0, 0))
        return x + 1

    jax.make_jaxpr(inspected)(1.0)
    assert not called


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"scale": "1"}, "scale must be a number above 0 and at most 1000, got '1'"),
        ({"max_width": "80"}, "max_width must be an integer of at least 20, got '80'"),
    ],
)
def test_sizes_of_text_pictures_must_be_numbers(option, message):
    for picture in (array_picture, sharding_vis):
        with pytest.raises(TypeError, match=f"^{message}$"):
            picture(TWO_AXES.layout, **option)


def test_scale_makes_cells_larger():
    widths = [extent(cells(to_svg(TWO_AXES, scale=scale)))[0] for scale in (0.1, 1, 2, 10)]
    assert widths == sorted(set(widths))


@pytest.mark.parametrize("scale", [1, 3])
@pytest.mark.parametrize(
    ("shape", "mesh", "spec"),
    [
        ((2**18,), {"a": 4096}, ("a",)),
        ((2**14, 2**14), {"a": 120}, ("a",)),
        ((64, 2**14), {"a": 64}, ("a",)),
        ((8, 8, 8, 8), dict.fromkeys("abcd", 8), ("a", "b", "c", "d")),
    ],
)
def test_drawings_stay_below_the_maximum_size_and_cells_above_the_minimum(shape, mesh, spec, scale):
    drawn = cells(to_svg(spec_layout(shape, mesh, spec, uneven=True), scale=scale))
    facets, across = (16, 4) if len(shape) > 2 else (1, 1)
    assert across * max(extent(drawn[: len(drawn) // facets])) <= svg_plan.MOST * scale + 1
    assert min(min(cell.width, cell.height) for cell in drawn) >= svg_plan.LEAST_CELL


@st.composite
def some_layouts(draw):
    """Return a layout of any rank with permuted devices, uneven axes, and one or several processes."""
    shape, sizes, axes = draw(parts_of_layouts(5))
    count = int(np.prod(list(sizes.values()), dtype=int))
    ids = np.random.default_rng(draw(st.integers(0, 99))).permutation(count).reshape(tuple(sizes.values()))
    processes = tuple((number, tuple(range(number, count, 3))) for number in range(3) if number < count)
    return mesh_layout(shape, sizes, axes, ids, "cpu", draw(st.sampled_from([(), processes])))


@settings(max_examples=150, deadline=None)
@given(some_layouts(), st.sampled_from([0.1, 1.0, 3.0]))
def test_every_device_has_one_tooltip_and_cells_do_not_overlap(layout, scale):
    drawing = to_svg(layout, scale=scale)
    drawn = cells(drawing)
    root = parsed(drawing)
    assert len(drawing.encode()) < 200_000
    assert max(cell.x + cell.width for cell in drawn) <= float(root.get("width"))
    assert max(cell.y + cell.height for cell in drawn) <= float(root.get("height"))
    for one, other in pairwise(drawn):
        assert other.x >= one.x + one.width or other.y >= one.y + one.height or other.x < one.x
    titles = [cell.title.split("\n") for cell in drawn]
    is_complete = not any("showing" in line for line in words(drawing))
    if is_complete and not any(" of " in title[0] for title in titles):
        found = [device for title in titles for device in listed(re.sub(", process.*", "", title[0]))]
        assert sorted(found) == sorted(layout.device_ids.reshape(-1).tolist())
    for devices, index, *_ in titles:
        first = re.findall(r"\d+", devices.removeprefix("CPU "))[0]
        if " of " not in devices:
            expected = layout.index_of(int(first))
            assert index == f"[{', '.join(f'{piece.start}:{piece.stop}' for piece in expected)}]"


def test_labels_are_selectable_and_share_the_tooltip_of_their_cell():
    drawing = parsed(to_svg(spec_layout((16, 8), {"a": 4}, ("a",))))
    groups = [group for group in drawing.iter(f"{SVG}g") if group.find(f"{SVG}title") is not None]
    assert [group.findtext(f"{SVG}text") for group in groups] == [f"device {number}" for number in range(4)]
    assert not [element for element in drawing.iter() if element.get("pointer-events") == "none"]
