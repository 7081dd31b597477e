"""A step that does not end is one line of the record, with the stacks of the threads."""

import dis
import gc
import io
import threading
import time
import weakref
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from jax_array_info_core import record_memory, timeline_report
from jax_array_info_core.facts.reports.record import MOST_FRAMES, MOST_THREADS
from jax_array_info_core.jobs.timeline import stalls
from jax_array_info_core.jobs.timeline.segments import FEWEST, encoded, thin_segments
from jax_array_info_core.jobs.timeline.stalls import Watch
from tests.records import lines_in, of_kind, record_of, until

from .samples import record_stall, record_start, samples_of, write_record

pytestmark = [pytest.mark.newest, pytest.mark.usefixtures("devices")]

STATUS = Path("/proc/thread-self/status")


def elsewhere(work, *args):
    """Return what a function returns in another thread, as that of a recorder."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work, *args).result()


class Steps:
    """Steps of a program at given seconds, and the look of a watch at another."""

    def __init__(self, *seconds):
        self.begin = time.monotonic()
        self.moves = deque(maxlen=stalls.MOST_MOVES)
        self.number = None
        self.watch = Watch(lambda: self.number, self.moves)
        for second in seconds:
            self.step(second)

    def step(self, second, number=None):
        self.number = (self.number or 0) + 1 if number is None else number
        self.moves.append((self.begin + second, threading.get_ident()))

    def look(self, second, late=0.0):
        """Return the stall that a thread sees that looks at a second, which may be later than it wanted."""
        self.watch.look_at = self.begin + second - late
        return elsewhere(self.watch.stall, self.begin + second)

    @property
    def next_look(self):
        return self.watch.look_at - self.begin


def test_a_step_stalls_after_a_minute_once():
    steps = Steps(0, 1, 2)
    assert steps.look(61.9) is None
    assert steps.next_look == pytest.approx(62)
    stall = steps.look(62.1)
    assert (stall.step, stall.mark) == (3, None)
    assert stall.time - stall.since == pytest.approx(60.1)
    assert stall.origin.function == "elsewhere"
    assert steps.look(200) is None
    steps.step(201)
    assert steps.look(230) is None
    assert steps.look(262).step == 4


def test_a_step_stalls_after_ten_times_the_median():
    steps = Steps(0, 600, 620, 640, 660)  # the first has a compilation
    assert steps.look(859) is None
    assert steps.look(861).step == 5


class Resting(Steps):
    """A main thread that is at a place, and was put to sleep so many times, without steps."""

    def __init__(self, monkeypatch, origin="x", waits_in=None):
        super().__init__()
        self.place, self.sleeps, self.read = 1, b"1", []
        found = record_stall(0, None, waits_in=waits_in) if origin else None
        monkeypatch.setattr(stalls, "_place", lambda _: self.place)
        monkeypatch.setattr(stalls, "_sleeps", lambda _: self.sleeps)
        monkeypatch.setattr(stalls, "_stall", lambda *args, **_: self.read.append(args[3]) or found)

    def run(self, first, last, *, is_woken=False):
        """Return the lines of the looks of some seconds, ten in each minute."""
        lines = []
        for second in range(first, last, 6):
            if is_woken and self.sleeps is not None:
                self.sleeps += b"1"
            lines.append(self.look(second))
            assert self.next_look == pytest.approx(second + stalls.LEAST / 10)
        return [*filter(None, lines)]


def test_a_main_thread_that_has_not_run_for_a_minute_is_told_once(monkeypatch):
    """Before the third step. A signal may wake it once."""
    rest = Resting(monkeypatch)
    rest.step(0)
    assert rest.run(0, 60) == []
    [line] = rest.run(60, 600)
    assert (line.is_over, rest.read) == (False, [60.0])
    rest.sleeps = b"signal"
    assert rest.run(600, 606) == []
    rest.place = 2
    assert [one.is_over for one in rest.run(606, 660)] == [True]


def test_a_main_thread_that_runs_again_at_the_same_place_rests_no_more(monkeypatch):
    rest = Resting(monkeypatch)
    assert len(rest.run(0, 66)) == 1
    assert [one.is_over for one in rest.run(66, 90, is_woken=True)] == [True]
    assert rest.run(90, 600, is_woken=True) == []
    assert len(rest.run(600, 666)) == 1


def test_a_main_thread_that_runs_is_told_only_where_it_waits_for_devices(monkeypatch):
    """As jaxlib wakes now and then. Without the numbers of the operating system, it is the same."""
    for sleeps in (b"1", None):
        for waits_in, count in (("jax.block_until_ready", 1), ("queue.Queue.get", 0), (None, 0)):
            rest = Resting(monkeypatch, waits_in=waits_in)
            rest.sleeps = sleeps
            assert len(rest.run(0, 600, is_woken=True)) == count
            assert len(rest.read) == 1  # reading the stack takes time
            rest.place = 2
            assert len(rest.run(600, 606)) == count


def test_a_loop_that_waits_for_devices_at_one_line_is_told_ever_more_rarely(monkeypatch):
    rest, lines = Resting(monkeypatch, waits_in="jax.block_until_ready"), []
    for second in range(0, 6 * 3600, 66):
        rest.place = second
        lines += rest.run(second, second + 66, is_woken=True)
    assert len(lines) == 2


def test_a_program_at_a_prompt_is_looked_at_once(monkeypatch):
    rest = Resting(monkeypatch, origin=None)
    assert rest.run(0, 3600) == []
    assert len(rest.read) == 1


def test_with_two_steps_a_main_thread_that_runs_does_not_stall(monkeypatch):
    rest = Resting(monkeypatch)
    rest.step(0)
    rest.step(1)
    assert rest.run(0, 3600, is_woken=True) == []


def test_a_step_that_moves_after_it_was_read_is_no_stall():
    steps = Steps(0, 1, 2)

    def step():
        steps.moves.append((steps.begin + 100, 1))
        return 3

    steps.watch = Watch(step, steps.moves)
    assert steps.look(100) is None


def test_after_a_pause_of_the_process_it_is_looked_again():
    """The stacks of a process that goes on are not those of the stall."""
    steps = Steps(0, 1, 2)
    assert steps.look(200, late=100) is None
    assert steps.next_look == pytest.approx(206)
    assert steps.look(206).step == 3


def test_the_mark_is_the_one_that_the_program_is_in():
    steps, now = Steps(), time.time()
    steps.watch.mark(now, "train", None, None)
    for second in range(3):
        steps.step(second)
    steps.watch.mark(now + 2, "eval", 3, None)
    steps.watch.mark(now + 3, "eval", 3, now + 2)
    assert steps.look(70).mark == "train"


def test_marks_that_follow_each_other_end_with_the_one_around_them():
    steps, now = Steps(-9, -8, -7), time.time()
    for second, name in enumerate(["train", "warm-up", "go"]):
        steps.watch.mark(now + second, name, 3, None)
    steps.watch.mark(now + 5, "train", 3, now)
    assert steps.look(70).mark is None


def test_a_program_that_has_left_the_mark_of_its_loop_does_not_stall():
    steps, now = Steps(), time.time()
    steps.watch.mark(now, "train", None, None)
    for second in range(1, 4):
        steps.step(second)
    steps.watch.mark(now + 4, "train", 3, now)
    assert steps.look(70) is None
    steps.watch.mark(now + 80, "save", 3, None)
    assert steps.look(90).mark == "save"


def test_a_mark_in_each_step_is_not_that_of_the_loop():
    """Between two of them, a program may wait for its next batch for ever."""
    steps, now = Steps(), time.time()
    for second in range(1, 5):
        steps.watch.mark(now + second - 0.5, "step", steps.number, None)
        steps.step(second)
        steps.watch.mark(now + second, "step", steps.number, now + second - 0.5)
    assert steps.look(70).step == 4


def test_as_many_marks_are_remembered_as_may_be_around_each_other():
    steps = Steps(0, 1, 2)
    for number in range(1000):
        steps.watch.mark(float(number), f"mark {number}", 3, None)
    assert len(steps.watch._open) == stalls._MOST_OPEN
    assert steps.look(70).mark == "mark 999"


def waiting(work):
    """Start a thread that works, and return it once it does, by its stack."""
    thread = threading.Thread(target=work, name="worker", daemon=True)
    thread.start()
    return thread


def seen(thread, step=3):
    """Return the stall whose steps a thread names."""
    return elsewhere(stalls._stall, thread.ident, step, None, 60.0)


def test_the_call_that_a_line_waits_in_is_named():
    done = threading.Event()
    slow = SimpleNamespace(block_until_ready=done.wait)

    def fetch():
        jax.block_until_ready(slow)

    def read():
        done.wait()

    try:
        for work, call in ((fetch, "jax.block_until_ready"), (read, "threading.Event.wait")):
            thread = waiting(work)
            until(lambda thread=thread, call=call: (found := seen(thread)) and found.waits_in == call)
            stall = seen(thread)
            assert stall.origin.function == work.__name__
            assert stall.threads[0].name == "worker"
            assert stall.threads[0].frames[0].function == "wait"
            assert "MainThread" in [one.name for one in stall.threads]
    finally:
        done.set()


@pytest.mark.parametrize(
    ("frames", "call"),
    [
        ([], None),
        (
            [("jax._x.array", "ArrayImpl._value"), ("jax._x.array", "ArrayImpl.__float__")],
            "jax.Array.__float__",
        ),
        (
            [("jax._x.a", "f"), ("jax.experimental.b", "sync_global_devices")],
            "multihost_utils.sync_global_devices",
        ),
        ([("jax._x.pjit", "cache_miss"), ("jax._x.traceback_util", "reraise")], None),
        ([("jax._x.api", "device_get"), ("flax.a", "g")], "jax.device_get"),
        ([("queue", "Queue.get"), ("torch.data", "Loader.next")], "torch.data.Loader.next"),
    ],
)
def test_calls_have_the_names_that_a_user_knows(frames, call):
    found = [(SimpleNamespace(co_qualname=name), 1, module) for module, name in frames]
    assert stalls._call(found) == call


def test_a_program_that_waits_for_its_user_does_not_stall():
    """Where no code of the user runs in the thread that names the steps."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait, daemon=True)
    thread.start()
    assert seen(thread) is None
    done.set()


def test_the_main_thread_stands_for_a_thread_that_has_ended():
    assert seen(SimpleNamespace(ident=-1)).threads[0].name == "MainThread"


def test_a_line_is_bounded():
    """Also with very many threads, deep stacks and long names."""
    done, ready = threading.Event(), threading.Barrier(41)
    name = "größe" * 1000
    code = f"def {name}(depth):\n    return {name}(depth - 1) if depth else (ready.wait(), done.wait())"
    space = {"ready": ready, "done": done}
    exec(compile(code, "/home/" + "x" * 5000 + ".py", "exec"), space)
    threads = [
        threading.Thread(target=space[name], args=(300,), name="t" * 5000, daemon=True) for _ in range(40)
    ]
    try:
        for thread in threads:
            thread.start()
        ready.wait(60)
        stall = seen(threads[0])
    finally:
        done.set()
    assert len(stall.threads) == MOST_THREADS
    assert max(len(one.frames) for one in stall.threads) == MOST_FRAMES
    assert len(encoded(stall)) < 2**18
    assert encoded(stall).endswith(b"\n")


def test_a_user_line_far_out_is_found():
    """Below a recursion of a library."""
    done = threading.Event()
    space = {"done": done}
    code = "def inner(depth):\n    return inner(depth - 1) if depth else done.wait()"
    exec(compile(code, f"{threading.__file__}", "exec"), space)

    def user():
        space["inner"](200)

    thread = waiting(user)
    until(lambda: (found := seen(thread)) and found.waits_in)
    assert seen(thread).origin.function == "user"
    done.set()


def test_nothing_in_a_frame_is_kept_alive():
    done, ready = threading.Event(), threading.Event()
    references = []

    def work():
        array = np.zeros(3)
        references.append(weakref.ref(array))
        ready.set()
        done.wait()

    gc.disable()
    try:
        thread = waiting(work)
        ready.wait()
        assert seen(thread).origin.function == "work"
        done.set()
        thread.join()
        assert references[0]() is None
    finally:
        gc.enable()


def stalls_in(folder):
    return sum(path.read_bytes().count(b'{"line":"stall"') for path in folder.glob("*.jsonl"))


def test_a_recorder_writes_each_stall_once_until_it_stops(tmp_path, monkeypatch):
    monkeypatch.setattr(stalls, "LEAST", 0.02)
    with record_memory(tmp_path, every=0.01) as recorder:
        for number in (7, 8, 9):
            recorder.step(number)
        with recorder.mark("eval"):
            until(lambda: stalls_in(tmp_path) == 1)
        recorder.step(9)  # has not moved
        recorder.step(10)
        until(lambda: stalls_in(tmp_path) == 2)
        recorder.step(11)
    recorder.step(12)
    first, second, *more = of_kind(record_of(tmp_path), "stall")
    assert (first.step, first.mark, second.step, second.mark) == (9, "eval", 10, None)
    assert first.origin.function == "until"
    assert first.since < first.time <= second.since
    assert {stall.step for stall in more} <= {11}
    assert timeline_report(tmp_path).processes[0].stall is None


@pytest.mark.skipif(
    not STATUS.exists() or "\nvoluntary_ctxt_switches:" not in STATUS.read_text(),
    reason="only Linux counts in /proc how often a thread has slept; elsewhere such a thread is not told",
)
def test_a_main_thread_that_sleeps_is_told_by_a_recorder_without_steps(tmp_path, monkeypatch):
    """Until it goes on."""
    monkeypatch.setattr(stalls, "LEAST", 0.1)
    done = threading.Event()
    with record_memory(tmp_path, every=0.01):
        timer = threading.Thread(target=lambda: until(lambda: stalls_in(tmp_path)) or done.set())
        timer.start()
        done.wait()
        timer.join()
        until(lambda: stalls_in(tmp_path) == 2)
    first, second, *_ = of_kind(record_of(tmp_path), "stall")
    assert (first.step, first.is_over, first.waits_in) == (None, False, "threading.Event.wait")
    assert first.origin.function == "test_a_main_thread_that_sleeps_is_told_by_a_recorder_without_steps"
    assert second.is_over
    assert timeline_report(tmp_path).processes[0].stall is None


def test_a_thread_that_runs_or_is_not_known_has_no_number_of_sleeps(monkeypatch):
    assert stalls._sleeps(threading.get_native_id()) is None
    assert stalls._sleeps(-1) is None
    uncounted = b"Name:\tpython\nState:\tS (sleeping)\n"
    monkeypatch.setattr(stalls, "open", lambda *_: io.BytesIO(uncounted), raising=False)
    assert stalls._sleeps(1) is None


@pytest.mark.parametrize(
    ("expression", "call"),
    [
        ("made().block_until_ready()", "jax.block_until_ready"),
        ("jax.block_until_ready(made())", "jax.block_until_ready"),
        ("float(made())", "jax.Array.__float__"),
        ("int(made())", "jax.Array.__int__"),
        ("np.asarray(array)", "jax.Array.__array__"),
        ("np.asarray(made())", "jax.Array.__array__"),
        ("np.asarray(memory_map)", None),
        ("array.block_until_ready()", "jax.block_until_ready"),
        ("made().item()", "jax.Array.item"),
        ("step(array)", "the jitted function step"),
        ("other.wait_for(array)", None),
        ("lock + lock", None),
    ],
)
def test_the_expression_tells_that_a_line_waits_for_devices(tmp_path, expression, call):
    """Where the call has no frame of Python."""
    space = {"made": object, "other": SimpleNamespace(wait_for=1), "lock": 1, "memory_map": np.zeros(1)}
    space |= {"array": jax.numpy.ones(1), "step": jax.jit(lambda x: x)}
    space |= {"jax": jax, "np": np}
    path = tmp_path / "train.py"
    path.write_text(f"x = [\n    1, {expression}\n]\n")
    code = compile(path.read_text(), str(path), "exec")
    at = [one.offset for one in dis.get_instructions(code) if one.opname.startswith(("CALL", "BINARY_OP"))][
        -1
    ]
    frame = SimpleNamespace(f_code=code, f_globals=space, f_locals=space, f_lasti=at, f_lineno=2)
    assert stalls._call_without_frame(stalls._callee(frame)) == call


def test_an_error_in_the_search_leaves_the_record_as_it_is(tmp_path, monkeypatch, recwarn):
    looks = []

    def broken(*_):
        looks.append(1)
        raise ZeroDivisionError

    monkeypatch.setattr(stalls, "LEAST", 0.001)
    monkeypatch.setattr(stalls, "_stall", broken)
    with record_memory(tmp_path, every=0.01) as recorder:
        for _ in range(3):
            recorder.step()
        until(lambda: looks)
        recorder.mark("later")
    assert [mark.name for mark in of_kind(record_of(tmp_path), "mark")] == ["later"]
    assert record_of(tmp_path)[-1].reason == "stopped"
    assert not recwarn.list


def test_stalls_stay_in_a_segment_that_loses_samples(tmp_path):
    samples = samples_of([], {}, 3 * FEWEST)
    name = "process-0-20260101T000000-000.jsonl"
    path = write_record(tmp_path, [record_start(), *samples, record_stall(90.0, 7)], name)
    size = path.stat().st_size
    for _ in thin_segments(tmp_path, 0, size - 1):
        pass
    lines = lines_in(path)
    assert len(lines) < 2 + len(samples)
    assert of_kind(lines, "stall") == [record_stall(90.0, 7)]
