"""The heat map, the table and the findings of the processes of a job."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from jax_array_info import config, print_hosts, to_html, to_svg, to_text
from jax_array_info.pictures.hosts import hosts_picture
from jax_array_info_core import hosts_report
from jax_array_info_core.jobs.hosts.compare import Source, hosts_of
from jax_array_info_core.jobs.hosts.summaries import arrays_of
from jax_array_info_core.reports import HostDevice, UnreadHost
from tests.core.jobs.hosts.samples import OTHER, USUAL, summary

pytestmark = pytest.mark.newest

GIB = 2**30
DEVICE = HostDevice(id=0, nbytes=GIB, bytes_in_use=2 * GIB, peak_bytes_in_use=3 * GIB, bytes_limit=4 * GIB)


def report(count, *, missing=(), different=(), unread=(), **fields):
    """Return the report on some processes, with one more GiB from one process to the next, up to ten."""
    reports = {n: OTHER if n in different else USUAL for n in range(count) if n not in {*missing, *unread}}
    sources = [
        Source(str(n), replace(summary(one, n, count, **fields), nbytes=(1 + n % 10) * GIB))
        for n, one in reports.items()
    ]
    left_out = [UnreadHost(name=f"process-{n}.json", reason="truncated", process=n) for n in unread]
    return hosts_of(sources, lambda one: arrays_of(reports[one.process]), unread=left_out)


def test_the_width_of_the_picture_is_a_multiple_of_eight_processes():
    lines = hosts_picture(report(100), width=80, use_color=False).plain.splitlines()
    assert lines[0] == " 0 01234567 89012345 67890123 45678901 23456789 01234567 89012345 67890123"
    assert lines[1] == "64 45678901 23456789 01234567 89012345 6789"
    narrow = hosts_picture(report(100), width=22, use_color=False).plain.splitlines()
    assert narrow[:2] == [" 0 01234567 89012345", "16 67890123 45678901"]
    assert max(map(len, hosts_picture(report(5000), width=40, use_color=False).plain.splitlines())) <= 44


@pytest.mark.parametrize("count", [2, 300, 4096, 20_000])
def test_a_picture_is_legible_and_small_at_any_number_of_processes(count):
    made = report(count, missing=[1] if count > 2 else [], different=[5] if count > 5 else [])
    text = to_text(made)
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) < 110
    drawn = to_svg(made)
    assert len(drawn) < 200_000
    assert len(to_html(made)) < 200_000
    root = ElementTree.fromstring(drawn)
    assert float(root.get("width")) < 760
    squares = len(root.findall(".//{*}rect")) + sum(
        path.get("d").count("h9v9h-9z") for path in root.findall(".//{*}path")
    )
    assert len(made.cells) <= squares <= len(made.cells) + 2, "those that differ are drawn above the others"


def test_colors_run_from_light_to_dark_and_the_different_process_is_underlined():
    text = hosts_picture(report(12, different=[5]), width=80, use_color=True)
    looks = {text.plain[span.start]: span.style for span in text.spans if text.plain[span.start].isdigit()}
    assert looks["5"].underline
    assert not looks["6"].underline
    sums = [sum(looks[str(level)].bgcolor.triplet) for level in range(10)]
    assert sums == sorted(sums, reverse=True)
    assert (looks["0"].color.triplet.hex, looks["9"].color.triplet.hex) == ("#000000", "#ffffff")


def test_the_tooltips_name_the_process_and_its_host():
    drawn = to_svg(report(12, missing=[3], different=[5], unread=[8]))
    titles = re.findall("<title>(.*?)</title>", drawn)
    assert titles[3] == "process 3: missing"
    assert titles[5] == "process 5 on host-5: 6.0 GiB, its arrays differ"
    assert titles[8] == "process 8: not read"
    assert "red border" in drawn


def test_print_hosts_prints_a_report_as_it_is_and_only_where_it_should(capsys):
    print_hosts(report(30), max_rows=None)
    out = capsys.readouterr().out
    assert len(re.findall("host-[0-9]+", out)) == 30
    print_hosts(report(30), max_rows=0)
    assert "host-" not in capsys.readouterr().out
    config.process = 1
    try:
        print_hosts(USUAL)
    finally:
        config.process = "all"
    assert capsys.readouterr().out == ""
    print_hosts(USUAL)
    assert capsys.readouterr().out == to_text(hosts_report(USUAL)) + "\n"
    with pytest.raises(TypeError, match="a HostsReport is printed as it is: remove timeout="):
        print_hosts(report(3), timeout=3)
    with pytest.raises(ValueError, match="expected a LiveArrayReport"):
        print_hosts(None)
