"""Runs of a program in several JAX processes, each with its own simulated CPU devices."""

import os
import subprocess
import sys
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

import pytest

from jax_array_info_cli.launch import held_port

only_in_full = pytest.mark.skipif(
    "JAI_FULL" not in os.environ,
    reason="its processes wait for each other's timeouts, up to a minute: nox -s full runs it",
)
"""Mark of tests that are too slow for each change."""

# Marks the lines for the test, since Gloo prints to the same stdout.
_MARK = "sent: "
_BEGIN = """
import os, sys, traceback
process, processes, devices, port = map(int, sys.argv[1:])
os.environ["XLA_FLAGS"] += f" --xla_force_host_platform_device_count={devices}"
os.environ["JAX_PLATFORMS"] = "cpu"

def send(*words):
    print("sent:", *words, flush=True)

def leave(code=0):
    # Skips the barrier at which jax waits for dead and failed processes.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

def fail(*error):
    traceback.print_exception(*error)
    leave(1)

sys.excepthook = fail
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")  # the default from jax 0.6 on
here = f"127.0.0.1:{port}"
jax.distributed.initialize(here, processes, process, coordinator_bind_address=here)
"""


def run_processes(code, processes=2, devices=4, timeout=300):
    """Return the lines that each process printed with ``send``.

    In the code, ``process`` is the index of the process; ``leave()`` exits without waiting for the others.
    The first failure stops all processes and is raised with that process's stderr.
    """
    with held_port() as port:
        return _results(code, processes, devices, port, timeout)


def _results(code, processes, devices, port, timeout):
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _BEGIN + code, *map(str, (process, processes, devices, port))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(processes)
    ]

    def lines_of(process):
        out, err = process.communicate(timeout=timeout)
        assert process.returncode == 0, err
        return [line.removeprefix(_MARK) for line in out.splitlines() if line.startswith(_MARK)]

    with ThreadPoolExecutor(processes) as pool:
        results = [pool.submit(lines_of, process) for process in started]
        wait(results, return_when=FIRST_EXCEPTION)
        for process in started:
            process.kill()
    failed = [result for result in results if result.exception()]
    first = min(failed, key=lambda result: "SIGKILL" in str(result.exception()), default=None)
    if first:
        first.result()
    return [result.result() for result in results]
