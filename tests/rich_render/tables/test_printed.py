"""Functions that print devices, profiles, compilations, growth and logs: what they take, and what they refuse."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info import (
    collect_reports,
    log_report,
    print_compilations,
    print_compile_caches,
    print_growth,
    print_memory_profile,
    print_memory_stats,
    to_text,
    track_arrays,
    watch_compiles,
)
from jax_array_info.errors import UnsupportedValueError
from jax_array_info_core.base.quantities import seconds_words
from jax_array_info_core.facts.pages.devices import folded_names

pytestmark = pytest.mark.newest


def cells(text):
    """Return the cells of a table's rows, without its title and heads."""
    lines = [line for line in text.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line[1:-1].split("│")] for line in lines]


def test_a_single_device_is_accepted_and_other_values_raise(capsys):
    print_memory_stats(jax.devices()[0])
    assert [row[0] for row in cells(capsys.readouterr().out)] == ["cpu:0"]
    for wrong in (3, "cpu:0", [jax.devices()[0], None]):
        with pytest.raises(UnsupportedValueError, match=r"expected a device of jax.devices\(\), got <class"):
            print_memory_stats(wrong)
    assert capsys.readouterr().out == ""


def test_without_statistics_the_live_arrays_are_printed(no_arrays, capsys):
    array = jax.device_put(jnp.zeros(256), jax.devices()[0])
    print_memory_stats()
    rows = cells(capsys.readouterr().out)
    assert rows[0] == ["cpu:0", "not reported by this backend", "1.0 KiB"]
    assert rows[1:] == [[f"cpu:{device.id}", rows[0][1], "0.0 B"] for device in jax.devices()[1:]]
    assert array is not None


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
    assert cells(text)[0][2].startswith("test_printed.py:")
    assert "on cpu:0" in text
    assert array is not None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0004, "0 ms"), (0.0123, "12 ms"), (1.0, "1.0 s"), (754.26, "754.3 s")]
)
def test_durations(seconds, text):
    assert seconds_words(seconds) == text


def test_compilations_of_a_watch_or_its_report_are_printed(capsys):
    with watch_compiles() as watch:
        jax.jit(lambda x: x + 1)(np.ones(3))
        print_compilations(watch)
    print_compilations(watch.report())
    lines = capsys.readouterr().out.splitlines()
    assert lines[: len(lines) // 2] == lines[len(lines) // 2 :]
    assert "first in the block" in "".join(lines)


@pytest.mark.parametrize("growth", [None, track_arrays, "growth"])
def test_growth_of_a_value_other_than_a_tracker_raises(growth):
    with pytest.raises(UnsupportedValueError, match=r"expected a tracker from track_arrays\(\), got <class"):
        print_growth(growth)


def test_growth_is_printed_as_to_text_returns_it_and_can_be_collected(capsys, no_arrays):
    with track_arrays() as growth:
        kept = []
        for _ in range(3):
            kept.append(jnp.zeros(256))
            growth.step()
        print_growth(growth)
    text = capsys.readouterr().out
    assert text == to_text(growth.report()) + "\n"
    total = f" (sum over {len(jax.devices())} devices)" if len(jax.devices()) > 1 else ""
    assert text.startswith(f"+1 array, +1.0 KiB{total} per step, made at test_printed.py:")
    with collect_reports() as reports:
        print_growth(growth, collect=True, referrers=True, max_seconds=0)
    assert (reports[0].collected, reports[0].holders) == (True, "incomplete")
    assert capsys.readouterr().out == ""


def test_a_refusal_without_a_table_has_the_remedy_of_its_kind():
    report = log_report(["RESOURCE_EXHAUSTED: Requires 3.50G, has 1.00G available. Device memory is full"])
    needs = "does not fit: needs 3.5 GiB, has 1.0 GiB per device"
    assert report.answer == f"{needs}; 1 finding: JAI209 program-memory"
    [finding] = report.findings
    assert finding.remedy.startswith("The program needs far more than a device has")
