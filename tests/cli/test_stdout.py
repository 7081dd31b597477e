"""Errors of commands whose output cannot be written."""

import os
import subprocess
import sys

import pytest

from tests.cli.launching import write_program
from tests.cli.test_cli import MAIN

pytestmark = pytest.mark.own_process

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


@pytest.mark.parametrize("args", [("show", *PLAN), ("run", "--devices", "1", "PROGRAM")])
def test_a_closed_pipe_prints_no_error(args, tmp_path):
    program = write_program(tmp_path, PROGRAM)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run_into(writer, *(program if word == "PROGRAM" else word for word in args))
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
