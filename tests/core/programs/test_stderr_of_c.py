"""Lines that are taken out of C's standard error."""

import _thread
import ctypes
import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from jax_array_info_core.programs import stderr_of_c
from jax_array_info_core.programs.stderr_of_c import captured_from_c
from tests.c_stderr import LIBRARY, VARIABLE, write_in_c

pytestmark = pytest.mark.oldest_and_newest


def take(line):
    """Take what begins with TAKE."""
    start = line.find(b"TAKE")
    return None if start < 0 else start


def captured(function, take=take):
    """Return the lines that are taken."""
    return captured_from_c(function, take)


def global_things():
    """Return the descriptor of the stream, the handler of SIGABRT with its mask, the descriptors and the number of threads."""
    action = ctypes.create_string_buffer(256)
    LIBRARY.sigaction(signal.SIGABRT, None, action)
    return LIBRARY.fileno(VARIABLE), action.raw[:16], sorted(os.listdir("/dev/fd")), _thread._count()


def assert_soon_as(before):
    """Fail unless all is as before, after the thread has seen an interrupt."""
    deadline = time.monotonic() + 60
    while (now := global_things()) != before and time.monotonic() < deadline:  # a thread may begin late
        time.sleep(0.005)
    assert now == before


@pytest.fixture(autouse=True)
def file():
    """Open the file, which stays open."""
    captured(lambda: None)


def test_lines_are_taken_and_all_else_passes_in_order(capfd):
    lines = ["one", "TAKE 1", "two\rthree", "\x01four TAKE 2", "TAKE a long one" * 100, "five"]
    assert captured(lambda: write_in_c(*lines)) == [
        b"TAKE 1\n",
        b"TAKE 2\n",
        b"TAKE a long one" * 100 + b"\n",
    ]
    write_in_c("TAKE after")
    assert capfd.readouterr().err == "one\ntwo\rthree\n\x01four five\nTAKE after\n"


def children():
    """Return the processes that this one has started: tests of other files may have left some."""
    found = Path("/proc/self/task").glob("*/children")
    return {child for file in found for child in file.read_text().split()}


def test_python_and_children_write_to_the_same_descriptor_as_before(capfd):
    before, others = os.fstat(2), children()

    def write():
        assert os.fstat(2) == before
        for _ in range(20):
            os.write(2, b"TAKE 1\n")
            subprocess.run(["/bin/sh", "-c", "echo TAKE 2 >&2"], check=True)
        assert children() <= others

    assert captured(write) == []
    assert capfd.readouterr().err == "TAKE 1\nTAKE 2\n" * 20


def test_output_is_not_held_back_until_the_function_ends():
    read, write = os.pipe()
    real = os.dup(2)
    os.dup2(write, 2)

    def work():
        for text in ("slow compile?", "done"):
            write_in_c(text)
            assert select.select([read], [], [], 60)[0]
            assert os.read(read, 100).decode() == f"{text}\n"
        LIBRARY.fputs(b"no line break", VARIABLE)
        assert select.select([read], [], [], 60)[0]

    try:
        captured(work)
    finally:
        os.dup2(real, 2)
        for descriptor in (read, write, real):
            os.close(descriptor)


def test_much_output_of_several_threads_passes_in_order(capfd):
    def work():
        threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def write(name):
        write_in_c(*(f"{name} {number} {'x' * 99}" for number in range(2000)))

    assert captured(work) == []
    lines = capfd.readouterr().err.splitlines()
    for name in "abcd":
        own = [line for line in lines if line.startswith(name)]
        assert own == [f"{name} {number} {'x' * 99}" for number in range(2000)]


def test_each_of_16_threads_takes_its_own_lines(capfd):
    found = {}

    def work(number):
        for turn in range(3):
            found[number, turn] = captured(
                lambda t=turn: write_in_c(f"pass {number} {t}", f"TAKE {number} {t}")
            )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {(n, t): [f"TAKE {n} {t}\n".encode()] for n in range(16) for t in range(3)}
    lines = capfd.readouterr().err.splitlines()
    assert sorted(lines) == sorted(f"pass {n} {t}" for n in range(16) for t in range(3))


def test_inside_another_function_nothing_is_captured(capfd):
    inner = []
    outer = captured(lambda: inner.append(captured(lambda: write_in_c("TAKE", "x"))))
    assert (outer, inner) == ([b"TAKE\n"], [None])
    assert capfd.readouterr().err == "x\n"


def test_all_is_put_back_after_an_error(capfd):
    before = global_things()

    def fail():
        assert global_things()[:2] != before[:2]
        write_in_c("inside")
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        captured(fail)
    assert_soon_as(before)
    assert capfd.readouterr().err == "inside\n"


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_standard_error_that_is_closed_or_full_does_not_hang(is_closed, monkeypatch):
    monkeypatch.setattr(stderr_of_c, "_PATIENCE", 0.01)
    read, write = os.pipe()
    os.set_blocking(write, False)
    real = os.dup(2)
    os.dup2(write, 2)
    try:
        if is_closed:
            os.close(2)
        assert captured(lambda: write_in_c("TAKE 1", *["x" * 999] * 500, "TAKE 2")) == [
            b"TAKE 1\n",
            b"TAKE 2\n",
        ]
    finally:
        os.dup2(real, 2)
        for descriptor in (read, write, real):
            os.close(descriptor)


def test_an_interrupt_at_any_instruction_leaves_all_as_before(capfd, monkeypatch):
    monkeypatch.setattr(stderr_of_c, "_PAUSE", 0.002)
    before = global_things()
    found, at = [], 0
    codes = {
        value.__code__
        for value in vars(stderr_of_c).values()
        if getattr(value, "__module__", "") == stderr_of_c.__name__ and hasattr(value, "__code__")
    }

    def trace(frame, event, _):
        nonlocal seen
        frame.f_trace_opcodes = frame.f_code in codes
        if event == "opcode" and frame.f_code in codes:
            seen += 1
            if seen == at:
                raise KeyboardInterrupt
        return trace

    sys._getframe().f_trace_opcodes = True  # else Python 3.12 does not look at that of other frames
    while True:
        at, seen = at + 1, 0
        old = sys.gettrace()
        sys.settrace(trace)
        try:
            found += captured(lambda: write_in_c("TAKE", "x"))
            break
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(old)
        assert_soon_as(before)
    assert at > 50
    assert found == [b"TAKE\n"]
    assert capfd.readouterr().err.count("x\n") > 10


def test_interrupts_at_random_moments_leave_all_as_before(capfd):
    before = global_things()
    written, interrupted = 0, 0

    def write():
        nonlocal written
        for _ in range(5):
            write_in_c("x")
            written += 1

    old = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for number in range(200):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + number * 5e-6)
                captured(write)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, old)
    assert interrupted
    assert_soon_as(before)
    assert captured(lambda: None) == []
    assert 0 <= capfd.readouterr().err.count("x\n") - written <= interrupted


START = """
    import ctypes, os, signal, subprocess, sys, threading, time
    sys.path.insert(0, sys.argv[1])
    from tests.c_stderr import LIBRARY, write_in_c
    from jax_array_info_core.programs.stderr_of_c import captured_from_c
    take = lambda line: 0 if b"TAKE" in line else None
"""


def ended(code, *options):
    """Return the exit status and standard error of a program."""
    program = [sys.executable, *options, "-c", textwrap.dedent(START) + textwrap.dedent(code)]
    done = subprocess.run(
        [*program, str(Path(__file__).parents[3])], capture_output=True, timeout=100, check=False
    )
    return done.returncode, done.stderr.decode()


ABORTS = {
    "this thread": "LIBRARY.abort()",
    "another thread": "threading.Thread(target=LIBRARY.abort).start(); time.sleep(100)",
    "another process": "subprocess.Popen(['/bin/sh', '-c', 'sleep 0.2; kill -ABRT $PPID']); time.sleep(100)",
}


@pytest.mark.skipif(sys.platform == "darwin", reason="its C library has no sysv_signal")
@pytest.mark.own_process
@pytest.mark.newest
@pytest.mark.parametrize("has_handler", [False, True])
@pytest.mark.parametrize("abort", ABORTS.values(), ids=ABORTS.keys())
def test_last_words_and_handlers_from_before_are_seen_when_the_process_aborts(abort, has_handler):
    code = f"""
        def work():
            write_in_c("first")
            time.sleep(0.2)
            write_in_c("F1122 10:00 check failed", "last words")
            {abort}
        captured_from_c(work, take)
    """
    status, text = ended(code, *["-Xfaulthandler"] * has_handler)
    assert status == -signal.SIGABRT
    first, _, rest = text.partition("last words\n")
    assert first == "first\nF1122 10:00 check failed\n"
    assert rest.startswith("Fatal Python error: Aborted") if has_handler else not rest
    assert "in work\n" in rest or not has_handler


@pytest.mark.own_process
@pytest.mark.newest
def test_a_handler_of_others_is_neither_replaced_nor_taken_for_an_abort():
    code = """
        import faulthandler
        faulthandler.enable()
        def work():
            faulthandler.disable()
            time.sleep(0.3)
            faulthandler.enable()
        captured_from_c(work, take)
        assert faulthandler.is_enabled()
        write_in_c("last words")
        os.abort()
    """
    status, text = ended(code)
    assert status == -signal.SIGABRT
    assert text.startswith("last words\nFatal Python error: Aborted")


@pytest.mark.own_process
@pytest.mark.newest
def test_a_forked_process_has_the_real_standard_error():
    code = """
        def work():
            if os.fork() == 0:
                write_in_c("TAKE child")
            else:
                assert os.wait()[1] == 0
        outer = captured_from_c(work, take)
        inner = captured_from_c(lambda: write_in_c("TAKE inside", "x"), take)
        write_in_c(f"{outer} {inner}")
    """
    assert ended(code, "-Wignore") == (
        0,
        "TAKE child\nx\n[] [b'TAKE inside\\n']\n" + "x\n[] [b'TAKE inside\\n']\n",
    )


@pytest.mark.own_process
@pytest.mark.newest
def test_a_process_that_ends_meanwhile_passes_on_what_came_before():
    code = """
        def work():
            write_in_c("last words")
            is_written.set()
            time.sleep(100)
        is_written = threading.Event()
        threading.Thread(target=captured_from_c, args=(work, take), daemon=True).start()
        is_written.wait()
        sys.exit(3)
    """
    assert ended(code) == (3, "last words\n")


@pytest.mark.own_process
@pytest.mark.newest
def test_threads_that_write_while_they_hold_the_lock_of_python_do_not_wait_forever():
    code = """
        def write():
            while not is_over:
                ctypes.PyDLL(None).fputs(b"x\\n", stream)
        is_over = False
        stream = ctypes.c_void_p.in_dll(LIBRARY, "__stderrp" if sys.platform == "darwin" else "stderr")
        threads = [threading.Thread(target=write, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            captured_from_c(lambda: time.sleep(0.1), take)
        is_over = True
    """
    assert ended(code)[0] == 0


@pytest.mark.own_process
@pytest.mark.newest
def test_a_thread_that_waits_for_a_reader_of_standard_error_stops_no_other():
    code = """
        import select
        read, write = os.pipe()
        os.dup2(write, 2)
        threading.Thread(target=write_in_c, args=("x" * 10_000_000,), daemon=True).start()
        select.select([read], [], [])
        captured_from_c(lambda: None, take)
        os._exit(0)
    """
    assert ended(code)[0] == 0


@pytest.mark.own_process
@pytest.mark.newest
def test_files_that_have_the_descriptor_of_one_that_the_program_closed_are_not_changed():
    code = """
        import tempfile
        captured_from_c(lambda: None, take)
        os.closerange(3, 100)
        file = tempfile.TemporaryFile(buffering=0)
        file.write(b"precious")
        lines = captured_from_c(lambda: write_in_c("TAKE"), take)
        assert os.pread(file.fileno(), 100, 0) == b"precious"
        again = captured_from_c(lambda: write_in_c("TAKE"), take)
        write_in_c(f"{lines} {again}")
        os.closerange(file.fileno() + 1, 100)
    """
    assert ended(code) == (0, "TAKE\nNone [b'TAKE\\n']\n")


@pytest.mark.own_process
@pytest.mark.newest
def test_a_limit_on_the_size_of_files_loses_no_line():
    code = """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        write_in_c(str(captured_from_c(lambda: write_in_c("TAKE"), take)))
    """
    assert ended(code) == (0, "TAKE\nNone\n")
