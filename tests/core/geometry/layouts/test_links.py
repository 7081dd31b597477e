"""Links between devices, compared with a count over all pairs of neighbors."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core.geometry.layouts.links import LINKS, Places, mesh_links, wraps_of

pytestmark = pytest.mark.once_per_version


@st.composite
def shuffled_tori(draw):
    """Devices of one or several slices with one or two cores a chip, in any order, as a mesh."""
    sides = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3))
    wraps = draw(st.tuples(*[st.sampled_from([True, False])] * len(sides)))
    slices, cores = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    chips = list(itertools.product(*map(range, sides)))
    devices = [(number, chip) for number in range(slices) for chip in chips for _ in range(cores)]
    devices = draw(st.permutations(devices))
    hosts = draw(st.lists(st.integers(0, 3), min_size=len(devices), max_size=len(devices)))
    rows = draw(st.sampled_from([size for size in range(1, len(devices) + 1) if len(devices) % size == 0]))
    places = Places(
        hosts=np.array(hosts),
        slices=np.array([number for number, _ in devices]) if slices > 1 or draw(st.booleans()) else None,
        coords=np.array([chip for _, chip in devices]),
        sides=tuple(sides),
        wraps=wraps,
    )
    return places, {"a": rows, "b": len(devices) // rows}


def hops_by_walking(places, one, other):
    """The hops between two chips of a slice, by a walk along each side in both directions."""
    hops = 0
    for side, length in enumerate(places.sides):
        start, end = int(places.coords[one][side]), int(places.coords[other][side])
        ways = [abs(end - start)]
        if places.wraps[side]:
            ways.append(next(step for step in range(length + 1) if (start - step - end) % length == 0))
            ways.append(next(step for step in range(length + 1) if (start + step - end) % length == 0))
        hops += min(ways)
    return hops


def link_by_hand(places, one, other):
    if places.slices is not None and places.slices[one] != places.slices[other]:
        return "dcn", None
    hops = hops_by_walking(places, one, other)
    return ("ici", hops) if hops else ("same-chip", None)


@given(shuffled_tori())
def test_the_links_of_each_axis_are_those_of_all_pairs_of_neighbors(case):
    places, mesh = case
    grid = np.arange(len(places.hosts)).reshape(tuple(mesh.values()))
    for links, lines in zip(mesh_links(places, mesh), (grid.T, grid), strict=True):
        pairs = [pair for line in lines.tolist() for pair in itertools.pairwise(line)]
        expected = Counter(link_by_hand(places, *pair) for pair in pairs)
        assert {(each.link, each.hops): each.pair_count for each in links.neighbors} == expected
        ranks = [(LINKS.index(each.link), each.hops or 0) for each in links.neighbors]
        assert ranks == sorted(ranks, reverse=True)
        hosts = [len({int(places.hosts[device]) for device in line}) for line in lines.tolist()]
        assert links.groups_over_hosts == sum(count > 1 for count in hosts)
        assert (links.group_count, links.host_count) == (len(lines), max(hosts))
        of_all = [
            link_by_hand(places, one, other)[0]
            for line in lines.tolist()
            for one, other in itertools.combinations(line, 2)
        ]
        assert places.slowest(lines) == max(of_all, key=LINKS.index, default=None)


@given(st.lists(st.integers(0, 3), min_size=12, max_size=12), st.booleans())
def test_without_coordinates_a_host_or_a_process_is_all_that_is_known(hosts, are_processes):
    places = Places(hosts=np.array(hosts), are_processes=are_processes)
    first, _ = mesh_links(places, {"a": 3, "b": 4})
    grid = np.array(hosts).reshape(3, 4)
    near = int((grid[1:] == grid[:-1]).sum())
    found = {each.link: each.pair_count for each in first.neighbors}
    far = "other-process" if are_processes else "other-host"
    assert found == {link: count for link, count in (("same-host", near), (far, 8 - near)) if count}
    crossing = sum(len(set(column)) > 1 for column in grid.T.tolist())
    share = "never" if not crossing else "always" if crossing == 4 else "partly"
    most = max(len(set(column)) for column in grid.T.tolist())
    of_hosts = (first.leaves_host, first.groups_over_hosts, first.host_count)
    of_processes = (first.leaves_process, first.groups_over_processes, first.process_count)
    # One process is on one host. Several may be, too.
    assert of_hosts == ((None,) * 3 if are_processes and crossing else (share, crossing, most))
    assert of_processes == ((share, crossing, most) if are_processes else (None, 0, 1))
    assert first.leaves_slice is None


@pytest.mark.parametrize(
    ("torus", "sides", "wraps"),
    [
        ("cube", (2, 2, 4), (False, False, False)),
        ("cube", (4, 4, 4), (True, True, True)),
        ("cube", (4, 4, 8), (None, None, True)),  # may be twisted
        ("cube", (4, 8, 8), (None, True, True)),
        ("cube", (4, 4, 12), (True, True, True)),
        ("pod", (8, 16), (False, True)),
        ("pod", (16, 16), (True, True)),
        (None, (4, 4, 4), (None, None, None)),
    ],
)
def test_the_sides_that_are_closed(torus, sides, wraps):
    assert wraps_of(torus, sides) == wraps


def torus_of(sides, wraps):
    coords = np.array(list(itertools.product(*map(range, sides))))
    return Places(hosts=np.zeros(len(coords), int), coords=coords, sides=sides, wraps=wraps)


@pytest.mark.parametrize(
    ("wraps", "form"), [((True, False), "ring"), ((False, False), "line"), ((None, False), None)]
)
def test_an_axis_along_a_whole_side_is_a_ring_where_the_side_is_closed(wraps, form):
    down, across = mesh_links(torus_of((4, 2), wraps), {"a": 4, "b": 2})
    assert (down.sides, down.form, down.chip_count) == (("x",), form, 4 if form else 0)
    assert (across.sides, across.form) == (("y",), "line")


def test_an_axis_along_a_part_of_a_side_is_a_line():
    whole, _ = mesh_links(torus_of((8, 2), (True, False)), {"a": 8, "b": 2})
    part = mesh_links(torus_of((8, 2), (True, False)), {"a": 2, "b": 4, "c": 2})[1]
    assert (whole.form, part.form, part.chip_count) == ("ring", "line", 4)


def test_a_way_that_a_twisted_torus_may_shorten_has_no_number_of_hops():
    places = torus_of((4, 4, 8), wraps_of("cube", (4, 4, 8)))
    at = {tuple(chip): number for number, chip in enumerate(places.coords.tolist())}

    def hops(one, other):
        return int(places.links(np.array([at[one]]), np.array([at[other]]))[1][0])

    assert hops((0, 0, 0), (1, 0, 0)) == 1
    assert hops((0, 0, 0), (0, 0, 7)) == 1
    assert hops((0, 0, 0), (3, 0, 0)) == -1
    assert hops((0, 0, 0), (1, 0, 4)) == -1


def test_only_groups_with_one_device_per_slice_or_host_take_the_slow_link_alone():
    places = Places(hosts=np.array([0, 0, 1, 1]), slices=np.array([0, 0, 1, 1]))
    across, both, padded = np.array([[0, 2], [1, 3]]), np.array([[0, 1, 2, 3]]), np.array([[0, 2, -1]])
    assert [places.is_uniform(groups) for groups in (across, both, padded)] == [True, False, True]
    hosts = Places(hosts=np.array([0, 0, 1, 1]))
    processes = Places(hosts=np.array([0, 0, 1, 1]), are_processes=True)
    for where in (hosts, processes):
        assert [where.is_uniform(groups) for groups in (across, both, padded)] == [True, False, True]
    assert places.is_uniform(np.array([[0, 1], [2, 3]]))
