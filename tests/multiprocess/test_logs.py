"""Logs of three processes that end in different ways: ``jai-cli log`` names the process that ended first."""

import contextlib
import json
import subprocess
import sys
import time

import pytest

from jax_array_info_cli.launch import held_port
from tests.processes import only_in_full

pytestmark = [pytest.mark.own_process, pytest.mark.newest]

PROGRAM = """
import os, sys, time
mode, rank, port = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
import jax
import numpy as np
if mode == "late" and rank == 1:
    time.sleep(30)
jax.distributed.initialize(
    f"127.0.0.1:{port}", 3, rank, initialization_timeout=10 if mode == "late" else 100,
    heartbeat_timeout_seconds=10, shutdown_timeout_seconds=5,
)
mesh = jax.make_mesh((3,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
P = jax.sharding.PartitionSpec
array = jax.make_array_from_process_local_data(jax.sharding.NamedSharding(mesh, P("x")), np.ones(4, np.float32))
total = jax.jit(lambda x: x.sum(), out_shardings=jax.sharding.NamedSharding(mesh, P()))
for step in range(6):
    print(f"step {step} loss {float(total(array))}", flush=True)
    if step == 2 and rank == 1:
        if mode == "raise":
            raise ValueError("bad batch")
        if mode == "exit":
            os._exit(0)
        if mode == "kill":
            os.kill(os.getpid(), 9)
        if mode == "freeze":
            os.kill(os.getpid(), 19)
"""
GATE = ("raise", "kill", "exit")
FULL = ("freeze", "late")
SILENT = "rank 1 has no error: killed from outside, or ended early"
HEADLINES = {
    "raise": "rank 1 failed first: ValueError: bad batch (program.py:",
    "kill": SILENT,
    "exit": SILENT,
    "freeze": SILENT,
    "late": "never all connected: ",
}


def start(folder, mode, port):
    """Start the three processes of a case, each with a log."""
    (folder / mode).mkdir()
    program = folder / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    processes = []
    for rank in range(3):
        with (folder / mode / f"rank{rank}.log").open("wb") as log:
            command = [sys.executable, str(program), mode, str(rank), str(port)]
            processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
    return processes


def run(folder, modes, timeout):
    """Run the cases at once, and end each process by its number."""
    with contextlib.ExitStack() as ends:
        started = {}
        for mode in modes:
            started[mode] = start(folder, mode, ends.enter_context(held_port()))
            for process in started[mode]:
                ends.callback(process.wait)
                ends.callback(process.kill)
        end = time.monotonic() + timeout
        for mode, processes in started.items():
            for rank, process in enumerate(processes):
                if (mode, rank) != ("freeze", 1):
                    process.wait(max(1, end - time.monotonic()))
    return folder


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A folder of logs for each way to end."""
    return run(tmp_path_factory.mktemp("jobs"), GATE, 300)


@pytest.fixture(scope="module")
def ended_slowly(tmp_path_factory):
    return run(tmp_path_factory.mktemp("slow"), FULL, 300)


def assert_named(folder, mode):
    """Assert that the command names the rank."""
    command = [sys.executable, "-m", "jax_array_info_cli", "log", str(folder / mode), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    words = report["headline"]
    logs = "\n".join(f"{path.name}\n{path.read_text()[:3000]}" for path in sorted((folder / mode).iterdir()))
    assert words.startswith(HEADLINES[mode]), f"{words}\n{logs}"
    assert (done.returncode, done.stderr) == (1, "")
    assert [one["rank"] for one in report["ranks"]] == ["0", "1", "2"]
    return report


@pytest.mark.parametrize("mode", GATE)
def test_the_rank_that_ended_first_is_named(ended, mode):
    report = assert_named(ended, mode)
    assert [one["step"] for one in report["ranks"]] == [2, 2, 2]
    ends = [one["end"] for one in report["ranks"]]
    assert ends == ["in consequence", "failed" if mode == "raise" else "no error", "in consequence"]
    assert {one["role"] for one in report["findings"][mode == "raise" :]} == {"consequence"}


@only_in_full
@pytest.mark.parametrize("mode", FULL)
def test_a_frozen_or_a_late_rank_is_named(ended_slowly, mode):
    assert_named(ended_slowly, mode)
