import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jax_array_info import to_text
from jax_array_info_core import propagation_report
from jax_array_info_core.propagation.process import NoAnswerError, Worker
from tests.core.propagation.programs import needs_shardy, struct

pytestmark = needs_shardy


@pytest.fixture(scope="module")
def bytecode():
    from jax_array_info_core.compat.propagation import module_bytecode

    lowered = (
        jax.jit(lambda x, w: x @ w)
        .trace(struct((32, 64), "data"), struct((64, 8)))
        .lower(lowering_platforms=("tpu",))
    )
    return module_bytecode(lowered)


@pytest.fixture
def worker():
    worker = Worker()
    yield worker
    worker.close()


def test_one_process_answers_many_questions_of_many_threads(worker, bytecode):
    first = worker.ask(bytecode)
    process = worker._process
    found = []
    threads = [
        threading.Thread(target=lambda: found.extend(worker.ask(bytecode) == first for _ in range(13)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 104
    assert worker._process is process


@pytest.mark.parametrize("name", ["SIGKILL", "SIGABRT", "SIGSEGV"])
def test_a_process_that_dies_while_it_answers_is_a_reason_and_the_next_question_starts_another(
    worker, bytecode, name
):
    worker.ask(bytecode)
    os.kill(worker._process.pid, signal.SIGSTOP)
    killer = threading.Timer(0.2, os.kill, (worker._process.pid, signal.Signals[name]))
    awake = threading.Timer(0.3, worker._process.send_signal, (signal.SIGCONT,))  # if it is not dead
    killer.start()
    awake.start()
    with pytest.raises(NoAnswerError, match=f"the process ended with {name}"):
        worker.ask(bytecode)
    killer.join()
    awake.join()
    assert worker.ask(bytecode)["meshes"]


def test_a_process_that_ended_before_a_question_is_started_again(worker, bytecode):
    first = worker.ask(bytecode)
    process = worker._process
    process.kill()
    process.wait()
    assert worker.ask(bytecode) == first


def test_a_process_that_ends_because_it_was_idle_while_it_is_asked_is_started_again(worker, bytecode):
    first = worker.ask(bytecode)
    process = worker._process
    os.kill(process.pid, signal.SIGSTOP)
    process.send_signal(signal.SIGALRM)  # comes when the process continues
    awake = threading.Timer(0.2, process.send_signal, (signal.SIGCONT,))
    awake.start()
    assert worker.ask(bytecode) == first
    awake.join()
    assert process.poll() == -signal.SIGALRM


def test_a_process_that_is_stopped_is_ended(worker, bytecode):
    worker.ask(bytecode)
    process = worker._process
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(NoAnswerError, match=r"no answer within 0\.5 s"):
        worker.ask(bytecode, 0.5)
    assert process.poll() == -signal.SIGKILL


@pytest.mark.parametrize("damaged", [b"", b"garbage", b"ML\xefR\x01"], ids=["empty", "text", "header"])
def test_a_damaged_module_is_a_reason(worker, bytecode, damaged):
    with pytest.raises(NoAnswerError):
        worker.ask(damaged)
    with pytest.raises(NoAnswerError):
        worker.ask(bytecode[: len(bytecode) // 2])
    assert worker.ask(bytecode)["meshes"]


def test_a_program_that_cannot_be_started_is_a_reason_in_the_report(monkeypatch):
    monkeypatch.setattr("jax_array_info_core.propagation.process._WORKERS", {})
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    report = propagation_report(jnp.sin, struct((8,), "data"))
    assert "/nowhere/python" in report.reason
    assert report.answer.startswith("unknown: Shardy gave no answer: ")
    assert report.findings == ()


def test_a_report_without_an_answer_has_what_was_requested(monkeypatch):
    monkeypatch.setattr("jax_array_info_core.propagation.process._WORKERS", {})
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    report = propagation_report(jnp.sin, struct((8,), "data"))
    assert (report.mesh.shape, report.device_count) == ({"data": 4, "model": 2}, 8)
    [argument], [output] = report.arguments, report.outputs
    assert (argument.path, str(argument.spec), argument.nbytes) == ("x", "P('data',)", 8)
    assert [str(one) for one in argument.axes] == ["argument x"]
    assert (output.path, output.spec, output.axes) == ("outputs", None, ())
    assert "8 devices: data=4, model=2" in to_text(report)


PROGRAM = """
import os, sys
import jax, jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax_array_info_core import propagation_report, sharded_structs
from jax_array_info_core.propagation import process
x = sharded_structs(jax.ShapeDtypeStruct((8,), jnp.float32), mesh={"data": 4}, specs=P("data"))
assert propagation_report(jnp.sin, x).reason is None
print(process._WORKERS[os.getpid()]._process.pid, flush=True)
"""


@pytest.mark.own_process
@pytest.mark.newest
@pytest.mark.parametrize(
    "end",
    [
        "pass",
        "raise SystemExit(3)",
        "1 / 0",
        "os._exit(0)",
        "os.kill(os.getpid(), 9)",
        "os.fork() or os._exit(0)",
    ],
)
def test_no_process_is_left_when_the_program_ends(end):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM + end], capture_output=True, text=True, timeout=300
    )
    pid = int(done.stdout.split()[0])
    assert "ResourceWarning" not in done.stderr
    deadline = time.monotonic() + 30
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(pid)


LARGE = """
import os, resource
import jax, jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax_array_info_core import propagation_report, sharded_structs
from jax_array_info_core.propagation import process
def loss(params, x):
    return jnp.mean((jax.nn.relu(x @ params["wi"]) @ params["wo"]) ** 2)
shapes = {"wi": jax.ShapeDtypeStruct((8192, 32768), jnp.bfloat16), "wo": jax.ShapeDtypeStruct((32768, 8192), jnp.bfloat16)}
mesh = {"data": 256, "fsdp": 16, "model": 16}
params = sharded_structs(shapes, mesh=mesh, specs={"wi": P("fsdp", "model"), "wo": P("model", "fsdp")})
x = sharded_structs(jax.ShapeDtypeStruct((65536, 8192), jnp.bfloat16), mesh=mesh, specs=P(("data", "fsdp")))
report = propagation_report(jax.grad(loss), params, x)
assert report.device_count == 65536 and report.lost
process._WORKERS[os.getpid()].close()
print(sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) // 1024)
"""


@pytest.mark.own_process
@pytest.mark.newest
@pytest.mark.skipif(sys.platform != "linux", reason="other systems count in other units")
def test_gradients_on_65536_devices_need_less_than_a_gibibyte():
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    assert int(done.stdout) < 1024


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
