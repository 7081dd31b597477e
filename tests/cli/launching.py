"""Starts ``jai-cli run`` as a shell does, for tests."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

COMMAND = [sys.executable, "-c", "from jax_array_info_cli import main; main()"]


def write_program(folder, code, name="program.py"):
    """Return the path of a script with this code."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(code), encoding="utf-8")
    return str(path)


def run(*args, cwd=None, code=COMMAND[-1], timeout=300, stdin=None, **environment):
    """Run ``jai-cli run`` to its end; bytes that are no text come back as surrogates."""
    return subprocess.run(
        [*COMMAND[:-1], code, "run", *map(str, args)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
        timeout=timeout,
        input=stdin,
    )


def heed_signals():
    """Let a process that is about to start react to signals, though this one may ignore them in the background."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def start(*args, **options):
    """Start ``jai-cli run`` in a process group of its own, as a shell does."""
    return subprocess.Popen(
        [*COMMAND, "run", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        **{"preexec_fn": heed_signals, **options},
    )


def lines_until(stream, word):
    """Return the lines that a started process has written, the first with this word the last of them."""
    lines = []
    for line in stream:
        lines.append(line.rstrip("\n"))
        if word in line:
            return lines
    raise AssertionError(f"{word!r} never came: {lines}")


def is_running(process):
    """Return whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def all_end(processes, within=20):
    """Return whether all of these processes end within so many seconds."""
    deadline = time.monotonic() + within
    while any(map(is_running, processes)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
