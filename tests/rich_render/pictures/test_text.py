"""Properties of text pictures. Stored pages have those of some layouts and meshes, to the byte."""

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
from jax_array_info.pictures.subject import link_words
from jax_array_info.pictures.text import array_picture
from jax_array_info_core.geometry.layouts.layout import mesh_layout
from jax_array_info_core.geometry.layouts.links import AxisLinks, Neighbors
from tests.arrays import mesh_of, sharded

pytestmark = pytest.mark.newest

STRUCT = jax.ShapeDtypeStruct((4,), jnp.float32)
TWO_AXES = mesh_layout((16, 8), {"a": 4, "b": 2}, [["a"], ["b"]], platform="cpu")


def picture(layout, **options):
    return array_picture(layout, **options).plain


def test_scale_makes_cells_larger():
    heights = [len(picture(TWO_AXES, scale=scale).splitlines()) for scale in (0.1, 1, 2, 4)]
    assert heights == sorted(heights)
    assert heights[0] < heights[-1]


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
    ("value", "options", "error", "message"),
    [
        (TWO_AXES, {"scale": 0}, ValueError, "scale must be a number above 0 and at most 1000, got 0"),
        (TWO_AXES, {"scale": np.nan}, ValueError, "scale must be a number above 0 and at most 1000, got nan"),
        (TWO_AXES, {"scale": np.inf}, ValueError, "scale must be a number above 0 and at most 1000, got inf"),
        (TWO_AXES, {"scale": "1"}, TypeError, "scale must be a number above 0 and at most 1000, got '1'"),
        (TWO_AXES, {"max_width": 3}, ValueError, "max_width must be an integer of at least 20, got 3"),
        (TWO_AXES, {"max_width": "80"}, TypeError, "max_width must be an integer of at least 20, got '80'"),
        (np.zeros(3), {}, ValueError, "is not a jax array, got <class 'numpy.ndarray'>"),
        (None, {}, ValueError, "is not a jax array, got <class 'NoneType'>"),
        (
            {"w": 1},
            {},
            ValueError,
            "is not a jax array, got <class 'dict'>: use print_tree for a tree of arrays",
        ),
        (STRUCT, {}, ValueError, "this ShapeDtypeStruct has no sharding to draw: set one with sharding="),
    ],
)
def test_what_cannot_be_drawn_is_an_error(value, options, error, message):
    for function in (sharding_vis, array_picture) if options else (sharding_vis,):
        with pytest.raises(error, match=f"^{re.escape(message)}$"):
            function(value, **options)


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


@pytest.mark.parametrize("is_mesh", [False, True])
@pytest.mark.parametrize("use_color", [False, True])
def test_512_devices_are_all_shown_in_80_columns_and_40_lines(is_mesh, use_color):
    if is_mesh:
        report = planned_mesh_report({"data": 32, "model": 16})
        text = picture(report.layout, mesh=report, use_color=use_color)
    else:
        layout = mesh_layout((512, 512), {"a": 32, "b": 16}, [["a"], ["b"]], platform="cpu")
        text = picture(layout, use_color=use_color)
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    shown = [list(map(int, line.strip("│").split("│"))) for line in lines if line.startswith("│")]
    assert shown == np.arange(512).reshape(32, 16).tolist()
    assert "showing" not in text
    assert f"cells show {'device' if is_mesh else 'CPU'} ids" in lines


def test_the_first_and_last_of_any_number_of_columns_are_shown():
    count = 2**18
    text = picture(mesh_layout((count,), {"a": count}, [["a"]], platform="tpu"), use_color=True)
    assert text.splitlines()[1] == (
        "│0│1│2│3│4│5│6│7│8│⋯│262136│262137│262138│262139│262140│262141│262142│262143│"
    )


def test_scattered_devices_stay_within_forty_lines_with_unbroken_ids():
    ids = np.random.default_rng(1).permutation(4096).reshape(2, 2, -1)
    text = picture(ShardingLayout(shape=(16, 4), device_ids=ids, platform="cpu"))
    assert len(text.splitlines()) <= 40
    assert "1024 of CPU" in text
    sparse = np.array([100003 + 7919 * number * number % 899981 for number in range(24)])
    text = picture(
        ShardingLayout(shape=(16,), device_ids=sparse.reshape(1, 24), platform="cpu"), max_width=40
    )
    assert len(text.splitlines()) <= 40
    assert set(map(int, re.findall(r"\d{6,}", text))) <= set(sparse.tolist())


@pytest.mark.parametrize("mesh", [{"data": 256, "model": 256}, {"data": 64, "pipe": 16, "model": 64}])
def test_a_mesh_of_65536_devices_is_thinned_with_its_frames(mesh):
    report = planned_mesh_report(mesh, hosts=8192)
    lines = picture(report.layout, mesh=report).splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("showing ") for line in lines)
    assert "━ 8192 hosts" in lines
    rules = [line for line in lines if line[0] in "┣┏┗"]
    cells = [line for line in lines if line[0] == "┃"]
    # Each row of devices is another host, so that each has a frame below it.
    assert len(rules) >= len(cells)


def links(neighbors, **facts):
    pairs = tuple(Neighbors(link=link, hops=hops, pair_count=count) for link, hops, count in neighbors)
    usual = {"group_count": 4, "leaves_host": "always", "groups_over_hosts": 4, "host_count": 2}
    return AxisLinks(axis="a", neighbors=pairs, **(usual | facts))


PROCESSES = {"leaves_host": None, "groups_over_hosts": None, "host_count": None, "process_count": 2}
INSIDE = {"leaves_host": "never", "groups_over_hosts": 0, "host_count": 1}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (links([]), "one device"),
        (links([("same-host", None, 4)], **INSIDE), "inside a host"),
        (links([("same-chip", None, 4)], **INSIDE), "same chip"),
        (links([("ici", 1, 4)], sides=("x",), form="line", chip_count=2, **INSIDE),
         "inside a host: ICI, line of 2 in x, 1 hop"),
        (links([("ici", 1, 28)], sides=("z",), form="ring", chip_count=8), "ICI, ring of 8 in z, 1 hop"),
        (links([("ici", 1, 28)], form="ring", chip_count=8), "ICI, ring of 8, 1 hop"),
        (links([("ici", 2, 28)], sides=("z",)), "ICI in z, 2 hops"),
        (links([("ici", None, 2), ("ici", 1, 4)], sides=("x", "y", "z")),
         "ICI in x, y and z: 2 × hops unknown, 4 × 1 hop"),
        (links([("dcn", None, 4)], leaves_slice="always", slice_count=2, groups_over_slices=4), "DCN, 2 slices"),
        (links([("dcn", None, 2), ("ici", 1, 4)], leaves_slice="always", slice_count=2, groups_over_slices=4),
         "2 × DCN, 4 × ICI 1 hop, 2 slices"),
        (links([("dcn", None, 2), ("ici", 1, 4)], leaves_slice="partly", slice_count=2, groups_over_slices=1),
         "crosses slices in 1 of 4 groups: 2 × DCN, 4 × ICI 1 hop"),
        (links([("other-host", None, 1), ("same-host", None, 3)], leaves_host="partly", groups_over_hosts=1),
         "crosses hosts in 1 of 4 groups: 1 × other host, 3 × same host"),
        (links([("other-process", None, 4)], leaves_process="always", groups_over_processes=4, **PROCESSES),
         "other process, 2 processes"),
        (links([("other-process", None, 1), ("same-host", None, 3)], leaves_process="partly",
               groups_over_processes=1, **PROCESSES),
         "crosses processes in 1 of 4 groups: 1 × other process, 3 × same host"),
        (links([("unknown", None, 4)]), "unknown link, 2 hosts"),
    ],
)  # fmt: skip
def test_links_in_words(found, words):
    assert link_words(found) == words
