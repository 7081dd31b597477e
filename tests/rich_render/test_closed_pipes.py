"""Printing into a pipe without a reader."""

import contextlib
import io
import logging
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from jax_array_info import print_array_stats, report_on_oom, sharding_info, tap_sharding
from jax_array_info.style import terminal_console

pytestmark = pytest.mark.once_per_version


@contextlib.contextmanager
def logging_to(handler):
    """Send the log records of this project to one handler only."""
    logger = logging.getLogger("jax_array_info")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.propagate = True
        logger.removeHandler(handler)


@pytest.fixture
def closed_pipe():
    """Open a pipe without a reader for writing, as under ``| true``."""
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(BrokenPipeError), open(writer, "w") as file:
        yield file


def test_the_console_raises_the_error_of_print(closed_pipe):
    with pytest.raises(BrokenPipeError):
        terminal_console(file=closed_pipe).print("text")


@pytest.mark.parametrize("verb", [lambda: sharding_info(3), print_array_stats])
def test_the_verbs_raise_the_error_of_print_and_leave_stdout_alone(verb, closed_pipe, monkeypatch):
    monkeypatch.setattr(sys, "stdout", closed_pipe)
    with pytest.raises(BrokenPipeError):
        verb()
    with pytest.raises(BrokenPipeError):
        print("mine", flush=True)


def test_an_out_of_memory_error_is_not_replaced(closed_pipe):
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"), report_on_oom(closed_pipe):
        jnp.zeros(2**50, jnp.int8)


def test_a_program_compiles_when_reports_and_warnings_cannot_be_written(monkeypatch):
    for name in ("stdout", "stderr"):
        closed = io.StringIO()
        closed.close()
        monkeypatch.setattr(sys, name, closed)
    with logging_to(logging.StreamHandler(sys.stderr)):
        assert float(jax.jit(lambda x: tap_sharding(x) + 1)(jnp.zeros(3)).sum()) == 3
        assert float(jax.vmap(tap_sharding)(jnp.ones(3)).sum()) == 3


PROGRAM = """
import os, sys
import jax
import jax.numpy as jnp
from jax_array_info import report_on_oom, tap_sharding

def record(*words):
    os.write(records, " ".join(map(str, words)).encode() + b"\\n")

records = int(sys.argv[1])
record(float(jax.jit(lambda x: tap_sharding(x) + 1)(jnp.zeros(3)).sum()))
try:
    print("mine", flush=True)
except BrokenPipeError:
    record("print failed")
try:
    with report_on_oom():
        jnp.zeros(2**50, jnp.int8)
except jax.errors.JaxRuntimeError:
    record("out of memory")
"""


@pytest.mark.own_process
def test_a_program_continues_when_its_output_has_no_reader():
    reader, writer = os.pipe()
    os.close(reader)
    records_reader, records = os.pipe()
    command = [sys.executable, "-c", PROGRAM, str(records)]
    subprocess.run(command, stdout=writer, stderr=writer, pass_fds=[records], check=False, timeout=300)
    os.close(writer)
    os.close(records)
    with open(records_reader) as file:
        assert file.read().splitlines() == ["3.0", "print failed", "out of memory"]
