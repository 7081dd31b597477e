"""Helpers that run ``jai-cli`` on a pseudo-terminal or into a pipe."""

import codecs
import contextlib
import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import time
from typing import NamedTuple

COMMAND = [sys.executable, "-m", "jax_array_info_cli"]
ESCAPE = re.compile(r"\x1b\[([0-9;]*)m")
CONTROLS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
COLOR = re.compile(r"(3[0-8]|4[0-8]|9\d|10\d)(;|$)")
PATIENCE = 300
"""Seconds after which a test fails instead of waiting for more output."""
ON_ITS_TERMINAL = "import fcntl, os, sys, termios; fcntl.ioctl(1, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
UNSET = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "COLORTERM", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


class Printed(NamedTuple):
    """Exit code of a command, and its stdout and stderr together."""

    code: int
    text: str

    @property
    def escapes(self):
        return ESCAPE.findall(self.text)

    @property
    def has_colors(self):
        return any(COLOR.match(codes.removeprefix("1;")) for codes in self.escapes)

    @property
    def plain(self):
        return ESCAPE.sub("", self.text)

    @property
    def width(self):
        return max(map(len, self.plain.splitlines()))


def environment(variables):
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    return {**kept, "TERM": "xterm-256color", **variables}


def run_into_pipe(*args, cwd=None, **variables):
    done = subprocess.run(
        [*COMMAND, *args],
        cwd=cwd,
        env=environment(variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=300,
    )
    return Printed(done.returncode, done.stdout.decode())


class Terminal:
    """A terminal whose foreground program is started with the arguments."""

    def __init__(self, *command, columns=80, lines=24, stdin=None, cwd=None, **variables):
        self._ours, its = os.openpty()
        self.resize(columns, lines)
        self.its = os.dup(its)
        self.before = termios.tcgetattr(its)
        self.text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_ITS_TERMINAL, *command],
            stdin=its if stdin is None else stdin,
            stdout=its,
            stderr=its,
            start_new_session=True,
            cwd=cwd,
            env=environment(variables),
        )
        os.close(its)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.process.kill()
        self.process.wait()
        self.close()
        os.close(self.its)

    def close(self):
        with contextlib.suppress(OSError):
            os.close(self._ours)

    def resize(self, columns, lines):
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys):
        self.text = ""
        os.write(self._ours, keys.encode())

    def wait_for(self, words):
        """Read until the output since the last key contains the words."""
        due = time.monotonic() + PATIENCE
        while words not in CONTROLS.sub("", self.text):
            ready, _, _ = select.select([self._ours], [], [], max(due - time.monotonic(), 0))
            assert ready, f"no {words!r} in {self.text!r}"
            self.text += self._read()
            assert time.monotonic() < due, f"no {words!r} in {self.text[-5000:]!r}"

    def _read(self):
        return self._decoder.decode(os.read(self._ours, 2**16))

    def exit_code(self):
        """Read until the program ends, at most as long as the patience lasts."""
        due = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < due:
            if select.select([self._ours], [], [], 0.05)[0]:
                self.text += self._read()
        while select.select([self._ours], [], [], 0)[0]:
            self.text += self._read()
        return self.process.returncode

    @property
    def is_restored(self):
        return termios.tcgetattr(self.its) == self.before


def run_on_terminal(*args, columns, cwd=None, **variables):
    with Terminal(*COMMAND, *args, columns=columns, lines=50, cwd=cwd, **variables) as terminal:
        return Printed(terminal.exit_code(), terminal.text.replace("\r\n", "\n"))
