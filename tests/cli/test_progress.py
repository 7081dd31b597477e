"""The progress bar on stderr while files are read."""

import io
import threading

import pytest

from jax_array_info.engine import terminal as module
from jax_array_info.engine.terminal import progress_bar

pytestmark = pytest.mark.newest


class Stderr(io.StringIO):
    """A terminal, or a pipe, that keeps what is written and says when something was."""

    def __init__(self, is_terminal):
        super().__init__()
        self.is_terminal = is_terminal
        self.was_written = threading.Event()

    def isatty(self):
        return self.is_terminal

    def write(self, text):
        if "reading" in text:
            self.was_written.set()
        return super().write(text)


@pytest.fixture
def stderr(monkeypatch):
    """A function that replaces stderr and starts the bar after a number of seconds."""

    def replace(*, seconds, is_terminal=True, **environment):
        for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {"TERM": "xterm", "COLUMNS": "60", **environment}.items():
            monkeypatch.setenv(name, value)
        found = Stderr(is_terminal)
        monkeypatch.setattr("sys.stderr", found)
        monkeypatch.setattr(module, "_SECONDS", seconds)
        return found

    return replace


def test_a_long_read_shows_a_bar_that_is_erased(stderr):
    terminal = stderr(seconds=0)
    with progress_bar("reading [red]model.npz") as update:
        assert terminal.was_written.wait(30)
        update(1, 2)
        update(2, 2)
    shown = terminal.getvalue()
    assert "reading [red]model.npz" in shown, "a path is not markup"
    assert "\x1b[2K" in shown.rpartition("reading")[2], "the line is erased at the end"


def test_a_short_read_shows_nothing(stderr):
    terminal = stderr(seconds=600)
    with progress_bar("reading model.npz") as update:
        update(1, 1)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(("is_terminal", "term"), [(False, "xterm"), (True, "dumb")])
def test_a_pipe_and_a_dumb_terminal_get_no_bar(stderr, is_terminal, term):
    file = stderr(seconds=0, is_terminal=is_terminal, TERM=term)
    with progress_bar("reading model.npz") as update:
        if update is not None:
            update(1, 2)
        assert not file.was_written.wait(0.2)
    assert file.getvalue() == ""


def test_an_error_while_reading_erases_the_bar_and_passes_through(stderr):
    terminal = stderr(seconds=0)

    def read():
        with progress_bar("reading model.npz"):
            assert terminal.was_written.wait(30)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        read()
    assert "\x1b[2K" in terminal.getvalue()
