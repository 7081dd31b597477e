"""Frames round hosts and slices in pictures of meshes, and links in words."""

import re
from dataclasses import replace

import pytest

from jax_array_info import planned_mesh_report, to_svg, to_text
from jax_array_info.pictures.subject import link_words
from jax_array_info.pictures.text import mesh_picture
from jax_array_info_core.layouts.links import AxisLinks, Neighbors
from tests.arrays import FakeDevice, mesh_of

pytestmark = pytest.mark.oldest_and_newest


def two_slices():
    report = planned_mesh_report({"data": 4, "model": 4}, hosts=8)
    return replace(report, slices=((0, tuple(range(8))), (1, tuple(range(8, 16)))))


def test_hosts_have_heavy_frames_and_slices_double_ones():
    assert mesh_picture(two_slices()).plain == (
        "mesh data=4, model=4, order: ascending ids\n"
        "─────────────────────────── data down, model across ────────────────────────────\n"
        "╔═════════╤═════════╦═════════╤═════════╗\n"
        "║device 0 │device 1 ┃device 2 │device 3 ║\n"
        "╠━━━━━━━━━┿━━━━━━━━━╋━━━━━━━━━┿━━━━━━━━━╣\n"
        "║device 4 │device 5 ┃device 6 │device 7 ║\n"
        "╠═════════╪═════════╬═════════╪═════════╣\n"
        "║device 8 │device 9 ┃device 10│device 11║\n"
        "╠━━━━━━━━━┿━━━━━━━━━╋━━━━━━━━━┿━━━━━━━━━╣\n"
        "║device 12│device 13┃device 14│device 15║\n"
        "╚═════════╧═════════╩═════════╧═════════╝\n"
        "━ 8 hosts  ═ 2 slices\n"
        "data: other host, 4 hosts\n"
        "model: 4 × other host, 8 × same host, 2 hosts"
    )


def test_frames_in_ascii():
    text = mesh_picture(planned_mesh_report({"a": 2, "b": 2}, hosts=2), encoding="ascii").plain
    lines = [line for line in text.splitlines() if line[0] in "+H"]
    assert [line[0] for line in lines] == list("+HHHH+HHHH+")
    assert all(set(line[1:-1]) == {"=", "+"} for line in lines if line[0] == "+")
    assert {line[-1] for line in lines} == {"+", "H"}
    assert "= 2 hosts" in text


def test_a_mesh_on_one_host_has_no_frames():
    text = mesh_picture(planned_mesh_report({"a": 2, "b": 2}, hosts=1)).plain
    assert not set("━┃═║") & set(text)
    assert text.splitlines()[-2:] == ["a: inside a host", "b: inside a host"]


@pytest.mark.parametrize("mesh", [{"data": 256, "model": 256}, {"data": 64, "pipe": 16, "model": 64}])
def test_a_mesh_of_65536_devices_is_thinned_with_its_frames(mesh):
    report = planned_mesh_report(mesh, hosts=8192)
    lines = mesh_picture(report).plain.splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("showing ") for line in lines)
    assert "━ 8192 hosts" in lines
    rules = [line for line in lines if line[0] in "┣┏┗"]
    cells = [line for line in lines if line[0] == "┃"]
    # Each row of devices is another host, so that each has a frame below it.
    assert len(rules) >= len(cells)


def test_the_frames_of_an_svg():
    drawn = to_svg(two_slices())
    widths = re.findall(r'<path d="[^"]*" stroke="#000" stroke-width="([\d.]+)"', drawn)
    assert len(widths) == 2
    assert float(widths[1]) == 2 * float(widths[0])
    assert "frames: 8 hosts  wide frames: 2 slices" in drawn
    assert 'stroke="#000"' not in to_svg(planned_mesh_report({"a": 4}, hosts=1))


def test_a_finding_is_the_first_line_of_a_mesh():
    devices = [FakeDevice(number, number // 4) for number in range(8)]
    devices[3], devices[7] = devices[7], devices[3]
    from jax_array_info import mesh_report

    text = to_text(mesh_report(mesh_of((4, 2), ("data", "model"), devices)))
    assert text.splitlines()[:2] == ["1 finding: JAI401 axis-across-hosts", "mesh data=4, model=2"]
    flat = " ".join(text.split())
    assert "model: crosses processes in 2 of 4 groups: 2 × other process, 2 × same host" in flat
    assert "JAI401 axis-across-hosts: Mesh axis 'model' crosses processes in 2 of 4 groups;" in flat


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
