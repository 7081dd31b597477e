"""Runs a program as several processes of one JAX, each on fake CPU devices of its own."""

import socket
import subprocess
import sys
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

# What a test wants to tell is in its own lines: Gloo prints to the same stdout.
_MARK = "told: "
_BEGIN = """
import os, sys, traceback
process, processes, devices, port = map(int, sys.argv[1:])
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
os.environ["JAX_PLATFORMS"] = "cpu"

def tell(*words):
    print("told:", *words, flush=True)

def leave(code=0):
    # Past the barrier in which jax waits for those that are dead, or have failed.
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
    """Return what each process told: the words of its calls of ``tell``, a line each.

    In the code, ``process`` is the index of the process; ``leave()`` ends it without waiting for others.
    The first process that fails ends all, and its stderr is that of the error.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _BEGIN + code, *map(str, (process, processes, devices, port))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(processes)
    ]

    def told_by(process):
        out, err = process.communicate(timeout=timeout)
        assert process.returncode == 0, err
        return [line.removeprefix(_MARK) for line in out.splitlines() if line.startswith(_MARK)]

    with ThreadPoolExecutor(processes) as pool:
        results = [pool.submit(told_by, process) for process in started]
        wait(results, return_when=FIRST_EXCEPTION)
        for process in started:
            process.kill()
    failed = [result for result in results if result.exception()]
    first = min(failed, key=lambda result: "SIGKILL" in str(result.exception()), default=None)
    if first:
        first.result()
    return [result.result() for result in results]
