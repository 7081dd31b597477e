"""The helper process and the user's program, which do not meet."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from tests.core.programs.propagation.helpers import has_ended, on_linux
from tests.core.programs.propagation.programs import needs_shardy, struct

pytestmark = [*needs_shardy, pytest.mark.own_process, pytest.mark.newest, on_linux]

START = """
import ctypes, json, os, random, signal, socket, sys, time
from pathlib import Path
from jax_array_info_core.programs.propagation import helper
from tests.core.programs.propagation.helpers import has_ended, worker_of

bytecode = Path(sys.argv[1]).read_bytes()

def ask():
    assert helper.ask(bytecode).meshes

def started():
    return helper._WORKERS[os.getpid()]._helper

def numbers():
    return started().watcher, worker_of(started())

def close():
    helper._WORKERS[os.getpid()].close()

def has_child():
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a function that runs a program, and returns what it printed as JSON."""
    from jax_array_info_core.compat.programs import module_bytecode

    lowered = jax.jit(jnp.sin).trace(struct((8,), "data")).lower(lowering_platforms=("tpu",))
    path = tmp_path_factory.mktemp("module") / "bytecode"
    path.write_bytes(module_bytecode(lowered))

    def run_program(text, code=0):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", START + text, str(path)],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert (done.returncode, done.stderr) == (code, "")
        return json.loads(done.stdout)

    return run_program


def test_a_program_that_waits_for_all_children_meets_its_own(run):
    assert (
        run("""
waits = [os.wait, lambda: os.waitpid(-1, 0), lambda: (os.waitid(os.P_ALL, 0, os.WEXITED).si_pid,)]
found = []
for wait in waits:
    helper.start()
    assert not has_child()
    ask()
    own, met = {os.fork() or os._exit(0) for _ in range(2)}, set()
    try:
        while True:
            met.add(wait()[0])
    except ChildProcessError:
        found.append(met == own)
    close()
print(json.dumps(found))
""")
        == [True] * 3
    )


def test_a_handler_of_sigchld_is_called_at_most_once_and_may_take_the_exit_code(run):
    calls = run("""
handled, calls = [], []
for handle in (lambda *_: handled.append(has_child()), lambda *_: handled.append(False)):
    signal.signal(signal.SIGCHLD, handle)
    ask()
    calls.append(len(handled))
    close()
    handled.clear()
print(json.dumps(calls))
""")
    assert max(calls) <= 1


def test_a_program_with_other_settings_has_answers_and_no_child(run):
    """The last one adopts orphans, as the first process of a container does."""
    assert (
        run("""
settings = {
    "ignored": lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
    "blocked": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()),
    "pipe": lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL),
    "timeout": lambda: socket.setdefaulttimeout(1e-6),
    "orphans": lambda: ctypes.CDLL(None).prctl(36, ctypes.c_ulong(1), 0, 0, 0),
}
found = {}
for name, setting in settings.items():
    setting()
    for _ in range(2):
        helper.start()
        found.setdefault(name, []).append(has_child())
        ask()
        found[name].append(has_child())
        if started() is not None:
            os.kill(worker_of(started()), signal.SIGKILL)
    close()
print(json.dumps(sum(found.values(), [])))
""")
        == [False] * 20
    )


def test_a_default_timeout_of_sockets_does_not_end_the_helper_after_an_answer(run):
    assert run("""
socket.setdefaulttimeout(1e-6)
ask()
time.sleep(2)
print(json.dumps(started().is_running()))
""")


ENDS = {
    "return": ("", 0),
    "exit": ("raise SystemExit(3)", 3),
    "at once": ("os._exit(0)", 0),
    "killed": ("os.kill(os.getpid(), 9)", -9),
    "a fork goes on": ("os.fork() or (os.closerange(0, 3), [has_ended(one) for one in found])", 0),
    "another program": ("os.execv(sys.executable, [sys.executable, '-c', ''])", 0),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_helper_ends_with_the_program_also_in_a_pass(run, end):
    text, code = ENDS[end]
    found = run(
        f"""
ask()
found = numbers()
print(json.dumps(found), flush=True)
os.kill(found[1], signal.SIGSTOP)
{text}
""",
        code,
    )
    assert [has_ended(one) for one in found] == [True, True]


def test_interrupts_and_kills_leave_no_child_no_descriptor_and_no_thread(run):
    interrupted, *left = run("""
class Interrupt(BaseException):
    pass

def interrupt(*_):
    raise Interrupt

signal.signal(signal.SIGALRM, interrupt)
threads = len(os.listdir("/proc/self/task"))
ask()
before, interrupted = len(os.listdir("/proc/self/fd")), 0
random = random.Random(0)
for number in range(50):
    if number % 12 == 11:
        ask()
        os.kill(numbers()[number // 12 % 2], signal.SIGKILL)
    is_new = number % 2 == 0
    if is_new:
        close()
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 0.2 if is_new else 2e-3))
        ask()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt:
        interrupted += 1
ask()
while len(os.listdir("/proc/self/task")) > threads:  # one may be about to end
    time.sleep(0.01)
print(json.dumps([interrupted, has_child(), len(os.listdir("/proc/self/fd")) - before]))
""")
    assert interrupted > 10
    assert left == [False, 0]


def test_a_descriptor_that_the_program_closed_and_uses_again_is_left_alone(run, tmp_path):
    path = tmp_path / "own"
    found = run(f"""
closes = [lambda number: os.closerange(3, 1000), os.close, lambda number: os.dup2(1, number)]
found = []
for close_number in closes:
    ask()
    number = started().socket.number
    found += numbers()
    close_number(number)
    own = os.open({str(path)!r}, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    if own != number:
        own = os.dup2(own, number)
    os.write(own, b"mine ")
    ask()
    close()
    os.write(own, b"alone ")
    os.close(own)
print(json.dumps(found))
""")
    assert path.read_text() == "mine alone " * 3
    assert all(has_ended(one) for one in found)


def test_the_helper_leaves_no_core_file_and_keeps_no_descriptor_and_no_folder(run):
    assert run("""
kept = os.dup2(os.open(os.devnull, os.O_RDONLY), 77)
ask()
watcher, worker = numbers()
limits = Path(f"/proc/{worker}/limits").read_text().splitlines()
(core,) = [line.split()[4] for line in limits if "core" in line]
kept = ["77" in os.listdir(f"/proc/{one}/fd") for one in (watcher, worker)]
print(json.dumps([core, *kept, os.readlink(f"/proc/{worker}/cwd")]))
""") == ["0", False, False, "/"]


def test_gradients_on_65536_devices_need_less_than_a_gibibyte(run):
    assert (
        run("""
import jax, jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax_array_info_core import propagation_report, sharded_structs
def loss(params, x):
    return jnp.mean((jax.nn.relu(x @ params["wi"]) @ params["wo"]) ** 2)
shapes = {"wi": (8192, 32768), "wo": (32768, 8192)}
params = {name: jax.ShapeDtypeStruct(shape, jnp.bfloat16) for name, shape in shapes.items()}
mesh = {"data": 256, "fsdp": 16, "model": 16}
params = sharded_structs(params, mesh=mesh, specs={"wi": P("fsdp", "model"), "wo": P("model", "fsdp")})
x = jax.ShapeDtypeStruct((65536, 8192), jnp.bfloat16)
x = sharded_structs(x, mesh=mesh, specs=P(("data", "fsdp")))
report = propagation_report(jax.grad(loss), params, x)
assert report.device_count == 65536 and report.lost
texts = [Path(f"/proc/{one}/status").read_text() for one in (os.getpid(), *numbers())]
print(json.dumps(sum(int(text.partition("VmHWM:")[2].split()[0]) for text in texts) // 1024))
""")
        < 1024
    )
