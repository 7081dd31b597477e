"""Helpers that run ``jai-cli`` on a pseudo-terminal or into a pipe."""

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from typing import NamedTuple

COMMAND = [sys.executable, "-m", "jax_array_info_cli"]
ESCAPE = re.compile(r"\x1b\[([0-9;]*)m")
COLOR = re.compile(r"(3[0-8]|4[0-8]|9\d|10\d)(;|$)")
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


def run_on_terminal(*args, columns, cwd=None, **variables):
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    started = subprocess.Popen(
        [*COMMAND, *args],
        cwd=cwd,
        env=environment(variables),
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    pieces = []
    try:
        # When the last writer is gone, Linux raises an error; other systems return the end of file.
        while piece := os.read(ours, 2**16):
            pieces.append(piece)
    except OSError:
        pass
    finally:
        os.close(ours)
    return Printed(started.wait(timeout=300), b"".join(pieces).decode().replace("\r\n", "\n"))
