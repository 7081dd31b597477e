"""Errors of commands whose output cannot be written."""

import os
import subprocess
import sys

import numpy as np
import pytest

from jax_array_info_core import save_tree
from tests.cli.launching import MAIN, write_program

pytestmark = [pytest.mark.own_process, pytest.mark.newest]

PLAN = ("8,8", "--mesh", "a=2", "--spec", "a")
PROGRAM = "import jax.numpy as jnp; x = jnp.zeros(3)"


def run_into(stdout, *args):
    return subprocess.run(
        [sys.executable, "-c", MAIN, *args],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=300,
    )


def into_closed_pipe(*args):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return run_into(writer, *args)
    finally:
        os.close(writer)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has /dev/full")
@pytest.mark.parametrize(
    ("prefix", "args"),
    [
        ("Error", ("--help",)),
        ("Error", ("show", *PLAN)),
        ("Error", ("show", *PLAN, "--format", "json")),
        ("Error", ("devices", "--devices", "1")),
        ("Error", ("demo", "--devices", "1")),
        ("Error", ("run", "--devices", "1", "PROGRAM")),
        ("jai-cli run", ("run", "--devices", "1", "--processes", "2", "PROGRAM")),
    ],
)
def test_a_full_disk_is_a_one_line_error(prefix, args, tmp_path):
    program = write_program(tmp_path, PROGRAM)
    with open("/dev/full", "w") as full:
        done = run_into(full, *(program if word == "PROGRAM" else word for word in args))
    assert done.stderr == f"{prefix}: the output cannot be written: No space left on device\n"
    assert done.returncode == 1


MISSING = {
    "tree": ("missing",),
    "check": ("missing",),
    "diff": ("missing", "missing"),
    "log": ("missing",),
    "profile": ("missing",),
    "run": ("missing",),
    "show": PLAN[:1],
    "explain": ("missing",),
    "--missing": (),
}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has /dev/full")
@pytest.mark.parametrize("command", MISSING)
def test_an_error_that_cannot_be_written_has_its_exit_code(command, tmp_path):
    ways = (">&- 2>&-", "2>&-", "2>/dev/full", "2> >(true)")
    for closed in ways if command == "show" else ways[:1]:
        script = f'"$@" {closed}'
        words = (sys.executable, "-c", MAIN, command, *MISSING[command])
        done = subprocess.run(["bash", "-c", script, "bash", *words], cwd=tmp_path, check=False, timeout=300)
        assert done.returncode == 2, closed


def test_what_a_program_of_several_processes_writes_to_closed_streams_is_dropped(tmp_path):
    program = write_program(tmp_path, "import sys; print(1); print(2, file=sys.stderr)")
    words = (sys.executable, "-c", MAIN, "run", "--devices", "1", "--processes", "2", program)
    done = subprocess.run(["bash", "-c", '"$@" >&- 2>&-', "bash", *words], check=False, timeout=300)
    assert done.returncode == 0


@pytest.fixture
def trees(tmp_path):
    """Two trees in files."""
    paths = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for length, path in enumerate(paths):
        save_tree({"w": np.zeros(length)}, path)
    return paths


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has /dev/full")
@pytest.mark.parametrize("written_as", ["text", "json"])
def test_commands_that_find_something_have_no_answer_on_a_full_disk_or_a_closed_pipe(trees, written_as):
    message = "Error: the output cannot be written: No space left on device\n"
    for args in (("check", trees[1]), ("diff", *trees)):
        with open("/dev/full", "w") as full:
            done = run_into(full, *args, "--format", written_as)
        assert (done.returncode, done.stderr) == (2, message)
        done = into_closed_pipe(*args, "--format", written_as)
        assert (done.returncode, done.stderr) == (2, "")


@pytest.mark.parametrize("args", [("show", *PLAN), ("run", "--devices", "1", "PROGRAM")])
def test_a_closed_pipe_prints_no_error(args, tmp_path):
    program = write_program(tmp_path, PROGRAM)
    done = into_closed_pipe(*(program if word == "PROGRAM" else word for word in args))
    assert (done.returncode, done.stderr) == (1, "")


CLOSING = """import os
os.closerange(3, {last})

def f(x):
    return x + 1
"""


@pytest.mark.parametrize(("last", "is_reached"), [("256", False), ("1 << 20", True)])
def test_a_file_that_closes_descriptors_loses_no_output(last, is_reached, tmp_path):
    """The report is where it belongs, or on standard error if standard output is closed for good."""
    (tmp_path / "f.py").write_text(CLOSING.format(last=last))
    command = ["program", f"{tmp_path}/f.py:f", "--mesh", "x=2", "--arg", "f32[8]@x"]
    done = run_into(subprocess.PIPE, *command)
    lost, kept = (done.stdout, done.stderr) if is_reached else (done.stderr, done.stdout)
    assert (done.returncode, "no findings" in lost, "no findings" in kept) == (0, False, True)
    assert ("Standard output was closed by the file" in done.stderr) == is_reached
