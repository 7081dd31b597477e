"""The progress line of a long search on a terminal."""

import inspect
import io
import itertools
import sys

import jax.numpy as jnp
import pytest

from jax_array_info import config, print_array_stats, print_growth, track_arrays
from jax_array_info.verbs.show import progress_line
from jax_array_info_core.arrays.holders import search as holders_search

pytestmark = pytest.mark.newest


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(monkeypatch, stream, seconds, max_seconds=5.0):
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_line("searching", max_seconds) as on_progress:
        for now in seconds if on_progress else ():
            on_progress(now)
        before = stream.getvalue()
    return before, stream.getvalue().removeprefix(before)


def test_the_line_appears_after_a_second_and_is_erased_at_the_end(monkeypatch):
    seconds = (0, 0.2, 0.9, 1.1, 1.5, 1.9, 2.4, 4.0)
    lines, erased = shown(monkeypatch, Terminal(), seconds)
    assert lines.split("\r")[1:] == [f"searching: {second} s (max_seconds=5)" for second in (1, 2, 4)]
    assert erased == f"\r{' ' * len('searching: 1 s (max_seconds=5)')}\r"
    assert shown(monkeypatch, Terminal(), (2,), None)[0] == "\rsearching: 2 s"


def test_a_short_search_shows_nothing(monkeypatch):
    assert shown(monkeypatch, Terminal(), (0, 0.5, 0.99)) == ("", "")


def test_pipes_files_and_silent_processes_show_nothing(monkeypatch):
    assert shown(monkeypatch, io.StringIO(), (3,)) == ("", "")
    monkeypatch.setattr(config, "process", 1)
    assert shown(monkeypatch, Terminal(), (3,)) == ("", "")


def test_notebooks_show_nothing(monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert shown(monkeypatch, Terminal(), (3,)) == ("", "")


def test_the_line_is_truncated_to_the_width_of_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "12")
    lines, erased = shown(monkeypatch, Terminal(), (1,))
    assert lines == "\rsearching: "
    assert erased == f"\r{' ' * 11}\r"


def test_a_search_continues_with_stderr_missing_or_closed(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with progress_line("searching", 5.0) as on_progress:
        assert on_progress is None
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_line("searching", 5.0) as on_progress:
        on_progress(1)
        terminal.close()
        on_progress(2)


@pytest.mark.parametrize("search", ["holders", "growth"])
def test_a_long_search_shows_the_line(search, monkeypatch, capsys, no_arrays):
    terminal, clock = Terminal(), itertools.count(0, 0.25)
    monkeypatch.setattr(holders_search, "monotonic", lambda: next(clock))
    monkeypatch.setattr(sys, "stderr", terminal)
    array = jnp.ones(3)
    if search == "holders":
        print_array_stats(referrers=True, max_seconds=None)
    else:
        with track_arrays() as growth:
            array = []
            for _ in range(3):
                array.append(jnp.ones(3))
                growth.step()
        print_growth(growth, referrers=True, max_seconds=None)
    assert terminal.getvalue().startswith("\rsearching for referrers: 1 s\r")
    assert terminal.getvalue().endswith(" \r")
    assert "searching" not in capsys.readouterr().out
    assert array is not None


@pytest.mark.parametrize("verb", [print_array_stats, print_growth])
def test_the_default_time_limit_is_five_seconds(verb):
    assert inspect.signature(verb).parameters["max_seconds"].default == 5.0
