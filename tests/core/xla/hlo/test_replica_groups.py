"""Replica groups in all notations, and the mesh axes that they span."""

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_array_info_core.xla.hlo.messages import hlo_classes
from jax_array_info_core.xla.hlo.replica_groups import (
    group_axes,
    longest_chain,
    pair_axes,
    pairs_of,
    read_pairs,
    replica_groups,
)
from tests.hlo_assembler import add_groups

pytestmark = pytest.mark.newest


def read_groups(text, count):
    """Return the groups of a collective, in the message that XLA writes as this text."""
    op = hlo_classes()["HloInstructionProto"]()
    add_groups(op, text)
    return replica_groups(op, count)


def as_sets(groups):
    """Return groups as a set of sets: neither their order nor that of their devices matters."""
    return {frozenset(map(int, group)) for group in groups}


@st.composite
def divided_meshes(draw):
    """Draw the parts of each axis of a mesh of at most 512 devices, major to minor, and some of the parts."""
    room = 512
    axes = []
    for _ in range(draw(st.integers(1, 4))):
        parts = []
        for _ in range(draw(st.integers(1, 3))):
            parts.append(draw(st.integers(1, min(8, room))))
            room //= parts[-1]
        axes.append(parts)
    flat = [(axis, part) for axis, parts in enumerate(axes) for part in range(len(parts))]
    chosen = draw(st.lists(st.sampled_from(flat), unique=True))
    return axes, flat, chosen


def expected_axes(axes, chosen):
    """Return the axes over which some parts run, as Shardy writes them."""
    names = []
    for axis, parts in enumerate(axes):
        runs = []  # (size before, size), neighbours merged
        before = 1
        for part, size in enumerate(parts):
            if (axis, part) in chosen and size > 1:
                if runs and math.prod(runs[-1]) == before:
                    runs[-1] = (runs[-1][0], runs[-1][1] * size)
                else:
                    runs.append((before, size))
            before *= size
        whole = math.prod(parts)
        names += [f"a{axis}" if size == whole else f"a{axis}:({first}){size}" for first, size in runs]
    return tuple(names)


def commas(numbers):
    return ",".join(map(str, numbers))


@settings(max_examples=150)
@given(divided_meshes(), st.integers(0, 2**32).map(Random))
def test_every_notation_of_groups_gives_the_mesh_axes_that_they_span(mesh, random):
    """Groups over parts of mesh axes are the same in each notation, and have the names of these parts."""
    axes, flat, chosen = mesh
    sizes = [axes[axis][part] for axis, part in flat]
    along = [flat.index(one) for one in chosen]
    others = [index for index in range(len(flat)) if index not in along]
    size = math.prod(sizes[index] for index in along)
    count = math.prod(sizes)
    groups = np.arange(count).reshape(sizes).transpose([*others, *along]).reshape(-1, size)

    shuffled = [random.sample(group, size) for group in groups.tolist()]
    random.shuffle(shuffled)
    listed = "{" + ",".join("{" + commas(group) + "}" for group in shuffled) + "}"
    iota = f"[{count // size},{size}]<=[{commas(sizes)}]T({commas([*others, *along])})"
    # XLA's own mesh: each part is an axis, in another order, and the devices are transposed to it.
    order = random.sample(range(len(flat)), len(flat))
    positions = np.arange(count).reshape(sizes).transpose(order)
    own_axes = ",".join(f"'axis_{index}'={sizes[index]}" for index in order)
    over = "{" + ",".join(f"'axis_{index}'" for index in along) + "}"
    transposed = f"mesh[{own_axes}], device_ids=([{commas(sizes)}]T({commas(order)})) {over}"
    with_ids = f"mesh[{own_axes}], device_ids=({commas(positions.ravel())}) {over}"
    # The user's mesh, with parts of its axes.
    user = {f"a{axis}": math.prod(parts) for axis, parts in enumerate(axes)}
    parts = ",".join(
        f"'a{axis}':({math.prod(axes[axis][:part])}){axes[axis][part]}"
        for axis, part in chosen
        if axes[axis][part] > 1
    )
    shardy = f"mesh[{','.join(f'{name!r}={size}' for name, size in user.items())}] {{{parts}}}"

    for text in (listed, iota, transposed, with_ids, shardy):
        found = read_groups(text, count)
        assert as_sets(found) == as_sets(groups), text
        assert group_axes(found, user) == expected_axes(axes, chosen), text


@settings(max_examples=150)
@given(divided_meshes(), st.integers(0, 2**32).map(Random))
def test_axes_that_are_named_describe_the_groups_exactly(mesh, random):
    """For any groups, the named axes are the groups again, in XLA's notation; others have no axes."""
    axes, _, _ = mesh
    user = {f"a{axis}": math.prod(parts) for axis, parts in enumerate(axes)}
    count = math.prod(user.values())
    size = random.choice([one for one in range(1, count + 1) if count % one == 0])
    positions = list(range(count))
    for _ in range(random.choice([0, 1, count])):
        first, second = random.randrange(count), random.randrange(count)
        positions[first], positions[second] = positions[second], positions[first]
    groups = np.array(positions).reshape(-1, size)
    names = group_axes(groups, user)
    if names is not None:
        text = f"mesh[{','.join(f'{name}={size}' for name, size in user.items())}] {{{','.join(names)}}}"
        assert as_sets(read_groups(text, count)) == as_sets(groups)


def test_a_part_of_an_axis_is_written_as_in_shardy():
    """``x:(2)4`` of an axis of size 8 is 4 neighbours, ``x:(1)4`` every second device."""
    axis = np.arange(8)
    assert group_axes(axis.reshape(2, 4), {"x": 8}) == ("x:(2)4",)
    assert group_axes(axis.reshape(4, 2).T, {"x": 8}) == ("x:(1)4",)
    assert group_axes(np.array([[0, 1, 4, 5], [2, 3, 6, 7]]), {"x": 8}) == ("x:(1)2", "x:(4)2")


@pytest.mark.parametrize(
    "groups",
    [
        [[1, 2], [3, 4], [5, 6], [7, 0]],
        [[0, 1, 2, 4], [3, 5, 6, 7]],
        [[0, 3], [1, 2], [4, 7], [5, 6]],
        [[0, 1, 2], [3, -1, -1]],
        [[0, 1], [8, 9]],
        np.zeros((0, 2), np.int64),
    ],
)
def test_groups_that_do_not_follow_the_mesh_have_no_axes(groups):
    assert group_axes(np.array(groups), {"x": 2, "y": 4}) is None


def test_braces_alone_are_one_group_of_all_devices():
    assert read_groups("{}", 4).tolist() == [[0, 1, 2, 3]]
    assert group_axes(read_groups("{}", 8), {"x": 2, "y": 4}) == ("x", "y")


def test_groups_of_one_device_span_no_axis():
    assert group_axes(read_groups("[8,1]<=[8]", 8), {"x": 2, "y": 4}) == ()
    assert group_axes(read_groups("{{0}}", 1), {}) == ()


def test_smaller_groups_are_filled_up():
    assert read_groups("{{0,1,2},{3}}", 4).tolist() == [[0, 1, 2], [3, -1, -1]]


@pytest.mark.parametrize(
    "text",
    [
        "{{0,0}}",
        "{{0,9}}",
        "[2,4]<=[9]",
        "[2,4]<=[8]T(1,0)",
        "[8,99999999999]<=[8]",
        "mesh['a'=8] {'a':(2)3}",
        "mesh['a'=8] {'a','a'}",
        "mesh['a'=8] {'a':(1)4,'a':(2)2}",
        "mesh['a'=8], device_ids=(0,1) {'a'}",
        "mesh['a'=0] {'a'}",
        "mesh['a'=16] {'a'}",
    ],
)
def test_groups_that_do_not_fit_the_devices_raise_an_error(text):
    with pytest.raises(ValueError):
        read_groups(text, 8)


def test_groups_in_a_form_that_is_not_known_are_not_taken_for_one_group_of_all_devices():
    """A later version of XLA may list them in a field that this version does not know."""
    op = hlo_classes()["HloInstructionProto"]
    future = b"\xfa\x07\x02\x08\x03"  # field 127
    with pytest.raises(ValueError, match="field 127"):
        replica_groups(op.FromString(future), 8)
    listed = op()
    add_groups(listed, "{{0,1}}")
    assert replica_groups(op.FromString(listed.SerializeToString() + future), 2).tolist() == [[0, 1]]


def test_pairs_that_do_not_fit_the_devices_raise_an_error():
    op = hlo_classes()["HloInstructionProto"]()
    op.source_target_pairs.add(source=0, target=8)
    assert pairs_of(op, 9).tolist() == [[0, 8]]
    with pytest.raises(ValueError, match="no device 8"):
        pairs_of(op, 8)


@pytest.mark.parametrize("text", ["", "{{0}}", "{{0,1,2}}", "{{0,8}}", "[1,2]<=[2]", "{{0,1},"])
def test_text_that_is_not_pairs_raises_an_error(text):
    with pytest.raises(ValueError):
        read_pairs(text, 8)


@settings(max_examples=30)
@given(st.integers(1, 512).flatmap(lambda count: st.permutations(range(count)).map(tuple)))
def test_a_permute_moves_along_the_axes_in_which_some_pair_differs(targets):
    """The axes and the longest cycle agree with a direct search."""
    count = len(targets)
    rows = next(size for size in range(int(count**0.5), 0, -1) if count % size == 0)
    mesh = {"x": rows, "y": count // rows}
    text = "{" + ",".join(f"{{{source},{target}}}" for source, target in enumerate(targets)) + "}"
    pairs = read_pairs(text, count)
    expected = [
        name
        for name, coordinate in (("x", lambda one: one // mesh["y"]), ("y", lambda one: one % mesh["y"]))
        if any(coordinate(source) != coordinate(target) for source, target in enumerate(targets))
    ]
    assert pair_axes(pairs, mesh) == tuple(expected)
    lengths = []
    for start in range(count):
        at, length = targets[start], 1
        while at != start:
            at, length = targets[at], length + 1
        lengths.append(length)
    assert longest_chain(pairs) == max(lengths)


def test_a_chain_counts_its_devices_and_pairs_of_a_device_with_itself_do_not_count():
    assert longest_chain(read_pairs("{{0,1},{1,2},{4,4},{5,6}}", 8)) == 3
    assert longest_chain(read_pairs("{{0,0},{1,1}}", 8)) == 1
    assert longest_chain(read_pairs("{}", 8)) == 1
    assert pair_axes(read_pairs("{{0,0},{1,1}}", 8), {"x": 8}) == ()
