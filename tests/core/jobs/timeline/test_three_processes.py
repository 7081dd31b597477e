"""Three processes of a job, one of which does not end its step: the command names it."""

import contextlib
import os
import re
import subprocess
import sys

import pytest

from jax_array_info_cli.launch import held_port
from jax_array_info_core import timeline_report
from jax_array_info_core.errors import FileFormatError
from jax_array_info_core.facts.reports import timeline_process
from jax_array_info_core.jobs.timeline import timeline_report as reports
from tests.cli.launching import jai, write_program
from tests.processes import only_in_full
from tests.records import until

pytestmark = [pytest.mark.own_process, pytest.mark.newest, pytest.mark.xdist_group("processes")]

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
process, port, folder, mode = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_cpu_collectives_implementation", "gloo")
here = f"127.0.0.1:{port}"
jax.distributed.initialize(here, 3, process, coordinator_bind_address=here)
from jax_array_info_core import record_memory
from jax_array_info_core.jobs.timeline import stalls
stalls.LEAST = 0.5
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("d",))
sharding = NamedSharding(mesh, P("d"))
total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, P()))

def make_batch(number):
    if number == 5 and process == 1:
        while not any(b'"step":5,"in_use"' in path.read_bytes() for path in Path(folder).glob("process-1-*")):
            time.sleep(0.01)
        if mode == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if mode == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        if mode == "slow":
            time.sleep(600)
        if mode == "exit":
            recorder.stop()
            os._exit(0)
    return jax.make_array_from_process_local_data(sharding, np.ones(4, np.float32))

with record_memory(folder, every=0.1) as recorder:
    for number in range(1, 8):
        recorder.step(number)
        print("step", float(total(make_batch(number))), flush=True)
"""


@contextlib.contextmanager
def three_processes(folder, mode):
    """Run the program in three processes, and end them with the block."""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
    program = write_program(folder, PROGRAM, "train.py")
    with contextlib.ExitStack() as ends:
        port = ends.enter_context(held_port())
        started = []
        for process in range(3):
            arguments = [sys.executable, program, str(process), str(port), str(folder), mode]
            with open(folder / f"{process}.log", "wb") as log:
                one = subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT, env=environment)
            started.append(one)
            ends.callback(one.wait)
            ends.callback(one.kill)  # also ends one that is stopped
        yield started


IMPATIENT = """
from jax_array_info_core.facts.reports import timeline_process
from jax_array_info_core.jobs.timeline import timeline_report
timeline_process.LEAST_PATIENCE = timeline_report.LEAST_PATIENCE = 2.0
from jax_array_info_cli import main
main()
"""


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("freeze", r"process 1 last heard from at [\d:]+, step 5 or later; 2 processes wait(ed)? in step 5"),
        pytest.param(
            "slow",
            r"process 1 has stood in make_batch at train\.py:\d+ since [\d:]+, step 5; 2 processes wait in step 5",
            marks=only_in_full,
        ),
        pytest.param("kill", r"process 1 killed, or crashed, after [\d:]+, step 5", marks=only_in_full),
        pytest.param(
            "exit",
            r"process 1 stopped the record at [\d:]+, step 5; process(es)? [02,]+ ended at",
            marks=only_in_full,
        ),
    ],
    ids=["freeze", "slow", "kill", "exit"],
)
def test_the_process_that_the_others_wait_for_is_named(tmp_path, monkeypatch, mode, expected):
    for module in (timeline_process, reports):
        monkeypatch.setattr(module, "LEAST_PATIENCE", 2.0)

    def is_named():
        for one in started:
            one.poll()  # a process that has ended is there until its parent asks
        with contextlib.suppress(FileFormatError):  # nothing is written yet
            return re.match(expected, timeline_report(tmp_path).standing)

    with three_processes(tmp_path, mode) as started:
        until(is_named, 40)
        done = jai("memory", tmp_path, code=IMPATIENT, COLUMNS="200")
    assert re.match(expected, done.stdout), done.stdout
