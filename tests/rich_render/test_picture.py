"""Pictures: the picture itself where it is small, laws where it is not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import ShardingLayout, array_report, sharding_layout, sharding_vis, to_text
from jax_array_info.picture import array_picture
from jax_array_info_core.layout import mesh_layout
from tests.arrays import mesh_of, sharded

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
    assert picture(ShardingLayout((), np.arange(4), "cpu")) == "┌───────┐\n│CPU 0-3│\n└───────┘"


def test_empty_axes_are_drawn():
    text = picture(mesh_layout((0, 8), {"a": 2, "b": 2}, [["a"], ["b"]], platform="cpu"))
    assert all(f"CPU {device}" in text for device in range(4))
    assert "CPU 0" in picture(mesh_layout((0, 4), {"a": 1}, [], platform="cpu"))
    assert "CPU 0" in picture(mesh_layout((4, 0), {"a": 1}, [], platform="cpu"))


def test_above_two_dimensions_the_sharded_axes_are_shown_with_their_own_aspect():
    layout = mesh_layout((2, 64, 8), {"a": 4, "b": 2}, [[], ["a"], ["b"]], platform="cpu")
    lines = picture(layout).splitlines()
    assert lines[0] == f"{'─' * 14} showing dims [1, 2] from original shape (2, 64, 8) {'─' * 14}"
    assert len(lines) == 10, "as high as a (64, 8) array, not as a (2, 64) one"


def test_three_sharded_axes_are_drawn_with_what_is_hidden_said():
    layout = mesh_layout((4, 4, 4), dict.fromkeys("abc", 2), [["a"], ["b"], ["c"]], platform="cpu")
    text = picture(layout)
    assert all(f"CPU {device},{device + 1}" in text for device in (0, 2, 4, 6))
    assert text.splitlines()[-1] == "axis 2 is sharded too: a cell names the devices of all its shards"


def test_wide_arrays_keep_their_labels():
    text = picture(mesh_layout((4, 4000), {"a": 4, "b": 2}, [["a"], ["b"]], platform="cpu"))
    assert all(f"CPU {device}" in text for device in range(8))
    assert max(map(len, text.splitlines())) <= 80


def test_what_does_not_fit_is_thinned_and_said():
    text = picture(mesh_layout((512, 512), {"a": 32, "b": 16}, [["a"], ["b"]], platform="cpu"))
    assert text.splitlines()[-1] == "showing 19 of 32 rows, 9 of 16 columns"
    assert len(text.splitlines()) <= 41
    for corner in ("CPU 0", "CPU 15", "CPU 496", "CPU 511"):
        assert corner in text


def test_scale_makes_cells_larger():
    heights = [len(picture(TWO_AXES, scale=scale).splitlines()) for scale in (0.1, 1, 2, 4)]
    assert heights == sorted(heights)
    assert heights[0] < heights[-1]


def test_ascii_consoles_get_ascii_boxes():
    text = picture(mesh_layout((4, 4, 4), {"a": 2}, [["a"]], platform="cpu"), encoding="ascii")
    assert text.isascii()
    assert "+-" in text


def test_filled_cells_have_the_same_colour_for_the_same_devices():
    both = array_picture(
        mesh_layout((8, 8), {"a": 2, "b": 2}, [["a"], ["b"]], platform="cpu"), use_color=True
    )
    assert len({str(span.style) for span in both.spans}) == 4
    copies = array_picture(mesh_layout((8, 8), {"a": 2, "b": 2}, [["a"]], platform="cpu"), use_color=True)
    assert len({str(span.style) for span in copies.spans}) == 2
    assert both.plain.splitlines()[0].strip() == ""
    assert len(both.plain.splitlines()) == 12, "as high as jax draws it"


def test_a_colour_map_gives_the_colours():
    seen = []

    def color_map(position):
        seen.append(position)
        return (position, 0.0, 1 - position, 1.0)

    drawn = array_picture(
        mesh_layout((8,), {"a": 3}, [["a"]], platform="cpu"), use_color=True, color_map=color_map
    )
    assert seen == [0, 0.5, 1]
    assert {str(span.style) for span in drawn.spans} == {
        "white on #0000ff",
        "white on #7f007f",
        "black on #ff0000",
    }


@st.composite
def layouts(draw):
    sizes = dict(zip("abcd", draw(st.lists(st.integers(1, 12), max_size=4)), strict=False))
    rank = draw(st.integers(0, 6))
    axes = [[] for _ in range(rank)]
    for name in draw(st.permutations(sorted(sizes))):
        if rank and draw(st.booleans()):
            axes[draw(st.integers(0, rank - 1))].append(name)
    shape = draw(st.lists(st.integers(0, 5000), min_size=rank, max_size=rank))
    return mesh_layout(shape, sizes, axes, platform="cpu")


@settings(max_examples=200, deadline=None)
@given(layouts(), st.booleans(), st.integers(5, 200), st.sampled_from([0.1, 1.0, 3.0]))
def test_no_line_is_too_wide_and_no_label_is_lost(layout, use_color, max_width, scale):
    text = picture(layout, use_color=use_color, max_width=max_width, scale=scale)
    assert max(map(len, text.splitlines())) <= max_width
    if max_width >= 20:
        assert "CPU" in text


@pytest.mark.parametrize("options", [{"scale": 0}, {"scale": float("nan")}, {"max_width": 3}])
def test_no_room_for_a_picture_is_an_error(options):
    with pytest.raises(ValueError, match="a picture needs scale > 0 and max_width >= 5"):
        picture(TWO_AXES, **options)


def test_what_can_be_drawn(capsys):
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
    assert set(drawn) == {to_text(layout) + "\n"}
    sharding_vis(jax.random.split(jax.random.key(0), 4))
    sharding_vis(jnp.float32(3))
    assert capsys.readouterr().out.count("CPU 0") == 2


def test_a_traced_value_is_drawn_as_far_as_it_is_known(capsys):
    @jax.jit
    def function(x):
        sharding_vis(x)
        return x

    function(jnp.zeros(4))
    assert capsys.readouterr().out == "sharding unknown: only the compiler will know it\n"


@pytest.mark.parametrize("value", [np.zeros(3), 3, None, "x", {"w": 1}])
def test_what_is_no_array_is_refused(value):
    with pytest.raises(ValueError, match="is not a jax array, got ") as raised:
        sharding_vis(value)
    assert str(raised.value) == f"is not a jax array, got {type(value)}"


def test_a_struct_without_a_sharding_is_refused():
    with pytest.raises(ValueError, match="has no sharding to draw: give it one with sharding="):
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
