"""Signals and timeouts of ``jai-cli run``: the processes end together, with the groups that they lead."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.launching import (
    STUCK,
    all_end,
    is_running,
    lines_until,
    run,
    start,
    start_in_time,
    write_program,
)

pytestmark = [pytest.mark.own_process, pytest.mark.newest]

FAMILY = """
    import os, signal, subprocess, sys, time
    parent = os.getpid()
    sleeper = [sys.executable, "-c", "import time; time.sleep(1000)"]
    child = subprocess.Popen(sleeper, stderr=subprocess.DEVNULL)
    reading, writing = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:  # an orphan
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback
            os.write(writing, str(os.getpid()).encode())
            time.sleep(1000)
        os._exit(0)
    os.wait()
    orphan = os.read(reading, 20).decode()
    try:
        print("family", parent, child.pid, orphan, flush=True)
        time.sleep(1000)
    finally:
        print("finally", flush=True)
"""


def family(launcher, processes):
    """Return the ids of the processes that run the program, and of all that these have started."""
    found = []
    for _ in range(processes):
        line = lines_until(launcher.stdout, "family")[-1]
        found += map(int, line.split("family ")[1].split())
    return found


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(("ending", "code"), [("int", 130), ("term", 143), ("hup", 129)])
def test_a_signal_ends_the_groups_of_all_processes(tmp_path, ending, code, processes):
    launcher = start("--processes", processes, write_program(tmp_path, FAMILY))
    found = family(launcher, processes)
    assert all(map(is_running, found))
    launcher.send_signal(signal.Signals[f"SIG{ending.upper()}"])
    out, err = launcher.communicate(timeout=300)
    assert launcher.returncode == code
    assert all_end(found)
    if ending == "int":
        assert out.count("finally") == processes
        assert err.count("KeyboardInterrupt") == processes


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not end a process with its parent")
@pytest.mark.parametrize("ending", ["kill", "kill group", "stop and kill"])
def test_the_processes_end_when_the_launcher_is_killed(tmp_path, ending):
    program = write_program(tmp_path, "import os, time\nprint('family', os.getpid())\ntime.sleep(1000)")
    launcher = start("--processes", 2, program)
    found = family(launcher, 2)
    if ending == "stop and kill":
        launcher.send_signal(signal.SIGSTOP)
        assert all(map(is_running, found))
    (os.killpg if ending == "kill group" else os.kill)(launcher.pid, signal.SIGKILL)
    launcher.communicate(timeout=300)
    assert launcher.returncode == -9
    assert all_end(found)


def test_a_second_interrupt_does_not_wait_for_the_first(tmp_path):
    program = write_program(
        tmp_path,
        """
        import os, signal, time
        signal.signal(signal.SIGINT, lambda *_: print("interrupted"))
        signal.signal(signal.SIGTERM, lambda *_: print("terminated"))
        print("family", os.getpid())
        while True:
            time.sleep(1000)
        """,
    )
    launcher = start("--processes", 2, program)
    found = family(launcher, 2)
    begin = time.monotonic()
    for word in ("interrupted", "terminated"):
        launcher.send_signal(signal.SIGINT)
        for _ in found:
            lines_until(launcher.stdout, word)
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(timeout=300) == 130
    assert time.monotonic() - begin < 5
    assert all_end(found)


def test_processes_that_close_their_output_hold_up_nothing(tmp_path):
    program = write_program(
        tmp_path,
        """
        import os, time
        print("family", os.getpid(), flush=True)
        os.close(1)
        os.write(2, b"closed\\n")
        os.close(2)
        time.sleep(1000)
        """,
    )
    launcher = start("--processes", 4, program)
    found = family(launcher, 4)
    for _ in found:
        lines_until(launcher.stderr, "closed")
    begin = time.monotonic()
    launcher.terminate()
    assert launcher.wait(timeout=300) == 143
    assert time.monotonic() - begin < 5
    assert all_end(found)


@pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read from /proc")
@pytest.mark.parametrize("processes", [1, 2])
def test_the_terminal_can_suspend_and_resume_all_processes(tmp_path, processes):
    program = write_program(
        tmp_path, "import os, time\nprint('family', os.getpid(), flush=True)\nwhile True: time.sleep(0.01)"
    )
    launcher = start("--processes", processes, program)
    found = [*family(launcher, processes), launcher.pid]

    def are(states):
        stats = (Path(f"/proc/{process}/stat").read_text().rpartition(")")[2] for process in found)
        return all(stat.split()[0] in states for stat in stats)

    deadline = time.monotonic() + 20
    for number, states in ((signal.SIGTSTP, "T"), (signal.SIGCONT, "RS")):
        launcher.send_signal(number)
        while not are(states):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    launcher.terminate()
    launcher.communicate(timeout=300)
    assert all_end(found)


@pytest.mark.parametrize("how", ["end", "fail"])
def test_the_group_of_a_process_ends_with_the_run(tmp_path, how):
    ends = FAMILY.replace("time.sleep(1000)\n    finally", f"assert {how == 'end'}\n    finally")
    launcher = start("--processes", "1", write_program(tmp_path, ends))
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


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux is a zeroed buffer a valid mutex")
def test_a_timeout_prints_the_stack_of_a_process_that_waits_in_c(tmp_path):
    program = write_program(tmp_path, STUCK)
    launcher, *_ = start_in_time(program, lambda run: lines_until(run.stdout, "locking"), "--processes", "1")
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
    done = run("--processes", "1", "--timeout", "20", program)
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
    launcher = start("--processes", "1", program)
    lines_until(launcher.stdout, "ready")
    launcher.send_signal(signal.SIGTERM)
    launcher.communicate(timeout=300)
    assert launcher.returncode == 143


def test_signals_that_nohup_ignores_stay_ignored(tmp_path):
    program = write_program(tmp_path, "print('ready', flush=True)\ninput()")
    launcher = start(
        "--processes",
        "1",
        program,
        stdin=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    lines_until(launcher.stdout, "ready")
    launcher.send_signal(signal.SIGHUP)
    launcher.communicate("\n", timeout=300)
    assert launcher.returncode == 0


def test_a_slow_reader_gets_all_lines(tmp_path):
    """Also those that are still in the pipes when all processes have exited."""
    program = write_program(
        tmp_path, "import sys\nfor number in range(40_000): print(number)\nprint('last', end='')"
    )
    launcher = start("--processes", 2, program)
    time.sleep(3)
    lines = launcher.stdout.read().splitlines()
    assert launcher.wait(timeout=300) == 0
    for process in range(2):
        prefix = f"[{process}] "
        said = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
        assert said == [*map(str, range(40_000)), "last"]


def test_an_interrupt_loses_no_output(tmp_path):
    program = write_program(
        tmp_path,
        """
        import os
        try:
            while True:
                os.write(1, b"x\\n" * 2000)  # small enough to be written in one piece
        finally:
            os.write(1, b"y\\n" * 2000)
        """,
    )
    for _ in range(5):
        launcher = start("--processes", 2, program)
        before, count = set(), 0
        while count < 100_000 or len(before) < 2:  # both have begun
            before.add(launcher.stdout.readline().rstrip("\n"))
            count += 1
        launcher.send_signal(signal.SIGINT)
        lines = launcher.stdout.read().splitlines()
        assert launcher.wait(timeout=300) == 130
        assert {*before, *lines} == {f"[{process}] {word}" for process in range(2) for word in "xy"}
        assert [lines.count(f"[{process}] y") for process in range(2)] == [2000, 2000]


def test_an_interrupt_of_a_wait_for_the_reader_loses_no_output(tmp_path):
    program = write_program(
        tmp_path,
        """
        import os, time
        os.write(1, b"line of some length\\n" * 2000)
        open(f"written {os.getpid()}", "w").close()
        time.sleep(1000)
        """,
    )
    launcher = start("--processes", 2, program, cwd=tmp_path)
    while len([*tmp_path.glob("written *")]) < 2:
        time.sleep(0.1)
    time.sleep(1)  # now the pipe is full
    launcher.send_signal(signal.SIGINT)
    lines = launcher.stdout.read().splitlines()
    assert launcher.wait(timeout=300) == 130
    assert [lines.count(f"[{process}] line of some length") for process in range(2)] == [2000, 2000]


@pytest.mark.parametrize("daemon", ["os.write(1, b'daemon\\n' * 5000)", "time.sleep(0.1)"])
def test_a_run_ends_while_a_daemon_keeps_its_output_open(tmp_path, daemon):
    program = write_program(
        tmp_path,
        f"""
        import os, time
        print("line")
        os.write(1, b"no newline")
        deadline = time.monotonic() + 30
        if os.fork() == 0:
            os.setsid()
            time.sleep(1)
            while time.monotonic() < deadline:
                {daemon}
            os._exit(0)
        time.sleep(2)
        """,
    )
    begin = time.monotonic()
    done = run("--processes", 2, program)
    assert time.monotonic() - begin < 20
    assert done.returncode == 0
    assert {line[:14] for line in done.stdout.splitlines()} >= {
        f"[{process}] {text}" for process in range(2) for text in ("line", "no newline")
    }
