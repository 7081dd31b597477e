"""Properties of colors: they show positions in the mesh, and text on them is legible."""

import math
from dataclasses import replace
from itertools import pairwise

import jax
import numpy as np
import pytest
from coloraide import Color
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.color import Color as TerminalColor
from rich.color import ColorSystem

from jax_array_info import (
    array_picture,
    array_report,
    from_json,
    planned_mesh_report,
    planned_report,
    print_mesh,
    sharding_vis,
    spec_layout,
    to_json,
    to_svg,
    xla_report,
)
from jax_array_info.pictures.palette import group_styles, place_color
from jax_array_info.pictures.svg import layout_figures
from jax_array_info.reports import ArrayReport
from jax_array_info.svg import svg
from jax_array_info_core.errors import LayoutError
from jax_array_info_core.facts.reports.mesh import mesh_device_ids, shared_mesh
from jax_array_info_core.geometry.layouts.layout import mesh_layout
from tests.arrays import mesh_of, sharded
from tests.rich_render.svg.reading import cells, contrast

pytestmark = pytest.mark.newest

PARTS = st.floats(0, 1)
ANY_AXES = ["alpha", "beta", "gamma", "delta"]


@st.composite
def meshes(draw):
    """Return axis sizes of a mesh, and its device ids in random order."""
    sizes = dict(zip(ANY_AXES, draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)), strict=False))
    count = math.prod(sizes.values())
    ids = np.random.default_rng(draw(st.integers(0, 99))).permutation(3 * count)[:count]
    return sizes, ids.reshape(tuple(sizes.values()))


@st.composite
def plans(draw, most=7):
    """Return the report of an array sharded over some axes of a mesh, in any order."""
    lengths = st.lists(st.integers(1, most), min_size=1, max_size=4 if most < 10 else 2)
    sizes = dict(zip(ANY_AXES, draw(lengths), strict=False))
    spec = [[] for _ in range(draw(st.integers(1, 3)))]
    for name in draw(st.permutations(sorted(sizes))):
        if draw(st.booleans()):
            draw(st.sampled_from(spec)).append(name)
    shape = [5 * math.prod(sizes[name] for name in names) for names in spec]
    return planned_report(shape, sizes, tuple(map(tuple, spec)))


def oklch(style):
    """Return lightness, chroma and hue of the background of a style."""
    return Color(style.bgcolor.get_truecolor().hex).convert("oklch").coords()


def components(mesh):
    """Return the expected hue and lightness of each device of a mesh, axis by axis."""
    sizes = np.array(mesh.shape)
    largest = int(np.argmax(sizes))
    hue = [(place[largest] + 0.5) / sizes[largest] for place in np.ndindex(mesh.shape)]
    lightness = np.zeros(mesh.size)
    step = 1.0
    for axis in sorted(set(range(mesh.ndim)) - {largest}, key=lambda axis: -sizes[axis]):
        step /= sizes[axis]
        lightness += [step * place[axis] for place in np.ndindex(mesh.shape)]
    return 20 + 320 * np.array(hue), 0.81 - 0.19 * (lightness + step / 2)


@settings(max_examples=60, deadline=None)
@given(meshes())
def test_the_hue_follows_the_largest_axis_and_the_lightness_the_next(mesh):
    _, ids = mesh
    holders = [(device,) for device in ids.reshape(-1).tolist()]
    looks = group_styles(holders, ids)
    for holder, hue, lightness in zip(holders, *components(ids), strict=True):
        found = oklch(looks[holder])
        assert found[0] == pytest.approx(lightness, abs=0.006)
        assert 0.085 <= found[1] <= 0.13
        assert found[2] == pytest.approx(hue, abs=3)


@settings(max_examples=60, deadline=None)
@given(meshes(), st.data())
def test_the_devices_of_a_shard_have_the_mean_of_their_colors(mesh, data):
    _, ids = mesh
    spanned = data.draw(st.sets(st.integers(0, ids.ndim - 1)))
    index = tuple(slice(None) if axis in spanned else 0 for axis in range(ids.ndim))
    holder = tuple(ids[index].reshape(-1).tolist())
    hues, lightnesses = (component.reshape(ids.shape)[index].mean() for component in components(ids))
    found = oklch(group_styles([holder], ids)[holder])
    assert found[0] == pytest.approx(lightnesses, abs=0.006)
    assert found[2] == pytest.approx(hues, abs=3)


@given(PARTS, PARTS)
def test_every_position_has_an_srgb_color_with_legible_text(along, across):
    color = place_color(along, across)
    found = Color(color.get_truecolor().hex).convert("oklch").coords()
    assert found[0] == pytest.approx(0.81 - 0.19 * across, abs=0.006)
    assert found[2] == pytest.approx(20 + 320 * along, abs=3)
    assert contrast("#000000", color.get_truecolor().hex) >= 4.5
    few = color.downgrade(ColorSystem.EIGHT_BIT)
    assert contrast("#000000", few.get_truecolor().hex) >= 4.5, "where a terminal has 256 colors"


@given(st.tuples(PARTS, PARTS, PARTS))
def test_text_on_the_colors_of_a_color_map_is_legible(color):
    [style] = group_styles([(0,)], np.arange(1), lambda at: color).values()
    assert contrast(style.color.get_truecolor().hex, style.bgcolor.get_truecolor().hex) >= 4.5


@pytest.mark.parametrize("sight", ["", "protan", "deutan"])
@pytest.mark.parametrize("page", ["white", "black"])
def test_the_gaps_between_the_cells_of_a_drawing_are_visible(page, sight):
    """Gaps have the color of the page."""
    for along in np.linspace(0, 1, 33):
        for across in (0, 0.5, 1):
            color = Color(place_color(along, across).get_truecolor().hex)
            color = color.filter(sight) if sight else color
            assert color.delta_e(page, method="2000") >= 10


@settings(max_examples=60, deadline=None)
@given(plans())
def test_cells_of_a_drawing_do_not_touch(report):
    places = cells(to_svg(report))
    for cell in places:
        for other in places:
            apart = max(other.x - cell.x - cell.width, cell.x - other.x - other.width)
            below = max(other.y - cell.y - cell.height, cell.y - other.y - other.height)
            assert cell is other or max(apart, below) > 0.7


@settings(max_examples=100, deadline=None)
@given(plans(most=24), st.sampled_from([40, 80]))
def test_cells_of_a_printed_picture_are_separated_by_a_rule_or_underlined(report, width):
    lines = array_picture(report, use_color=True, max_width=width).split("\n")
    filled = [[span for span in line.spans if span.style.bgcolor] for line in lines]
    for line, spans in zip(lines, filled, strict=True):
        for span in spans:
            assert line.plain[span.start - 1] == line.plain[span.end] == "│"
    for spans, below in pairwise(filled):
        for span in spans:
            for other in below:
                if (span.start, span.style) != (other.start, other.style):
                    same = span.style.bgcolor == other.style.bgcolor
                    assert span.start != other.start or span.style.underline or same


@settings(max_examples=60, deadline=None)
@given(plans(most=24))
def test_a_colored_picture_has_the_same_text(report):
    assert array_picture(report, use_color=True).plain == array_picture(report).plain


@settings(max_examples=60, deadline=None)
@given(meshes(), st.permutations(ANY_AXES), st.integers(0, 4))
def test_the_mesh_of_a_report_is_recovered_from_its_layout(mesh, names, count):
    sizes, ids = mesh
    used = [[name] for name in names if name in sizes][:count]
    shape = [2 * sizes[name] for [name] in used]
    report = planned_report(shape, sizes, used)
    object.__setattr__(report, "layout", mesh_layout(shape, sizes, used, ids))
    assert mesh_device_ids(report).tolist() == ids.tolist()


def test_colors_follow_the_mesh_in_any_order_of_devices():
    devices = jax.devices()[::-1]
    mesh = mesh_of((len(devices), 1), ("data", "model"), devices)
    report = array_report(sharded((16, 16), mesh, "model", "data"))
    assert mesh_device_ids(report).ravel().tolist() == [device.id for device in devices]
    plan = planned_report((16, 16), {"data": len(devices), "model": 1}, ("model", "data"))
    assert [cell.fill for cell in cells(to_svg(report))] == [cell.fill for cell in cells(to_svg(plan))]


REPORTS = [
    planned_report((64, 64), {"data": 4, "model": 2}, ("model", "data")),
    planned_report((64,), {"data": 4, "model": 2}, (None,)),
    planned_mesh_report({"data": 4, "model": 2}),
    spec_layout((64, 64), {"data": 4, "model": 2}, ("model", "data")),
    xla_report("{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}", {"x": 4, "y": 2}),
]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: type(report).__name__)
def test_a_report_from_json_has_the_same_colors(report):
    again = from_json(to_json(report))
    assert to_svg(again) == to_svg(report)


@pytest.mark.parametrize("sizes", [(4, 4), (10**9, 10**9)])
@pytest.mark.parametrize("number", [0, 4])
def test_an_inconsistent_report_has_colors(sizes, number):
    report = REPORTS[number]
    if isinstance(report, ArrayReport):
        mesh = replace(report.sharding.mesh, sizes=sizes)
        broken = replace(report, sharding=replace(report.sharding, mesh=mesh))
    else:
        broken = replace(report, mesh=replace(report.mesh, sizes=sizes))
    assert mesh_device_ids(broken) is None
    assert shared_mesh([broken]).tolist() == list(range(8))


@pytest.mark.parametrize("sizes", [(-4, -2), (8,), (2, 2, 2), (0, 8)])
def test_no_mesh_has_sizes_that_do_not_fit_its_names(sizes):
    with pytest.raises(LayoutError):
        replace(REPORTS[2].axes, sizes=sizes)


@pytest.mark.parametrize("sizes", [(4, 4), (10**9, 10**9)])
def test_no_report_on_a_mesh_has_sizes_that_do_not_fit_its_devices(sizes):
    with pytest.raises(ValueError, match="with a layout of shape"):
        replace(REPORTS[2], axes=replace(REPORTS[2].axes, sizes=sizes))


def test_colors_without_a_mesh_follow_device_ids():
    layout = mesh_layout((8,), {"a": 4}, [["a"]], np.array([30, 10, 40, 20]))
    looks = group_styles([(10,), (20,), (30,), (40,)], np.array([10, 20, 30, 40]))
    fills = [cell.fill for cell in cells(to_svg(layout))]
    assert fills == [looks[device,].bgcolor.name for device in (30, 10, 40, 20)]
    assert [round(oklch(look)[2], -1) for look in looks.values()] == [60, 140, 220, 300]


def test_the_same_devices_have_the_same_color_throughout_a_document():
    specs = (("data", "model"), ("model", "data"), (("data", "model"), None), (None, "model"), (None, None))
    mesh = {"data": 4, "model": 2}
    reports = [
        *(planned_report((64, 64), mesh, spec) for spec in specs),
        planned_report((64, 64), {"all": 8}, ("all", None)),
        planned_mesh_report(mesh),
        spec_layout((64,), {"some": 2}, ("some",)),
    ]
    fills = {}
    for figure in layout_figures(reports):
        for cell in cells(svg(figure)):
            fills.setdefault(cell.title.split("\n")[0], set()).add(cell.fill)
    assert len(fills) == 8 + 2 + 1
    assert all(len(fill) == 1 for fill in fills.values())
    assert len(set().union(*fills.values())) == len(fills)


@pytest.mark.parametrize(
    ("environment", "use_color", "is_colored"),
    [
        ({}, None, False),
        ({}, True, False),
        ({"FORCE_COLOR": "1"}, None, True),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "1"}, False, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, None, False),
    ],
)
def test_pictures_are_colored_if_the_terminal_has_colors(
    environment, use_color, is_colored, monkeypatch, capsys
):
    for name in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", "COLORTERM": "truecolor", **environment}.items():
        monkeypatch.setenv(name, value)
    report = planned_report((8, 8), {"a": 2, "b": 2}, ("a", "b"))
    sharding_vis(report, use_color=use_color)
    out = capsys.readouterr().out
    red, green, blue = TerminalColor.parse(cells(to_svg(report))[0].fill).get_truecolor()
    assert (f";48;2;{red};{green};{blue}m" in out) == is_colored, "as in the drawing"
    assert ("\x1b" in out) == is_colored
    if use_color is None:
        print_mesh({"a": 2, "b": 2})
        assert (f";48;2;{red};{green};{blue}m" in capsys.readouterr().out) == is_colored
