"""What a command says whose output cannot be written."""

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


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a disk that is always full")
@pytest.mark.parametrize(
    ("says", "args"),
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
def test_what_cannot_be_written_is_one_line(says, args, tmp_path):
    program = write_program(tmp_path, PROGRAM)
    with open("/dev/full", "w") as full:
        done = run_into(full, *(program if word == "PROGRAM" else word for word in args))
    assert done.stderr == f"{says}: the output cannot be written: No space left on device\n"
    assert done.returncode == 1


@pytest.mark.parametrize("args", [("show", *PLAN), ("run", "--devices", "1", "PROGRAM")])
def test_who_reads_no_further_is_told_nothing(args, tmp_path):
    program = write_program(tmp_path, PROGRAM)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = run_into(writer, *(program if word == "PROGRAM" else word for word in args))
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
