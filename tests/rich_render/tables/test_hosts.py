"""The table and the findings of the processes of a job."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from jax_array_info import config, print_hosts, to_html, to_svg, to_text
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


@pytest.mark.parametrize("count", [2, 300, 4096, 20_000])
def test_a_page_is_legible_and_small_at_any_number_of_processes(count):
    made = report(count, missing=[1] if count > 2 else [], different=[5] if count > 5 else [])
    text = to_text(made)
    assert max(map(len, text.splitlines())) <= 80
    assert len(text.splitlines()) <= 40
    drawn = to_svg(made)
    assert len(drawn) < 30_000
    assert len(to_html(made)) < 30_000
    assert float(ElementTree.fromstring(drawn).get("width")) < 760


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
