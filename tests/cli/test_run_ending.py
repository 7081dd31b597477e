"""Signals and timeouts of ``jai-cli run``: no process is left running."""

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.launching import all_end, is_running, lines_until, run, start, start_in_time, write_program

pytestmark = pytest.mark.own_process

FAMILY = """
    import os, subprocess, sys, time
    parent = os.getpid()
    sleeper = [sys.executable, "-c", "import time; time.sleep(1000)"]
    child = subprocess.Popen(sleeper, stderr=subprocess.DEVNULL)
    escaped = subprocess.Popen(sleeper, stderr=subprocess.DEVNULL, start_new_session=True)
    reading, writing = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:  # an orphan in its own session
            os.setsid()
            os.write(writing, str(os.getpid()).encode())
            time.sleep(1000)
        os._exit(0)
    os.wait()
    orphan = os.read(reading, 20).decode()
    try:
        print("family", parent, child.pid, escaped.pid, orphan, flush=True)
        time.sleep(1000)
    finally:
        print("finally", flush=True)
"""


def family(launcher, processes):
    """Return the ids of all processes that the program has started."""
    found = []
    for _ in range(processes):
        line = lines_until(launcher.stdout, "family")[-1]
        found += map(int, line.split("family ")[1].split())
    return found


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    ("ending", "code"), [("int", 130), ("term", 143), ("hup", 129), ("kill", -9), ("kill group", -9)]
)
def test_nothing_is_left_running(tmp_path, ending, code, processes):
    launcher = start("--processes", processes, write_program(tmp_path, FAMILY))
    found = family(launcher, processes)
    assert all(map(is_running, found))
    if ending == "kill group":
        os.killpg(launcher.pid, signal.SIGKILL)
    else:
        launcher.send_signal(signal.Signals[f"SIG{ending.upper()}"])
    out, err = launcher.communicate(timeout=300)
    assert launcher.returncode == code
    assert all_end(found)
    if ending == "int":
        assert out.count("finally") == processes
        assert err.count("KeyboardInterrupt") == processes


@pytest.mark.parametrize("processes", [1, 2])
def test_nothing_is_left_running_when_the_supervisor_is_killed(tmp_path, processes):
    launcher = start("--processes", processes, write_program(tmp_path, FAMILY))
    found = family(launcher, processes)
    (supervisor,) = subprocess.check_output(["ps", "-o", "pid=", "--ppid", str(launcher.pid)]).split()
    os.kill(int(supervisor), signal.SIGKILL)
    assert launcher.wait(timeout=300) == 128 + 9
    assert all_end(found)


@pytest.mark.parametrize("how", ["end", "fail"])
def test_nothing_is_left_running_when_the_program_ends(tmp_path, how):
    ends = FAMILY.replace("time.sleep(1000)\n    finally", f"assert {how == 'end'}\n    finally")
    launcher = start("--devices", "1", write_program(tmp_path, ends))
    found = family(launcher, 1)
    assert launcher.wait(timeout=300) == (how == "fail")
    assert all_end(found)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_timeout_stops_all_processes_and_prints_their_stacks(tmp_path, processes):
    program = write_program(tmp_path, FAMILY)
    launcher, found, seconds = start_in_time(
        program, lambda run: family(run, processes), "--processes", processes
    )
    _, err = launcher.communicate(timeout=300)
    assert launcher.returncode == 124
    line = 1 + Path(program).read_text().splitlines().index("    time.sleep(1000)")
    expected = []
    for process in range(processes):
        prefix = f"[{process}] " if processes > 1 else ""
        expected.append(f"{prefix}Current thread (most recent call first):")
        expected.append(f'{prefix}  File "{program}", line {line} in <module>')
    expected.append(f"jai-cli run: timed out after {seconds} s (--timeout)")
    assert re.sub(r" 0x[0-9a-f]+( \[.*?\])?", "", err).splitlines() == expected
    assert all_end(found)


FORKS_AND_EXITS = """
    import os, signal, time
    os.open("alive", os.O_WRONLY)  # open in each process until it ends
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if os.fork():
                os._exit(0)
            os.setsid()
"""


def test_processes_that_fork_and_exit_all_the_time_are_ended(tmp_path):
    os.mkfifo(tmp_path / "alive")
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    ends = select.poll()
    ends.register(reader, 0)
    launcher = start("--devices", "1", write_program(tmp_path, FORKS_AND_EXITS), cwd=tmp_path)
    assert launcher.wait(timeout=300) == 0
    assert ends.poll(0) == [(reader, select.POLLHUP)]
    os.close(reader)


ORPHANS = """
    import os, subprocess, time
    started = [subprocess.check_output(["sh", "-c", "true & echo $!"], text=True) for _ in range(3)]
    while any(os.path.exists(f"/proc/{process.strip()}") for process in started):
        time.sleep(0.01)
"""


def test_orphans_that_exit_do_not_stay_as_zombies(tmp_path):
    options = ("--devices", "1", "--timeout", "100")
    assert run(*options, write_program(tmp_path, ORPHANS)).returncode == 0


STUCK = """
    import ctypes

    def wait_in_c():
        # Keeps the GIL, and signals do not interrupt it.
        library, lock = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
        print("locking", flush=True)
        library.pthread_mutex_lock(lock)
        library.pthread_mutex_lock(lock)

    wait_in_c()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux is a zeroed buffer a valid mutex")
def test_a_timeout_prints_the_stack_of_a_process_that_waits_in_c(tmp_path):
    program = write_program(tmp_path, STUCK)
    launcher, *_ = start_in_time(program, lambda run: lines_until(run.stdout, "locking"), "--devices", "1")
    _, err = launcher.communicate(timeout=300)
    assert launcher.returncode == 124
    assert re.search(
        r"program\.py\", line 9 in wait_in_c\n.*program\.py\", line 11 in <module>\njai-cli", err
    )


def test_waiting_for_a_process_that_never_joins_is_an_error(tmp_path):
    program = write_program(
        tmp_path,
        f"""
        import os
        try:
            os.mkdir({str(tmp_path / "taken")!r})
        except FileExistsError:
            import jax
        print("not joined")
        """,
    )
    done = run("--processes", "3", "--devices", "1", program)
    assert done.returncode == 1
    assert re.fullmatch(
        r"jai-cli run: process (\d) of 3 exited without importing jax, but process (?!\1)\d waits for it\."
        r" Import jax in every process or in none\.\n",
        done.stderr,
    )
    assert done.stdout.count("not joined") == 1


def test_a_failing_fork_does_not_lose_the_stacks(tmp_path):
    program = write_program(
        tmp_path,
        """
        import os, sys, time
        import jax
        if os.fork() == 0:
            sys.exit(3)
        os.wait()
        print("hangs", flush=True)
        def here():
            while True:
                time.sleep(0.1)
        here()
        """,
    )
    done = run("--devices", "1", "--timeout", "20", program)
    assert done.returncode == 124
    assert "in here" in done.stderr


def test_a_program_that_ignores_signals_is_killed(tmp_path):
    program = write_program(
        tmp_path,
        """
        import signal, time
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        print("ready", flush=True)
        while True:
            time.sleep(1000)
        """,
    )
    launcher = start("--devices", "1", program)
    lines_until(launcher.stdout, "ready")
    launcher.send_signal(signal.SIGTERM)
    launcher.communicate(timeout=300)
    assert launcher.returncode == 143


def test_signals_that_nohup_ignores_stay_ignored(tmp_path):
    program = write_program(tmp_path, "print('ready', flush=True)\ninput()")
    launcher = start(
        "--devices",
        "1",
        program,
        stdin=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    lines_until(launcher.stdout, "ready")
    launcher.send_signal(signal.SIGHUP)
    launcher.communicate("\n", timeout=300)
    assert launcher.returncode == 0


def test_outside_linux_a_message_warns_of_processes_left_behind(tmp_path):
    code = "import sys; sys.platform = 'darwin'; from jax_array_info_cli import main; main()"
    done = run("--processes", "2", write_program(tmp_path, "print('here')"), code=code)
    assert done.returncode == 0
    assert (
        done.stderr
        == "jai-cli run: outside Linux, processes that the program leaves behind may keep running\n"
    )
    assert sorted(done.stdout.splitlines()) == ["[0] here", "[1] here"]
