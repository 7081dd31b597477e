"""Tables of devices, memory profiles and compile caches."""

import dataclasses
import functools
import textwrap

import jax
import jax.numpy as jnp
import pytest

from jax_array_info import (
    print_compile_caches,
    print_memory_profile,
    print_memory_stats,
    to_text,
)
from jax_array_info.engine import render
from jax_array_info.errors import UnsupportedValueError
from jax_array_info.reports import (
    CompileCache,
    CompileCachesReport,
    DeviceReport,
    DevicesReport,
    MemoryProfileReport,
    Origin,
    ProfileRow,
)
from jax_array_info_core.pages.devices import folded_names

pytestmark = pytest.mark.oldest_and_newest

GIB = 2**30


def gpu(number, in_use=None, peak=None, limit=80 * GIB, arrays=10 * GIB, **others):
    other = None if in_use is None else in_use - arrays
    return DeviceReport(
        id=number,
        name=f"cuda:{number}",
        platform="gpu",
        kind="NVIDIA H100",
        process=0,
        is_local=True,
        memory_kinds=("device", "pinned_host"),
        default_memory_kind="device",
        bytes_in_use=in_use,
        peak_bytes_in_use=peak,
        bytes_limit=limit if in_use is not None else None,
        array_nbytes=arrays,
        unexplained_nbytes=other,
        **others,
    )


REPORT = DevicesReport(
    devices=(
        gpu(0, 16 * GIB, 40 * GIB),
        gpu(1, 80 * GIB, 80 * GIB),
        gpu(2, 0, arrays=0),
        gpu(3, GIB, limit=None, arrays=0),
        gpu(4, missing_reason="[/lost]\x1b"),
    )
)


def text_of(renderable, width=80):
    return render.text_of(renderable, width=width)


def kinds_text(report):
    """Return the table of the kinds of devices, without that of their memory."""
    return text_of(render.render(report, width=100, kinds=True), 100).partition(" in use on ")[0]


def cells(text):
    """Return the cells of a table's rows, without its title and heads."""
    lines = [line for line in text.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line[1:-1].split("│")] for line in lines]


def picture(text):
    return textwrap.dedent(text).strip("\n ")


def lines(text):
    return "\n".join(line.rstrip() for line in text.splitlines()).lstrip()


def test_a_single_device_is_accepted_and_other_values_raise(capsys):
    print_memory_stats(jax.devices()[0])
    assert [row[0] for row in cells(capsys.readouterr().out)] == ["cpu:0"]
    for wrong in (3, "cpu:0", [jax.devices()[0], None]):
        with pytest.raises(UnsupportedValueError, match=r"expected a device of jax.devices\(\), got <class"):
            print_memory_stats(wrong)
    assert capsys.readouterr().out == ""


def test_each_device_has_a_row_with_a_bar_up_to_its_limit():
    assert lines(to_text(REPORT, width=90)) == picture("""
        80.0 GiB of 80.0 GiB (100%) in use on cuda:1, the fullest device
                                             device memory
        ┏━━━━━━━━┳━━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓
        ┃ device ┃      in use ┃     peak ┃    limit ┃            ┃ in arrays ┃ not in arrays ┃
        ┡━━━━━━━━╇━━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩
        │ cuda:0 │    16.0 GiB │ 40.0 GiB │ 80.0 GiB │ ██▒▒▒░░░░░ │  10.0 GiB │       6.0 GiB │
        │ cuda:1 │    80.0 GiB │ 80.0 GiB │ 80.0 GiB │ ██████████ │  10.0 GiB │      70.0 GiB │
        │ cuda:2 │       0.0 B │          │ 80.0 GiB │ ░░░░░░░░░░ │     0.0 B │         0.0 B │
        │ cuda:3 │     1.0 GiB │          │          │            │     0.0 B │       1.0 GiB │
        │ cuda:4 │ [/lost]\\x1b │          │          │            │  10.0 GiB │               │
        └────────┴─────────────┴──────────┴──────────┴────────────┴───────────┴───────────────┘
    """)


def test_without_statistics_the_live_arrays_are_printed(no_arrays, capsys):
    array = jax.device_put(jnp.zeros(256), jax.devices()[0])
    print_memory_stats()
    rows = cells(capsys.readouterr().out)
    assert rows[0] == ["cpu:0", "not reported by this backend", "1.0 KiB"]
    assert rows[1:] == [[f"cpu:{device.id}", rows[0][1], "0.0 B"] for device in jax.devices()[1:]]
    assert array is not None


@pytest.mark.parametrize("width", [50, 79])
def test_narrow_tables_have_all_numbers(width):
    report = DevicesReport(devices=REPORT.devices[:2])
    text = to_text(report, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert text.split().count("GiB") + text.count(" GiB") >= 10


def test_an_encoding_without_blocks_has_bars_of_letters():
    text = render.text_of(render.render(REPORT, width=90), width=90, encoding="ascii")
    assert "##+++....." in text


def test_equal_devices_share_a_row():
    report = DevicesReport(devices=(gpu(0, GIB), gpu(1, GIB), gpu(3, GIB), gpu(2, 2 * GIB)))
    assert cells(kinds_text(report)) == [
        ["cuda:0,1,3", "NVIDIA H100", "device, pinned_host", "1.0 GiB of 80.0 GiB"],
        ["cuda:2", "NVIDIA H100", "device, pinned_host", "2.0 GiB of 80.0 GiB"],
    ]


def test_with_several_processes_each_device_names_its_process():
    other = DeviceReport(
        id=9,
        name="cuda:9",
        platform="gpu",
        kind="NVIDIA H100",
        process=1,
        is_local=False,
        missing_reason="another's",
    )
    assert cells(kinds_text(DevicesReport(devices=(gpu(0, GIB), other)))) == [
        ["cuda:0", "NVIDIA H100", "0 (this)", "device, pinned_host", "1.0 GiB of 80.0 GiB"],
        ["cuda:9", "NVIDIA H100", "1", "", "another's"],
    ]


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([f"cpu:{number}" for number in range(8)], "cpu:0-7"),
        (["cuda:3", "host", "cuda:1", "TPU_0(process=0)"], "cuda:1,3,host,TPU_0(process=0)"),
        (["7"], "7"),
        ([], ""),
        (["x" + "9" * 5000], "x" + "9" * 5000),
    ],
)
def test_device_names_that_differ_in_their_numbers_are_folded(names, folded):
    assert folded_names(names) == folded


MAIN = Origin(file="/home/me/train.py", line=3, function="main")
PROFILE = MemoryProfileReport(
    rows=(
        *(
            ProfileRow(device=f"cuda:{number}", kind="buffer", origin=MAIN, nbytes=4 * GIB, count=2)
            for number in range(4)
        ),
        ProfileRow(
            device="cuda:1",
            kind="buffer",
            origin=Origin(file="[red]\x1b.py", line=1, function="f"),
            nbytes=100,
            count=1,
        ),
        ProfileRow(device="cuda:2", kind="buffer", origin=None, nbytes=50, count=1),
        ProfileRow(device=None, kind="executable", origin=MAIN, nbytes=2048, count=3),
        ProfileRow(device=None, kind="executable", origin=None, nbytes=0, count=1),
    ),
    device_nbytes=(
        ("cuda:0", 4 * GIB),
        ("cuda:1", 4 * GIB + 100),
        ("cuda:2", 4 * GIB + 50),
        ("cuda:3", 4 * GIB),
    ),
)


def test_devices_with_equal_bytes_for_a_line_share_a_row():
    assert cells(to_text(PROFILE)) == [
        ["4.0 GiB", "2", "cuda:0-3", "train.py:3 main"],
        ["100.0 B", "1", "cuda:1", r"[red]\x1b.py:1 f"],
        ["50.0 B", "1", "cuda:2", "unknown"],
        ["4.0 GiB", "", "cuda:0,3", "all lines"],
        ["4.0 GiB", "", "cuda:1", "all lines"],
        ["4.0 GiB", "", "cuda:2", "all lines"],
        ["2.0 KiB", "3", "train.py:3 main"],
        ["?", "1", "unknown"],
    ]


def test_a_profile_without_buffers_prints_no_buffers():
    rest = tuple(row for row in PROFILE.rows if row.kind != "buffer")
    text = to_text(dataclasses.replace(PROFILE, rows=rest))
    assert text.splitlines()[0] == "no buffers"


def test_past_max_rows_one_row_has_the_rest_on_the_fullest_devices():
    rows = cells(text_of(render.render(PROFILE, max_rows=1)))
    assert rows[1] == ["100.0 B", "1", "cuda:1", "2 more lines"]
    assert rows[-2:] == [["2.0 KiB", "3", "train.py:3 main"], ["?", "1", "1 more line"]]
    text = text_of(render.render(PROFILE, max_rows=0))
    assert cells(text)[0] == ["4.0 GiB", "3", "cuda:1", "3 more lines"]
    assert "executables" not in text, "a table without rows is left out"
    without = MemoryProfileReport(rows=PROFILE.rows[:4], device_nbytes=PROFILE.device_nbytes)
    assert cells(text_of(render.render(without, max_rows=0)))[0] == [
        *("4.0 GiB", "2", "cuda:0-3", "1 more line")
    ]


CACHES = CompileCachesReport(
    functions=(
        CompileCache(name="step", origin=MAIN, entries=4, compilations=3),
        CompileCache(name="[/x]\x1b", origin=None, entries=1, compilations=None),
        CompileCache(name="step", origin=MAIN, entries=None, compilations=0),
    ),
    jax_function_count=300,
    jax_entries=7,
    jax_compilations=None,
    unowned_executables=None,
)


def test_the_last_rows_are_functions_of_jax_and_executables_without_a_function():
    assert cells(to_text(CACHES)) == [
        ["step", "train.py:3", "4", "3"],
        [r"[/x]\x1b", "", "1", "?"],
        ["step", "train.py:3", "?", "0"],
        ["300 functions of JAX itself", "", "7", "?"],
        ["executables without a live function", "", "", "?"],
    ]


def test_past_max_rows_the_functions_are_counted():
    rows = cells(text_of(render.render(CACHES, max_rows=1)))
    assert rows[1] == ["2 more functions", "", "1", ""]


def test_caches_are_cleared_before_they_are_printed(capsys):
    @jax.jit
    def emptied_by_the_verb(x):
        return x + 1

    emptied_by_the_verb(jnp.zeros(3))
    print_compile_caches(clear="emptied_by_the_verb", max_rows=None)
    (row,) = [row for row in cells(capsys.readouterr().out) if row[0].startswith("emptied_by_the")]
    assert row[2] == "0"


@pytest.mark.parametrize(
    "verb", [print_memory_profile, functools.partial(print_compile_caches, clear="kept")]
)
def test_a_negative_max_rows_raises_before_caches_are_cleared(verb, capsys):
    @jax.jit
    def kept(x):
        return x + 1

    kept(jnp.zeros(3))
    with pytest.raises(ValueError, match="max_rows must be at least 0, or None for all rows, got -1"):
        verb(max_rows=-1)
    assert kept._cache_size() == 1
    assert capsys.readouterr().out == ""


def test_profiles_of_this_process_and_of_a_file_print_alike(no_arrays, capsys, monkeypatch):
    array = jnp.zeros(256)
    # Programs of earlier tests may be freed between two profiles.
    profile = jax.profiler.device_memory_profile()
    monkeypatch.setattr(jax.profiler, "device_memory_profile", lambda: profile)
    print_memory_profile()
    text = capsys.readouterr().out
    print_memory_profile(profile)
    assert capsys.readouterr().out == text
    assert cells(text)[0][:2] == ["1.0 KiB", "1"]
    assert cells(text)[0][2].startswith("test_devices.py:")
    assert "on cpu:0" in text
    assert array is not None
