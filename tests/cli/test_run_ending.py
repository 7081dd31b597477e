"""How ``jai-cli run`` is ended from outside, and that nothing it started is left behind."""

import os
import signal
import subprocess

import pytest

from tests.cli.launching import all_end, is_running, lines_until, run, start, write_program

pytestmark = pytest.mark.own_process

FAMILY = """
    import os, subprocess, sys, time
    parent = os.getpid()
    sleeper = [sys.executable, "-c", "import time; time.sleep(1000)"]
    child = subprocess.Popen(sleeper, stderr=subprocess.DEVNULL)
    escaped = subprocess.Popen(sleeper, stderr=subprocess.DEVNULL, start_new_session=True)
    reading, writing = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:  # an orphan, in a session of its own
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
    """Return the ids of all that the program has started."""
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
    out, err = launcher.communicate(timeout=30)
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
    assert launcher.wait(timeout=30) == 128 + 9
    assert all_end(found)


@pytest.mark.parametrize("how", ["end", "fail"])
def test_nothing_is_left_running_when_the_program_ends(tmp_path, how):
    ends = FAMILY.replace("time.sleep(1000)\n    finally", f"assert {how == 'end'}\n    finally")
    launcher = start(write_program(tmp_path, ends))
    found = family(launcher, 1)
    assert launcher.wait(timeout=30) == (how == "fail")
    assert all_end(found, within=0.5)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_timeout_ends_all(tmp_path, processes):
    launcher = start("--processes", processes, "--timeout", "2.5", write_program(tmp_path, FAMILY))
    found = family(launcher, processes)
    _, err = launcher.communicate(timeout=30)
    assert launcher.returncode == 124
    assert err == "jai-cli run: ended after 2.5 s (--timeout)\n"
    assert all_end(found)


def test_a_program_that_ignores_everything_is_killed(tmp_path):
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
    launcher = start(program)
    lines_until(launcher.stdout, "ready")
    launcher.send_signal(signal.SIGTERM)
    launcher.communicate(timeout=30)
    assert launcher.returncode == 143


def test_what_nohup_ignores_stays_ignored(tmp_path):
    program = write_program(tmp_path, "print('ready', flush=True)\ninput()")
    launcher = start(
        program,
        stdin=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    lines_until(launcher.stdout, "ready")
    launcher.send_signal(signal.SIGHUP)
    launcher.communicate("\n", timeout=30)
    assert launcher.returncode == 0


def test_outside_linux_what_cannot_be_done_is_said(tmp_path):
    code = "import sys; sys.platform = 'darwin'; from jax_array_info_cli import main; main()"
    done = run("--processes", "2", write_program(tmp_path, "print('here')"), code=code)
    assert done.returncode == 0
    assert (
        done.stderr
        == "jai-cli run: outside Linux, what the program starts and leaves behind may outlive it\n"
    )
    assert sorted(done.stdout.splitlines()) == ["[0] here", "[1] here"]
