"""Tables of live arrays, and of the statistics of one device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info import live_array_report, pretty_memory_stats, print_array_stats
from jax_array_info.engine.render import render, text_of
from jax_array_info.errors import UnsupportedValueError
from tests.arrays import mesh_of, sharded
from tests.rich_render.tables.live_reports import group, report_of, rows

pytestmark = pytest.mark.newest


@pytest.mark.needs_devices(8)
def test_the_arrays_of_one_device_have_their_bytes_there(no_arrays, capsys):
    device = jax.devices()[3]
    everywhere = sharded((16, 512), mesh_of((8,), ("a",)), "a")
    here, elsewhere = (jax.device_put(np.zeros(512, np.float32), one) for one in (device, jax.devices()[2]))
    scalar = jax.device_put(np.float32(1), device)
    report = live_array_report(device=device)
    assert (report.device, report.device_nbytes, report.array_count) == (3, ((3, 4096 + 2048 + 4),), 3)
    assert [one.device_counts for one in report.groups] == [((3, 1),)] * 3
    assert rows(report) == [
        ["4.0 KiB", "(16, 512)", "float32", "✔ (32.0 KiB total)"],
        ["2.0 KiB", "(512,)", "float32", ""],
        ["4.0 B", "1 scalar", "float32", ""],
        ["6.0 KiB", "", "", ""],
    ]
    assert rows(report, by="dtype") == [["6.0 KiB", "3", "float32"], ["6.0 KiB", "", ""]]
    print_array_stats(device=device)
    assert "allocated jax arrays on cpu:3 " in capsys.readouterr().out
    assert len([everywhere, here, elsewhere, scalar]) == 4


@pytest.mark.parametrize("device", [3, "cpu:3"])
def test_a_value_that_is_no_local_device_is_refused(device):
    with pytest.raises(
        UnsupportedValueError, match=f"device={device!r} is not a cpu device of this process: "
    ):
        print_array_stats(device=device)
    with pytest.raises(TypeError, match="a LiveArrayReport is printed as it is: remove device="):
        print_array_stats(live_array_report(), device=device)


def test_an_unknown_by_raises(capsys):
    words = "by must be one of 'shape', 'origin', 'device', 'dtype', 'sharding', got 'size'"
    with pytest.raises(ValueError, match=words):
        print_array_stats(by="size")
    assert capsys.readouterr().out == ""


def test_without_live_arrays_a_table_is_printed(capsys, no_arrays):
    print_array_stats()
    assert "0.0 B" in capsys.readouterr().out


def test_the_table_is_printed_while_jax_traces(capsys):
    jax.jit(lambda x: print_array_stats() or x)(jnp.zeros(3))
    assert "allocated jax arrays" in capsys.readouterr().out


def test_without_statistics_one_line_has_the_reason(capsys):
    pretty_memory_stats(jax.devices()[0])
    assert capsys.readouterr().out == "no memory statistics for cpu:0: not reported by the cpu backend\n"


def test_the_middle_of_a_very_long_label_is_left_out():
    text = text_of(render(report_of(group((7,), 28, label="n" * 10**7)), max_rows=None))
    assert text.count("n") < 3000
    assert "..." in text
