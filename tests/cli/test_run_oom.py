"""``jai-cli run`` of a program that runs out of device memory."""

import pytest

from tests.cli.launching import run, write_program

pytestmark = pytest.mark.own_process

HUNGRY = """
import jax.numpy as jnp

def train():
    held = jnp.zeros((30, 40))
    return held, jnp.zeros(2**50, jnp.int8)
"""


def test_live_arrays_are_printed_before_the_traceback(tmp_path):
    done = run(write_program(tmp_path, f"{HUNGRY}\ntrain()"))
    assert done.returncode == 1
    assert done.stdout == ""
    table, _, traceback = done.stderr.partition("Traceback (most recent call last)")
    assert table.startswith("live arrays at RESOURCE_EXHAUSTED: Out of memory allocating")
    assert "(30, 40)" in table
    assert "program.py:5 train" in table
    assert "RESOURCE_EXHAUSTED" in traceback
    assert "live arrays at" not in traceback


def test_live_arrays_are_printed_for_systemexit_too(tmp_path):
    ending = "try:\n    train()\nexcept Exception:\n    raise SystemExit(7)"
    done = run(write_program(tmp_path, f"{HUNGRY}\n{ending}"))
    assert done.returncode == 7
    assert "live arrays at" in done.stderr


def test_quiet_runs_and_other_failures_print_only_the_traceback(tmp_path):
    done = run("--quiet", write_program(tmp_path, f"{HUNGRY}\ntrain()"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Traceback")
    done = run(write_program(tmp_path, f"{HUNGRY}\nheld = jnp.zeros(3)\n1 / 0"))
    assert done.stderr.startswith("Traceback")


def test_with_several_processes_each_line_is_prefixed(tmp_path):
    ending = "import jax\ntrain() if jax.process_index() else __import__('time').sleep(1000)"
    done = run("--processes", "2", "--devices", "2", write_program(tmp_path, f"{HUNGRY}\n{ending}"))
    assert done.returncode == 1
    *lines, last = done.stderr.splitlines()
    assert last == "jai-cli run: process 1 of 2 failed with exit code 1"
    assert all(line.startswith("[1] ") for line in lines)
    assert any("program.py:5 train" in line for line in lines)
