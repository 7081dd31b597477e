"""Properties of SVG drawings of layouts. Stored pages have some drawings, to the byte."""

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
    planned_mesh_report,
    planned_report,
    sharding_vis,
    spec_layout,
    to_html,
    to_svg,
)
from jax_array_info.export.document import columns_of, columns_svg, html_document, parts_html
from jax_array_info.pictures import svg_plan
from jax_array_info.pictures.svg import MAX_CELLS, layout_figures
from jax_array_info.svg import COLORS, GREY, svg
from jax_array_info_core.geometry.layouts.layout import mesh_layout
from tests.rich_render.pictures.test_text import parts_of_layouts
from tests.rich_render.svg.reading import cells, contrast, extent, listed, parsed, texts, words

pytestmark = pytest.mark.newest

TWO_AXES = planned_report(
    (1024, 2048), {"data": 4, "model": 2}, ("data", "model"), dtype="bfloat16", name="params"
)


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


@pytest.mark.parametrize(
    ("option", "error", "message"),
    [
        *(
            ({"scale": scale}, ValueError, f"scale must be a number from 0.1 to 10, got {scale}")
            for scale in (0, -1, float("nan"), float("inf"), 11)
        ),
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


@pytest.mark.parametrize(
    ("shape", "mesh", "spec", "note"),
    [
        ((2**14, 2**14), {"a": 64, "b": 64}, ("a", "b"), "showing 24 of 64 rows, 24 of 64 columns"),
        ((2**16, 2**16), {"a": 256, "b": 256}, ("a", "b"), "showing 24 of 256 rows, 24 of 256 columns"),
        ((2**18,), {"a": 256, "b": 256}, (("a", "b"),), "showing 141 of 65536 columns"),
        ((64,) * 4, dict.fromkeys("abcd", 16), tuple("abcd"), "showing 16 of 256 slices of axis 0, axis 1"),
        ((2**12, 2**12), {"a": 4096, "b": 16}, ("a",), "showing 141 of 4096 rows"),
    ],
)
def test_thinned_drawings_have_a_note_and_a_small_file(shape, mesh, spec, note):
    report = planned_report(shape, mesh, spec, name="x" * 40)
    each = report.layout.device_ids.size // 64
    processes = tuple((process, tuple(range(each * process, each * (process + 1)))) for process in range(64))
    for drawn in (
        report,
        replace(report, layout=replace(report.layout, platform="tpu", processes=processes)),
    ):
        drawing = to_svg(drawn)
        assert len(drawing.encode()) < 200_000
        assert any(note in line for line in words(drawing))
        titles = [cell.title for cell in cells(drawing)]
        assert len(titles) <= MAX_CELLS
        ids = report.layout.device_ids.reshape(-1, report.layout.replicas)
        first, last = (listed(titles[end].split("\n")[0].split(", p")[0]) for end in (0, -1))
        assert (first, last) == (sorted(ids[0].tolist()), sorted(ids[-1].tolist())), "the corners are drawn"


def test_long_slices_and_names_do_not_exceed_the_file_size():
    count = 24 * 24 * 100
    ids = np.random.default_rng(0).permutation(count).reshape(1, 1, 1, 1, 24, 24, 100)
    processes = tuple((process, tuple(range(process, count, 256))) for process in range(256))
    layout = ShardingLayout(shape=(24 * 10**9,) * 6, device_ids=ids, platform="tpu" * 20, processes=processes)
    drawing = to_svg(layout, scale=10)
    assert 100_000 < len(drawing.encode()) < 200_000
    assert any(line.startswith("showing ") for line in words(drawing))


def test_text_from_json_does_not_make_a_drawing_large():
    long = "n" * 10**6
    plan = planned_report((8, 8), {"a": 8}, ("a",), name=long)
    sharding = replace(plan.sharding, spec=None, mesh=None, text=long)
    mesh = planned_mesh_report({"a": 4, "b": 2})
    for report in (
        replace(plan, dtype=long),
        replace(plan, sharding=sharding),
        replace(mesh, axes=replace(mesh.axes, names=(long, "b"))),
    ):
        assert len(to_svg(report)) < 200_000
        assert len(to_html(report)) < 200_000


@pytest.mark.parametrize("count", [3, 8])
def test_the_drawings_of_a_document_share_the_size_limit(count):
    specs = [("a", "b"), ("b", "a"), (("a", "b"), None), (None, ("a", "b"))] * 2
    plans = [planned_report((2**14, 2**14), {"a": 64, "b": 64}, spec) for spec in specs[:count]]
    columns = columns_of([[plan] for plan in plans])
    document = columns_svg(columns, "plans")
    assert 100_000 < len(document.encode()) < 200_000
    assert len(html_document(map(parts_html, columns), "plans").encode()) < 200_000
    thinned = [line for line in words(document) if line.startswith("showing ")]
    assert len(thinned) == count
    rows, columns = re.fullmatch(r"showing (\d+) of 64 rows, (\d+) of 64 columns", thinned[0]).groups()
    assert rows == columns, "rows are thinned as columns are"
