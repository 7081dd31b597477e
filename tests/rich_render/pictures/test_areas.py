"""Stacked areas: the literal pictures, and what holds for any chart."""

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info.pictures.areas import Area, AreaChart, areas_figure, areas_picture
from jax_array_info.pictures.areas_plan import axis_steps
from jax_array_info.svg import svg
from jax_array_info_core import format_bytes
from jax_array_info_core.base.quantities import parse_bytes

pytestmark = pytest.mark.newest

MiB = 2**20


def chart(*areas, peak=None, **more):
    points = range(len(areas[0].values)) if areas else range(0)
    facts = {
        "positions": [float(point) for point in points],
        "position_words": lambda point: f"operation {point}",
        "tick_words": lambda place: f"{place:.0f}",
        "areas": areas,
        "peak": peak,
        "peak_words": "" if peak is None else f"peak at {peak}",
    }
    return AreaChart(**{**facts, **more})


WEIGHTS = Area(name="train.py:7 in init", values=[2 * MiB] * 8)
LOSS = Area(name="train.py:12 in loss", values=[0, MiB, 2 * MiB, 4 * MiB, 3 * MiB, MiB, 0, 0])
REST = Area(name="other arrays", values=[MiB // 2] * 8, is_rest=True)
STEP = chart(WEIGHTS, LOSS, REST, peak=3, marks=[(2.0, "eval"), (6.0, "save")], limit=7 * MiB)


def text(chart, **options):
    options = {"width": 44, "use_color": False, **options}
    return areas_picture(chart, **options).plain.rstrip().split("\n")


def test_areas_have_letters_where_there_are_no_colors():
    assert text(STEP) == [
        "                      ▼ peak at 3",
        "7.5 MiB ┤┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄",
        "        │",
        "        │             bbbbb",
        "        │             bbbbb....",
        "5.0 MiB ┤             bbbbbbbbb",
        "        │        .....bbbbbbbbb",
        "        │    ....bbbbbbbbbbbbbb.....",
        "        │    bbbbbbbbbbbbbbbbbbbbbbb",
        "2.5 MiB ┤....bbbbbbbbbbbbbbbbbbbbbbb........",
        "        │aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "        │aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "        │aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "  0.0 B └┬────────────────┬─────────────────",
        "         0                4",
        "                 ▲eval             ▲save",
        "limit 7.0 MiB (┄┄)",
        "at the peak:",
        "  . 512.0 KiB  other arrays",
        "  b   4.0 MiB  train.py:12 in loss",
        "  a   2.0 MiB  train.py:7 in init",
    ]


@pytest.mark.parametrize("peak", [0, 137, 499])
@pytest.mark.parametrize("width", [20, 80])
def test_a_peak_of_one_point_is_seen(peak, width):
    values = [MiB] * 500
    values[peak] = 12 * MiB
    lines = text(chart(Area(name="a", values=values), peak=peak), width=width)
    [top] = [line for line in lines if line.startswith("12.0 MiB")]
    assert top.count("a") == 1
    [mark] = [line for line in lines if "▼" in line]
    assert mark.index("▼") == top.index("a")


def test_what_is_empty_has_a_picture():
    assert text(chart()) == ["no points"]
    assert areas_figure(chart()).parts == ()
    zero = chart(Area(name="a", values=[0, 0]), peak=0)
    assert "a" not in "".join(text(zero)[1:12])
    ElementTree.fromstring(svg(areas_figure(zero)))
    none = chart(positions=[1.0, 2.0], peak=1)  # a program without arguments and outputs has no areas
    assert text(none)[-1].split() == ["1", "2"]
    ElementTree.fromstring(svg(areas_figure(none)))
    one = text(chart(Area(name="a", values=[5]), peak=0))
    assert one[1] == "6.0 B ┤"
    assert one[3] == f"      │{'a' * 37}"


def test_marks_without_room_are_thinned():
    marks = [(float(point), f"step {point}") for point in range(8)]
    line = text(chart(WEIGHTS, marks=marks), width=44)[14]
    assert line == "           ▲step 0 ▲step 2 ▲step 4 ▲step 6"


@given(st.integers(0, 2**62))
def test_labels_of_the_y_axis_are_exact_and_near(most):
    step, count = axis_steps(most)
    assert step * count >= most
    assert step * count <= max(1.5 * most, 12)
    for number in range(count + 1):
        assert parse_bytes(format_bytes(step * number).replace(" ", "")) == step * number


@given(
    st.lists(st.lists(st.integers(0, 2**40), min_size=7, max_size=7), min_size=1, max_size=20),
    st.integers(1, 120),
    st.booleans(),
    st.sampled_from(["utf-8", "ascii"]),
)
def test_lines_fit_the_width(values, width, use_color, encoding):
    areas = [Area(name="模型.py:12 in loss " * 5, values=each) for each in values]
    picture = areas_picture(
        chart(*areas, peak=2, marks=[(3.0, "模型")] * 2), width=width, use_color=use_color, encoding=encoding
    )
    assert max(line.cell_len for line in picture.split("\n")) <= max(width, 30)
    picture.plain.encode(encoding)


@pytest.mark.parametrize("letter", ["a", "模", "&"])
def test_480_points_of_14_areas_take_less_than_200_kb(letter):
    areas = [
        Area(
            name=letter * 2000,
            values=[(point * 7919 * (number + 3)) % 1009 * MiB for point in range(480)],
            is_rest=number > 11,
        )
        for number in range(14)
    ]
    long = letter * 2000
    drawn = svg(
        areas_figure(
            chart(
                *areas,
                peak=7,
                peak_words=long,
                position_words=lambda point: f"{point} {long}",
                marks=[(float(point), long) for point in range(480)],
            )
        )
    )
    assert len(drawn.encode()) < 200_000
