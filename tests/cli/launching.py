"""Helpers that start ``jai-cli`` as a shell does."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

MAIN = "from jax_array_info_cli import main; main()"
COMMAND = [sys.executable, "-c", MAIN]


def write_program(folder, code, name="program.py"):
    """Write a script and return its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(code), encoding="utf-8")
    return str(path)


def jai(*args, cwd=None, code=MAIN, timeout=300, stdin=None, **environment):
    """Run ``jai-cli`` to its end. Bytes that are not UTF-8 come back as surrogates."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
        timeout=timeout,
        input=stdin,
    )


def run(*args, **options):
    """Run ``jai-cli run`` to its end."""
    return jai("run", *args, **options)


def restore_signals():
    """Restore the default signal handlers, which a test run in the background may inherit as ignored."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def start(*args, **options):
    """Start ``jai-cli run`` in its own process group, as a shell does."""
    return subprocess.Popen(
        [*COMMAND, "run", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        **{"preexec_fn": restore_signals, **options},
    )


def lines_until(stream, word):
    """Return the lines of a started process up to the first one that contains a word."""
    lines = []
    for line in stream:
        lines.append(line.rstrip("\n"))
        if word in line:
            return lines
    raise AssertionError(f"{word!r} never came: {lines}")


def start_in_time(program, wait, *options):
    """Start a program with a timeout long enough for it to start.

    Returns:
        The launcher, the result of ``wait``, and the timeout in seconds.
    """
    for seconds in (3, 20, 100):  # a busy machine needs longer
        launcher = start(*options, "--timeout", seconds, program)
        try:
            return launcher, wait(launcher), seconds
        except AssertionError:
            launcher.communicate()
    raise AssertionError(f"did not begin within {seconds} s")


def is_running(process):
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def all_end(processes, within=20):
    """Return whether all of these processes exit within the given seconds."""
    deadline = time.monotonic() + within
    while any(map(is_running, processes)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


STUCK = """
    import ctypes

    def wait_in_c():
        # Keeps the GIL, and signals do not interrupt it.
        library, lock = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
        print("locking", flush=True)
        library.pthread_mutex_lock(lock)
        library.pthread_mutex_lock(lock)

    wait_in_c()
"""
"""A program that hangs. Only on Linux is a zeroed buffer a valid mutex."""
