"""The recorder leaves the program undisturbed."""

import os
import re
import signal
import subprocess
import sys
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jax_array_info_core import record_memory
from tests.arrays import slow_program
from tests.growing import born, no_collector
from tests.records import of_kind, record_of, sample_count, segment_paths, until
from tests.threads import in_threads

pytestmark = [pytest.mark.newest, pytest.mark.usefixtures("devices")]


def more_samples(folder, number=3):
    """Wait for further samples."""
    before = sample_count(folder)
    until(lambda: sample_count(folder) >= before + number)


@pytest.mark.needs_devices(8)  # on a single CPU device, a program with a callback runs synchronously
def test_a_recorder_never_waits_for_a_computation(no_arrays, tmp_path):
    with slow_program() as start, record_memory(tmp_path, every=0.01) as recorder:
        result = start()
        recorder.mark("pending")
        more_samples(tmp_path)
        recorder.stop()
        assert not result.is_ready()
    assert of_kind(record_of(tmp_path), "sample")[-1].in_use[0] > 0


def test_a_recorder_keeps_no_array_alive_and_adds_none(no_arrays, tmp_path):
    with no_collector(), record_memory(tmp_path, every=0.005) as recorder:
        kept = born(500)
        more_samples(tmp_path)
        references = list(map(weakref.ref, kept))
        assert all(weakref.getweakrefcount(array) == 1 for array in kept)
        assert len(jax.live_arrays()) == 500
        recorder.stop()
        del kept
        assert {reference() for reference in references} == {None}


def test_arrays_die_at_once_while_samples_are_taken(no_arrays, tmp_path):
    """A thread that samples without a pause may hold the arrays for a moment, but never when it sleeps."""
    with no_collector(), record_memory(tmp_path, every=0.001):
        for _ in range(50):
            reference = weakref.ref(jnp.ones((3,)))
            until(lambda reference=reference: reference() is None)


def test_a_recorder_compiles_nothing_and_programs_stay_the_same(no_arrays, tmp_path):
    compiled = []

    def count(event, seconds, **_):
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    def text():
        jax.clear_caches()
        return jax.jit(lambda x: jnp.sin(x) @ x.T).lower(kept[0][:, None]).compile().as_text()

    jax.monitoring.register_event_duration_secs_listener(count)
    kept = born(2)
    texts = []
    for is_recorded in (False, True):
        recorder = record_memory(tmp_path, every=0.005) if is_recorded else None
        texts.append(text())  # on one line, which is part of the program
        assert compiled  # the listener works
        if recorder is not None:
            compiled.clear()
            more_samples(tmp_path)
            assert compiled == []
            recorder.stop()
    assert texts[0] == texts[1]


def test_each_sample_has_a_state_that_a_loop_replaces(no_arrays, tmp_path):
    """At each moment, the old state or the new one is alive as a whole."""
    state = [jnp.full((100,), number, jnp.float32) for number in range(100)]
    with record_memory(tmp_path, every=0.001):
        until(lambda: sample_count(tmp_path))
        while sample_count(tmp_path) < 40:
            state = [array + 1 for array in state]
    assert min(sample.in_use[0] for sample in of_kind(record_of(tmp_path), "sample")) >= 100 * 400


def test_marks_and_steps_in_a_traced_function_disturb_nothing(tmp_path):
    with record_memory(tmp_path, every=0.01) as recorder:
        until(lambda: sample_count(tmp_path))

        @jax.jit
        def double(x):
            recorder.step()
            with recorder.mark("traced"):
                return 2 * x

        assert double(3.0) == 6
    assert [mark.step for mark in of_kind(record_of(tmp_path), "mark")] == [1, 1]


def test_many_threads_mark_and_step_while_arrays_come_and_go(no_arrays, tmp_path):
    def work(number):
        for step in range(30):
            recorder.step(step)
            with recorder.mark(f"thread {number}"):
                born(5)

    with record_memory(tmp_path, every=0.001) as recorder:
        until(lambda: sample_count(tmp_path))
        in_threads(work, range(8))
    marks = of_kind(record_of(tmp_path), "mark")
    assert len(marks) == 8 * 30 * 2
    assert of_kind(record_of(tmp_path), "sample")[-1].in_use[0] == 0


def run(folder, code, *, code_of=0, stderr="", jax="import jax, jax.numpy as jnp"):
    """Run a program with a recorder, and return the lines of its record."""
    begin = f"""
import atexit, os, sys, threading, time, warnings
from pathlib import Path
from jax_array_info_core import record_memory
folder = Path({str(folder)!r})
recorder = record_memory(folder, every=0.01)
assert "jax" not in sys.modules
{jax}
"""
    wait = """
def sampled(count=1):
    while sum(path.read_bytes().count(b'{"line":"sample"') for path in folder.glob("*.jsonl")) < count:
        time.sleep(0.001)
"""
    env = {**os.environ, "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=2"}
    done = subprocess.run(
        [sys.executable, "-c", begin + wait + code],
        capture_output=True,
        text=True,
        timeout=120,
        env=env,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code_of, stderr)
    return record_of(folder)


KEPT = "kept = jnp.zeros(5)\nsampled(3)\n"
PENDING = """
kept = jnp.ones((2, 2))
def wait(x):
    time.sleep(1)
    return x
result = jax.jit(lambda x: jax.pure_callback(wait, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1)(
    jax.device_put(kept, jax.devices()[1])
)
sampled(3)
"""
MARKING = """
kept = jnp.zeros(5)
def work():
    while True:
        recorder.mark("busy")
threading.Thread(target=work, daemon=True).start()
threading.Thread(target=lambda: time.sleep(0.2)).start()
atexit.register(lambda: recorder.mark("at exit"))
sampled(3)
"""


SUSPENDED = """
kept = jnp.zeros(5)
def steps():
    with recorder, recorder.mark("steps"):
        yield 1
running = steps()
next(running)
sampled(3)
"""


SUSPENDED_ALONE = """
kept = jnp.zeros(5)
def steps():
    with recorder.mark("steps"):
        yield 1
running = steps()
next(running)
sampled(3)
"""


@pytest.mark.own_process
@pytest.mark.parametrize("code", ["kept = jnp.zeros(5)", "kept = jnp.zeros(5)\nrecorder.mark('x')"])
@pytest.mark.parametrize("jax", ["import jax, jax.numpy as jnp", "import jax.numpy as jnp\ntime.sleep(0.5)"])
def test_a_program_that_ends_at_once_has_a_record(tmp_path, code, jax):
    lines = run(tmp_path, code, jax=jax)
    assert of_kind(lines, "sample")[-1].in_use[0] == 20
    assert lines[-1].reason == "exited"


@pytest.mark.skipif(sys.platform != "linux", reason="the mask of a thread is read from /proc")
def test_signals_are_for_the_threads_of_the_program(tmp_path):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with record_memory(tmp_path) as recorder:
        status = Path(f"/proc/self/task/{recorder._thread.native_id}/status").read_text()
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    blocked = int(re.search(r"SigBlk:\s*(\w+)", status)[1], 16)
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        assert blocked >> number - 1 & 1
    assert not blocked >> signal.SIGSEGV - 1 & 1


@pytest.mark.own_process
@pytest.mark.parametrize(
    ("code", "code_of", "reason"),
    [
        (SUSPENDED, 0, "exited"),
        (SUSPENDED_ALONE, 0, "exited"),
        (KEPT + "sys.exit(3)", 3, "exited"),
        (KEPT + "os._exit(4)", 4, None),
        (KEPT + "os.kill(os.getpid(), 9)", -signal.SIGKILL, None),
        (PENDING, 0, "exited"),
        (MARKING, 0, "exited"),
    ],
)
def test_a_program_ends_as_without_a_recorder(tmp_path, code, code_of, reason):
    lines = run(tmp_path, code, code_of=code_of)
    assert of_kind(lines, "sample")
    assert [line.reason for line in of_kind(lines, "end")] == ([] if reason is None else [reason])


@pytest.mark.own_process
@pytest.mark.parametrize(
    ("jax", "code"),
    [
        ("", "recorder.mark('early'); recorder.step(); recorder.stop()"),
        ("", ""),
        ("", "with recorder: pass"),
        ("import jax", "jax.config.update('jax_platforms', 'cpu'); time.sleep(0.5)"),
    ],
)
def test_without_devices_nothing_is_written_and_none_are_started(tmp_path, jax, code):
    ending = (
        "\nif 'jax' in sys.modules:\n    from jax._src import xla_bridge"
        "\n    assert not xla_bridge.backends_are_initialized()"
    )
    assert run(tmp_path, code + ending, jax=jax) == []


@pytest.mark.own_process
def test_marks_from_before_the_first_device_are_kept(tmp_path):
    lines = run(tmp_path, "recorder.step(7)\nrecorder.mark('early')\n" + KEPT, jax="import jax.numpy as jnp")
    (mark,) = of_kind(lines, "mark")
    assert (mark.name, mark.step) == ("early", 7)
    assert lines.index(mark) == 1


@pytest.mark.own_process
def test_a_fork_records_nothing_until_it_starts_a_recorder_of_its_own(tmp_path):
    code = f"""
{KEPT}
warnings.simplefilter("ignore")
child = os.fork()
if child == 0:
    recorder.mark("child")
    recorder.step(5)
    recorder.record_error(RuntimeError("RESOURCE_EXHAUSTED: out"))
    recorder.stop()
    own = record_memory(folder / "child")
    own.stop()
    os._exit(0)  # with some versions of JAX, a fork crashes at its exit
assert os.waitpid(child, 0)[1] == 0
recorder.mark("parent")
"""
    lines = run(tmp_path, code)
    assert [mark.name for mark in of_kind(lines, "mark")] == ["parent"]
    assert {start.pid for start in of_kind(lines, "start")} == {lines[0].pid}
    assert lines[-1].reason == "exited"


@pytest.mark.own_process
def test_a_limit_of_file_sizes_is_one_warning(tmp_path):
    code = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\nkept = jnp.zeros(5)\n"
    code += "while not done: time.sleep(0.001)\n"
    code = (
        "done = []\nwarnings.showwarning = lambda *args, **_: done.append(print(args[0], file=sys.stderr))\n"
        + code
    )
    expected = (
        f"the memory of this process cannot be recorded to {tmp_path}: File too large."
        " It is tried again every minute.\n"
    )
    lines = run(tmp_path, code, stderr=expected)
    assert of_kind(lines, "sample")
    assert all(path.read_bytes().endswith(b"\n") for path in segment_paths(tmp_path))
