"""``jai-cli run`` without simulation: what a program finds, does and returns is as under ``python``."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import zipfile

import pytest

from jax_array_info import from_json
from tests.cli.launching import (
    COMMAND,
    STUCK,
    lines_until,
    restore_signals,
    run,
    start,
    start_in_time,
    write_program,
)

pytestmark = [pytest.mark.own_process, pytest.mark.newest]

SEEN = """
    import json, os, signal, subprocess, sys, threading, warnings
    warnings.simplefilter("ignore")
    main = vars(sys.modules["__main__"])
    print(json.dumps({
        "environment": dict(sorted(os.environ.items())),
        "descriptors": sorted(found for found in map(int, os.listdir("/dev/fd")) if os.path.exists(f"/dev/fd/{found}")),
        "parent, group, session": [os.getppid(), os.getpgrp(), os.getsid(0)],
        "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "blocked": [str(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        "flags": [str(sys.flags), subprocess._args_from_interpreter_flags()],
        "sys": [sys.argv, sys.orig_argv, sys.path, sys.warnoptions, sys.executable, str(sys.excepthook), list(map(repr, map(type, sys.meta_path)))],
        "streams": [repr(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)],
        "main": {name: str(main[name]).split(" at ")[0] for name in sorted(main) if name.startswith("__")},
        "globals": main is globals(),
        "threads": threading.active_count(),
        "input": sys.stdin.read(),
    }, indent=1))
"""
LAUNCHED = {
    "SLURM_JOB_ID": "7",
    "SLURM_PROCID": "1",
    "OMPI_COMM_WORLD_RANK": "1",
    "JAX_PLATFORMS": "cuda",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=3",
    "JAX_NUM_CPU_DEVICES": "5",
}


def both(folder, *args, stdin="typed\n", **environment):
    """Return the exit code and what is printed, under Python and under ``jai-cli run --quiet``."""
    (folder / "stdin").write_text(stdin)
    results = []
    for command in ([sys.executable], [*COMMAND, "run", "--quiet"]):
        with open(folder / "stdin") as file:
            done = subprocess.run(
                [*command, *args],
                cwd=folder,
                env={**os.environ, **environment},
                stdin=file,
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
        results.append((done.returncode, done.stdout, done.stderr))
    return results


@pytest.mark.parametrize(
    "args",
    [
        ["program.py", "--devices", "3", "--", "-m", "x", "--quiet", ""],
        ["./folder/../program.py"],
        ["link.py"],
        ["-m", "program", "-x"],
        ["-m", "folder", "--devices", "3", "-m"],
        ["./folder/"],
        ["zipped.zip", "x"],
    ],
    ids=" ".join,
)
def test_a_program_finds_what_it_finds_under_python(tmp_path, args):
    write_program(tmp_path, SEEN)
    write_program(tmp_path, SEEN, "folder/__main__.py")
    (tmp_path / "link.py").symlink_to("folder/__main__.py")
    with zipfile.ZipFile(tmp_path / "zipped.zip", "w") as file:
        file.write(tmp_path / "folder" / "__main__.py", "__main__.py")
    under_python, here = both(tmp_path, *args, **LAUNCHED)
    found = json.loads(under_python[1])
    assert (found["environment"]["JAX_PLATFORMS"], found["globals"]) == ("cuda", True)
    assert json.loads(here[1]) == found
    assert here == under_python


SPAWNS = """
    import dataclasses, multiprocessing, pickle

    @dataclasses.dataclass
    class Point:
        x: "int"

    def double(point):
        return Point(2 * point.x)

    if __name__ == "__main__":
        assert pickle.loads(pickle.dumps(Point(1))) == Point(1)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.map(double, [Point(3)]))
"""


@pytest.mark.parametrize(
    ("code", "args", "said"),
    [
        pytest.param(SPAWNS, ["program.py"], "[Point(x=6)]\n", id="main is pickled and spawned"),
        pytest.param(
            "import sys; print(len(sys.argv), sys.argv[-1])",
            ["program.py", *map(str, range(40_000))],
            "40001 39999\n",
            id="many arguments",
        ),
        pytest.param("", ["-m", "no_such_module"], "", id="missing module"),
    ],
)
def test_a_program_does_what_it_does_under_python(tmp_path, code, args, said):
    write_program(tmp_path, code)
    under_python, here = both(tmp_path, *args)
    assert here == under_python
    assert here[1] == said


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONSAFEPATH": "1"},
        {"LANG": "C", "LC_ALL": "", "LC_CTYPE": ""},  # Python sets LC_CTYPE
        {"LANG": "", "LC_ALL": "C", "LC_CTYPE": "C.UTF-8"},
        {"LANG": "C", "LC_ALL": "", "LC_CTYPE": "C.UTF-8", "PYTHONUTF8": "1"},
    ],
)
def test_the_settings_of_python_in_the_environment_are_the_programs(tmp_path, environment):
    write_program(tmp_path, SEEN)
    under_python, here = both(tmp_path, "program.py", **environment)
    assert here == under_python


def test_a_platform_that_is_not_there_fails_as_under_python(tmp_path):
    code = """
        import jax
        try:
            jax.distributed.initialize()
        except Exception as error:
            print(error)
        jax.devices()
    """
    write_program(tmp_path, code)
    under_python, here = both(tmp_path, "program.py", JAX_PLATFORMS="nowhere")
    assert here[:2] == under_python[:2]
    assert here[0] == 1
    assert "nowhere" in here[2].splitlines()[-1]


def test_devices_and_initialize_are_those_of_the_environment(tmp_path):
    code = "import jax; print(jax.device_count(), jax.distributed.initialize.__module__)"
    write_program(tmp_path, code)
    flags = "--xla_force_host_platform_device_count=3"
    under_python, here = both(tmp_path, "program.py", JAX_PLATFORMS="cpu", XLA_FLAGS=flags)
    assert here[:2] == under_python[:2]
    assert here[1].startswith("3 ")


# Signals and ends


@pytest.mark.parametrize("options", [(), ("--timeout", "1000")], ids=" ".join)
def test_each_signal_reaches_the_handlers_of_the_program(tmp_path, options):
    program = write_program(
        tmp_path,
        """
        import os, signal, sys, time
        def handler(number, frame):
            os.write(1, f"{signal.Signals(number).name}\\n".encode())  # not a print in a print
        for name in sys.argv[1:]:
            signal.signal(signal.Signals[name], handler)
        print("ready", os.getpid(), flush=True)
        while True:
            time.sleep(0.01)  # a signal just before a system call does not interrupt it
        """,
    )
    names = ("SIGUSR1", "SIGUSR2", "SIGTERM", "SIGHUP", "SIGINT", "SIGALRM", "SIGCHLD", "SIGCONT", "SIGTSTP")
    process = start(*options, program, *names)
    assert lines_until(process.stdout, "ready")[-1] == f"ready {process.pid}"
    for name in names:
        process.send_signal(signal.Signals[name])
        assert process.stdout.readline() == f"{name}\n"
    process.kill()
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGINT", "SIGQUIT"])
def test_a_signal_without_a_handler_ends_the_program_as_under_python(tmp_path, name):
    program = write_program(tmp_path, "import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.01)")
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    ends = []
    for command in ([sys.executable], [*COMMAND, "run"]):
        process = subprocess.Popen([*command, program], preexec_fn=restore_signals, **options)
        lines_until(process.stdout, "ready")
        process.send_signal(signal.Signals[name])
        out, err = process.communicate(timeout=300)
        ends.append((process.returncode, out, err.splitlines()[-1:]))
    assert ends[0] == ends[1]
    assert ends[0][0] == -signal.Signals[name]


def test_the_terminal_can_suspend_and_resume_the_program(tmp_path):
    program = write_program(tmp_path, "print('ready', flush=True)\nprint('went on', input())")
    process = start(program, stdin=subprocess.PIPE)
    lines_until(process.stdout, "ready")
    process.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WSTOPSIG(status) == signal.SIGTSTP
    process.send_signal(signal.SIGCONT)
    assert process.communicate("typed\n", timeout=300) == ("went on typed\n", "")
    assert process.returncode == 0


def test_a_program_that_kills_itself_ends_as_under_python(tmp_path):
    write_program(tmp_path, "import os, sys\nos.kill(os.getpid(), int(sys.argv[1]))")
    for number in (signal.SIGSEGV, signal.SIGKILL):
        under_python, here = both(tmp_path, "program.py", str(int(number)))
        assert here == under_python == (-number, "", "")


def test_a_timeout_prints_the_stacks_of_all_threads(tmp_path):
    program = write_program(
        tmp_path,
        """
        import threading, time
        def other():
            print("waits", flush=True)
            time.sleep(1000)
        threading.Thread(target=other).start()
        time.sleep(1000)
        """,
    )
    process, _, seconds = start_in_time(program, lambda run: lines_until(run.stdout, "waits"))
    _, err = process.communicate(timeout=300)
    assert process.returncode == 124
    assert err.endswith(f"jai-cli run: timed out after {seconds} s (--timeout)\n")
    assert err.count("Thread 0x") == 2
    assert f'File "{program}", line 5, in other' in err
    assert "/launch/" not in err


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux is a zeroed buffer a valid mutex")
def test_a_timeout_ends_a_program_that_keeps_pythons_lock(tmp_path):
    program = write_program(tmp_path, STUCK)
    process, *_ = start_in_time(program, lambda run: lines_until(run.stdout, "locking"))
    _, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "program.py" in err


# Programs from a pipe or standard input


def through_pipe(command, path, code):
    """Return the result of a shell command that reads a program from a pipe."""
    script = """
        (cat program.py > fifo &)
        case "$1" in
        fifo) exec "${@:2}" fifo x < /dev/null ;;
        shell) exec "${@:2}" <(cat fifo) x < /dev/null ;;
        stdin) exec "${@:2}" - x < fifo ;;
        file) cat fifo > /dev/null; exec "${@:2}" - x < program.py ;;
        esac
    """
    os.mkfifo(path.parent / "fifo")
    (path.parent / "program.py").write_text(code)
    done = subprocess.run(
        ["bash", "-c", script, "bash", path.name, *command],
        cwd=path.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    os.unlink(path.parent / "fifo")
    return done.returncode, done.stdout, done.stderr


@pytest.mark.newest
@pytest.mark.parametrize("way", ["fifo", "shell", "stdin", "file"])
def test_a_program_from_a_pipe_finds_what_it_finds_under_python(tmp_path, way):
    seen = textwrap.dedent(SEEN)
    under_python = through_pipe([sys.executable], tmp_path / way, seen)
    assert "JAX_PLATFORMS" in under_python[1]
    assert through_pipe([*COMMAND, "run", "--quiet"], tmp_path / way, seen) == under_python


@pytest.mark.newest
def test_all_processes_run_the_program_from_a_pipe(tmp_path):
    program = "print(42)\n" + "#" * 200_000
    for way in ("shell", "stdin"):
        code, out, err = through_pipe([*COMMAND, "run", "--processes", "3"], tmp_path / way, program)
        assert (code, err) == (0, "")
        assert sorted(out.splitlines()) == ["[0] 42", "[1] 42", "[2] 42"]


@pytest.mark.newest
def test_the_traceback_of_a_program_from_a_pipe_shows_its_lines(tmp_path):
    code, out, err = through_pipe([*COMMAND, "run"], tmp_path / "fifo", "def f():\n    1 / 0\nf()")
    assert (code, out) == (1, "")
    lines = [line for line in err.splitlines() if "~" not in line]
    path = tmp_path / "fifo"
    assert lines == [
        "Traceback (most recent call last):",
        f'  File "{path}", line 3, in <module>',
        "    f()",
        f'  File "{path}", line 2, in f',
        "    1 / 0",
        "ZeroDivisionError: division by zero",
    ]


# Ranks of a launcher


def slurm(rank, job):
    """Return the variables that srun sets for one of two ranks on this machine."""
    return {
        "SLURM_JOB_ID": str(job),
        "SLURM_NTASKS": "2",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
    }


def free_job():
    """Return a job for which JAX chooses a port that is free."""
    while True:
        job = random.randrange(2**12)
        with socket.socket() as probe:
            try:
                probe.bind(("", job + 2**16 - 2**12))
            except OSError:
                continue
            return job


@pytest.mark.xdist_group("processes")
def test_two_ranks_are_two_processes_and_write_two_files(tmp_path):
    program = write_program(
        tmp_path,
        """
        import jax
        jax.distributed.initialize()
        kept = jax.numpy.ones((jax.process_index() + 3, 5))
        print("rank", jax.process_index(), "of", jax.process_count(), "devices", jax.device_count())
        """,
    )
    job = free_job()
    flags = "--xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    ranks = [
        start(
            "--output",
            "live.json",
            "--record",
            "memory",
            program,
            cwd=tmp_path,
            env={**environment, **slurm(rank, job)},
        )
        for rank in range(2)
    ]
    for rank, process in enumerate(ranks):
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert out == f"rank {rank} of 2 devices 4\n"
        name = "live-rank1.json" if rank else "live.json"
        report = from_json((tmp_path / name).read_text())
        assert (rank + 3, 5) in [group.shape for group in report.groups]
    assert len(list(tmp_path.glob("*.json"))) == 2
    assert len(list(tmp_path.glob("memory/*.jsonl"))) == 2


KEEPS = "import jax\nkept = jax.numpy.ones(1000)\nif FAILS: jax.numpy.zeros(2**50, 'int8')"


@pytest.mark.parametrize(
    ("variable", "rank"), [("SLURM_PROCID", 0), ("SLURM_PROCID", 1), ("OMPI_COMM_WORLD_RANK", 12)]
)
def test_only_rank_0_prints_the_table(tmp_path, variable, rank):
    done = run(write_program(tmp_path, KEEPS.replace("FAILS", "0")), **{variable: str(rank)})
    assert (done.returncode, done.stderr) == (0, "")
    assert ("(1000,)" in done.stdout) == (rank == 0) == bool(done.stdout)


def test_only_rank_0_prints_the_table_of_an_out_of_memory_error(tmp_path):
    done = run(write_program(tmp_path, KEEPS.replace("FAILS", "1")), PMI_RANK="1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Traceback")


@pytest.mark.parametrize("is_written", [False, True])
def test_no_device_is_started_that_the_program_does_not_start(tmp_path, is_written):
    program = write_program(
        tmp_path,
        """
        import atexit, jax
        from jax._src import xla_bridge
        atexit.register(lambda: print(xla_bridge.backends_are_initialized()))
        """,
    )
    options = ("--output", "live.json", "--record", "memory") if is_written else ()
    done = run(*options, program, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "False\n")
    path = tmp_path / "live.json"
    unwritten = f"jai-cli run: {path} is not written: the program has started no device of JAX\n"
    assert done.stderr == (unwritten if is_written else "")
    assert not list(tmp_path.rglob("*.json*"))


# Simulation that was asked for


@pytest.mark.parametrize(
    ("options", "environment", "replaced"),
    [
        (("--devices", "2"), {"JAX_PLATFORMS": "cuda"}, "JAX_PLATFORMS=cuda"),
        (("--processes", "1"), {"JAX_PLATFORMS": "tpu,cpu"}, "JAX_PLATFORMS=tpu,cpu"),
        (
            ("--devices", "2"),
            {"SLURM_PROCID": "0", "JAX_COORDINATOR_ADDRESS": "a:1"},
            "SLURM_PROCID=0, JAX_COORDINATOR_ADDRESS=a:1",
        ),
        (("--devices", "2"), {"JAX_PLATFORMS": "cpu"}, None),
        (("--devices", "2"), {"JAX_PLATFORMS": ""}, None),
    ],
)
def test_a_simulation_says_what_it_replaces(tmp_path, options, environment, replaced):
    code = "import os; print(os.environ['JAX_PLATFORMS'], os.environ['XLA_FLAGS'][-2:])"
    done = run(*options, write_program(tmp_path, code), **environment)
    assert (done.returncode, done.stdout) == (0, "cpu =2\n" if "--devices" in options else "cpu =8\n")
    said = "" if replaced is None else f"jai-cli run: simulated CPU devices replace {replaced}\n"
    assert done.stderr == said
