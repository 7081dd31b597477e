"""Logs of four processes that end in different ways: ``jai-cli log`` names the one that ended first, or none."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import time

import pytest

from jax_array_info_cli.launch import held_port
from tests.processes import only_in_full

pytestmark = [pytest.mark.own_process, pytest.mark.newest]

PROGRAM = """
import faulthandler, os, signal, sys, threading, time
mode, rank, port = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
faulthandler.enable()
mode, _, victim = mode.partition("-")
victim = rank == int(victim or 2)
if mode == "never" and victim:
    sys.exit(0)
import jax
import jax.numpy as jnp
import numpy as np
jax.distributed.initialize(
    f"127.0.0.1:{port}", 4, rank, initialization_timeout=10 if mode in ("never", "port") else 300,
    heartbeat_timeout_seconds=10, shutdown_timeout_seconds=5,
)
mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
P = jax.sharding.PartitionSpec
def array_of(count):
    data = np.ones(count, np.float32)
    return jax.make_array_from_process_local_data(jax.sharding.NamedSharding(mesh, P("x")), data)
whole = jax.sharding.NamedSharding(mesh, P())
total = jax.jit(lambda x: x.sum(), out_shardings=whole)
wide = jax.jit(lambda x: x.reshape(4, -1).sum(0), out_shardings=whole)
array = array_of(512)
if mode == "preempted":
    def save(*_):
        print("saved a checkpoint, leaving", flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)

def load():
    time.sleep(0.01)
    raise OSError("shard-00017: truncated record")

for step in range(6):
    print(f"step {step} loss {float(total(array))}", flush=True)
    if step == 2 and mode in ("preempted", "signal"):
        os.kill(os.getpid(), signal.SIGTERM)
    if step == 2 and mode == "nan":
        raise FloatingPointError(f"loss is nan at step {step}")
    if step == 2 and mode == "shapes":
        (wide if victim else total)(array).block_until_ready()
    if step == 2 and mode == "barrier" and not victim:
        from jax._src import distributed
        distributed.global_state.client.wait_at_barrier("ckpt_5", 3000)
    if step == 2 and victim:
        if mode == "raise":
            raise ValueError("bad batch")
        if mode == "exit":
            sys.exit(0)
        if mode == "hard":
            os._exit(0)
        if mode == "code":
            print("config has no field lr", flush=True)
            sys.exit(3)
        if mode == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if mode == "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        if mode == "crash":
            faulthandler._sigsegv()
        if mode == "memory":
            raise MemoryError("Unable to allocate 64.0 MiB")
        if mode == "full":
            open("/dev/full", "w").write("x" * 10**6)
        if mode == "barrier":
            time.sleep(60)
        if mode == "hang":
            time.sleep(600)
        if mode == "thread":
            threading.Thread(target=load, name="loader", daemon=True).start()
            while True:
                print("waiting for the data loader", flush=True)
                time.sleep(1)
        if mode == "caught":
            try:
                raise ConnectionResetError("gs://bucket: connection reset, retrying")
            except OSError:
                sys.excepthook(*sys.exc_info())
        if mode == "slow":
            time.sleep(2)
print("done", flush=True)
"""
NO_ERROR = r"rank 2 has no error: killed from outside, or ended early"
HEADLINES = {
    "raise": r"rank 2 failed first: ValueError: bad batch \(program.py:",
    "raise-0": r"rank 0 failed first: ValueError: bad batch \(program.py:",
    "exit": r"rank 2 (?:ended early|has no error)",
    "hard": NO_ERROR,
    "code": r"rank 2 (?:ended early|has no error).*; its last line: config has no field lr",
    "kill": NO_ERROR,
    "kill-0": r"rank 0 has no error: killed from outside, or ended early",
    "crash": r"rank 2 failed first: Fatal Python error: Segmentation fault",
    "shapes": r"ranks ran other collectives, of [\d,]+ against [\d,]+ bytes",
    "nan": r"all 4 ranks: FloatingPointError: loss is nan at step 2",
    "barrier": r"rank 2 was late \(3 ranks: never reached the barrier ckpt_5",
    "never": r"never all connected: 3 ranks waited for rank 2",
    "port": r"rank 0 failed first: .*Address already in use",
    "memory": r"rank 2 failed first: MemoryError: Unable to allocate",
    "full": r"rank 2 failed first: OSError: \[Errno 28\] No space left on device",
    "thread": r"rank 2 failed first: OSError in thread loader: shard-00017: truncated record",
    "freeze": NO_ERROR,
    "hang": "",
    "preempted": "",
    "signal": "",
    "caught": "",
    "slow": "",
}
"""Beginning of the first line of each way to end; empty if the logs have no failure."""
GATE = ("raise", "kill", "code", "crash", "signal")
FULL = tuple(mode for mode in HEADLINES if mode not in GATE)
SENTENCES = {"thread": "truncated record", "hang": "step 2"}
"""What rank 2 writes before the processes of a case are killed, which do not end."""
AT_ONCE = 3
"""Cases that run at once."""


def start(folder, mode, port):
    """Start the four processes of a case, each with a log."""
    (folder / mode).mkdir()
    processes = []
    for rank in range(4):
        with (folder / mode / f"rank{rank}.log").open("wb") as log:
            command = [sys.executable, str(folder / "program.py"), mode, str(rank), str(port)]
            processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
    return processes


def wait_for(folder, mode, processes, end):
    """Wait until the processes of a case have ended, or have written what they shall before they are killed."""
    log = folder / mode / "rank2.log"
    while mode in SENTENCES and SENTENCES[mode] not in log.read_text() and time.monotonic() < end:
        time.sleep(0.1)
    for rank, process in enumerate(processes):
        if (mode, rank) != ("freeze", 2) and mode not in SENTENCES:
            with contextlib.suppress(subprocess.TimeoutExpired):  # its logs tell
                process.wait(max(1, end - time.monotonic()))


@contextlib.contextmanager
def taken_port():
    """Yield a port at which a socket listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def run(folder, modes, timeout=400):
    """Run the cases, a few at once, and end each process by its number."""
    # Once: a process that starts while it is written again reads an empty program.
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    for first in range(0, len(modes), AT_ONCE):
        with contextlib.ExitStack() as ends:
            started = {}
            for mode in modes[first : first + AT_ONCE]:
                port = ends.enter_context(taken_port() if mode == "port" else held_port())
                started[mode] = start(folder, mode, port)
            processes = [process for case in started.values() for process in case]
            for process in processes:
                ends.callback(process.wait)
            for process in processes:  # all before the first wait, so that none writes of another's end
                ends.callback(process.kill)
            end = time.monotonic() + timeout
            for mode, processes in started.items():
                wait_for(folder, mode, processes, end)
    return folder


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A folder of logs for each way to end."""
    return run(tmp_path_factory.mktemp("jobs"), GATE)


@pytest.fixture(scope="module")
def ended_in_full(tmp_path_factory):
    return run(tmp_path_factory.mktemp("slow"), FULL)


def assert_named(folder, mode):
    """Assert that the command names the rank, or none."""
    command = [sys.executable, "-m", "jax_array_info_cli", "log", str(folder / mode), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    words, expected = report["headline"], HEADLINES[mode]
    logs = "\n".join(f"{path.name}\n{path.read_text()[:3000]}" for path in sorted((folder / mode).iterdir()))
    assert re.match(expected or "$", words), f"{words}\n{logs}"
    assert (done.returncode, done.stderr) == (1 if expected else 0, "")
    assert [one["rank"] for one in report["ranks"]] == ["0", "1", "2", "3"]
    named = re.match(r"(?:rank|.* for rank) (\d)", expected)
    assert report["root_ranks"] == ([named[1]] if named else [*"0123"] if mode == "nan" else [])
    return report


@pytest.mark.parametrize("mode", GATE)
def test_the_rank_that_ended_first_is_named(ended, mode):
    report = assert_named(ended, mode)
    assert [one["step"] for one in report["ranks"]] == [5 if mode == "signal" else 2] * 4


@only_in_full
@pytest.mark.parametrize("mode", FULL)
def test_of_all_ways_to_end_no_victim_is_named(ended_in_full, mode):
    assert_named(ended_in_full, mode)
