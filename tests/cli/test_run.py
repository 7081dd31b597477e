"""``jai-cli run``: arguments, exit codes, output and ``jax.distributed``."""

import os
import re
import resource
import signal
import subprocess
import sys

import pytest

from tests.cli.launching import COMMAND, run, start, write_program
from tests.cli.terminals import run_on_terminal

pytestmark = pytest.mark.own_process


def python(*args, cwd=None):
    """Return what ``jai-cli run --quiet`` must return: the exit code of Python, and what it prints."""
    done = subprocess.run(
        [sys.executable, *map(str, args)], cwd=cwd, capture_output=True, text=True, check=False, timeout=300
    )
    return done.returncode, done.stdout, done.stderr


# Arguments


def test_a_missing_script_is_a_one_line_error_with_exit_code_2(tmp_path):
    done = run("missing.py", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "jai-cli run: can't open file 'missing.py': No such file or directory\n"


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ("", "Missing argument 'SCRIPT'."),
        ("-m", "Missing argument 'MODULE'."),
        ("--devices 0", "'--devices'"),
        ("--processes 0", "'--processes'"),
        ("--timeout 0", "'--timeout'"),
        ("--timeout x", "'--timeout'"),
        ("--timeout nan", "--timeout must be at most 10000000 seconds, got nan"),
        ("--timeout inf", "--timeout must be at most 10000000 seconds, got inf"),
        ("--timeout 1e300", "--timeout must be at most 10000000 seconds, got 1e+300"),
        ("--nonsense", "No such option"),
        ("--devices 2049", "makes 2049 devices; the limit is 2048"),
        ("--processes 257", "--devices 8 with --processes 257 makes 2056 devices; the limit is 2048"),
    ],
)
def test_bad_arguments_are_usage_errors(call, args, problem):
    done = call("run", *args.split(), *(["s.py"] if " " in args else []))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: jai-cli run ")
    assert problem in done.stderr


# Exit codes

FAILURES = {
    "exit": "import sys; sys.exit(3)",
    "large exit": "import sys; sys.exit(256 + 3)",
    "text": "import sys; sys.exit('what is wrong')",
    "nothing": "import sys; sys.exit()",
    "exception": "def f():\n    raise ValueError('wrong')\nf()",
    "syntax": "x = = 1",
    "cause": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise ValueError('wrong') from error",
    "atexit": "import atexit\natexit.register(print, 'last words')\nraise ValueError('wrong')",
    "excepthook": "import sys\nsys.excepthook = lambda *a: print(a[0], a[2].tb_frame.f_code.co_name)\n1 / 0",
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failing_program_ends_as_under_python(tmp_path, name):
    program = write_program(tmp_path, FAILURES[name])
    expected = python(program)
    for options in (("--devices", "1"), ("--processes", "1")):
        done = run("--quiet", *options, program)
        assert (done.returncode, done.stdout, done.stderr) == expected


def test_a_kill_by_signal_n_is_reported_and_exits_with_128_plus_n(tmp_path):
    done = run("--processes", "1", write_program(tmp_path, "import os; os.kill(os.getpid(), 11)"))
    assert done.returncode == 128 + 11
    assert done.stderr == "jai-cli run: the program was killed by SIGSEGV\n"


@pytest.mark.parametrize("name", ["exit", "text", "exception", "syntax", "atexit"])
def test_the_first_failure_stops_all_processes(tmp_path, name):
    program = write_program(
        tmp_path,
        f"""
        import os, sys, time
        # The process that creates the folder fails.
        try:
            os.mkdir({str(tmp_path / "taken")!r})
        except FileExistsError:
            time.sleep(1000)
        exec(compile({FAILURES[name]!r}, "failure", "exec"))
        """,
    )
    done = run("--processes", "3", program)
    alone = python("-c", FAILURES[name])
    assert done.returncode == alone[0]
    failed = re.search(r"jai-cli run: process (\d) of 3 failed with exit code (\d)\n$", done.stderr)
    assert failed[2] == str(alone[0])
    said = [line for line in done.stderr.splitlines() if line.startswith("[")]
    assert all(line.startswith(f"[{failed[1]}] ") for line in said)
    assert said[-1:] == [f"[{failed[1]}] {line}" for line in alone[2].splitlines()[-1:]]


def test_the_message_names_the_process_that_was_killed(tmp_path):
    program = write_program(
        tmp_path,
        f"""
        import os, time
        try:
            os.mkdir({str(tmp_path / "taken")!r})
        except FileExistsError:
            time.sleep(1000)
        os.kill(os.getpid(), 9)
        """,
    )
    done = run("--processes", "2", program)
    assert done.returncode == 128 + 9
    assert re.fullmatch(r"jai-cli run: process [01] of 2 was killed by SIGKILL\n", done.stderr)


# Output


def test_a_single_process_has_the_launchers_input_and_output(tmp_path):
    program = write_program(tmp_path, "import sys; print(input(), end=''); sys.stderr.write('e')")
    done = run(program, stdin="typed\n")
    assert (done.stdout, done.stderr) == ("typed", "e")


@pytest.mark.parametrize("options", [("--devices", "1"), ("--processes", "1")])
def test_a_single_process_can_ask_on_the_terminal(tmp_path, options):
    program = write_program(
        tmp_path,
        "import os; print(input('who? '), os.isatty(1), end='\\r', flush=True); os.write(1, b'bytes')",
    )
    leader, terminal = os.openpty()
    streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    launcher = subprocess.Popen([*COMMAND, "run", *options, program], **streams)
    said = b""
    for end, answer in ((b"who? ", b"me\n"), (b"bytes", b"")):
        while not said.endswith(end):
            said += os.read(leader, 1000)
        os.write(leader, answer)
    assert said == b"who? me\r\nme True\rbytes"
    assert launcher.wait(timeout=300) == 0


def test_lines_of_several_processes_are_complete_and_prefixed(tmp_path):
    program = write_program(
        tmp_path,
        r"""
        import os, sys
        out = sys.stdout.buffer
        assert sys.stdin.read() == ""
        print("print")
        sys.stderr.write("error\n")
        out.write(b"bytes \xff\xfe\n\n")
        out.write(b"long" * 500_000 + b"\n")
        out.write(b"\r 10%\r 20%\r\n")
        out.write(b"windows\r\n")
        out.flush()
        os.system("echo below")
        out.write(b"no newline")
        """,
    )
    done = run("--processes", "11", program)
    assert done.returncode == 0
    expected = ["print", "bytes \udcff\udcfe", "", "long" * 500_000, " 10%", " 20%", "windows", "below"]
    by_process = {}
    for line in done.stdout.split("\n")[:-1]:
        prefix, text = line[:5], line[5:]
        by_process.setdefault(prefix, []).append(text)
    assert by_process == {f"[{process:2}] ": [*expected, "no newline"] for process in range(11)}
    assert sorted(done.stderr.splitlines()) == [f"[{process:2}] error" for process in range(11)]


def test_lines_are_forwarded_as_they_are_written(tmp_path):
    program = write_program(tmp_path, "import time\nprint('here')\ntime.sleep(1000)")
    launcher = start("--processes", "2", program)
    lines = {launcher.stdout.readline(), launcher.stdout.readline()}
    assert lines == {"[0] here\n", "[1] here\n"}
    launcher.terminate()
    launcher.communicate(timeout=300)


SEES = "import os; print(os.environ['COLUMNS'], os.environ.get('FORCE_COLOR'))"


def test_lines_fit_the_terminal(tmp_path):
    done = run("--processes", "2", write_program(tmp_path, SEES), COLUMNS="100")
    assert sorted(done.stdout.splitlines()) == ["[0] 96 None", "[1] 96 None"]


@pytest.mark.parametrize(
    ("chosen", "color"), [({}, "1"), ({"NO_COLOR": "1"}, None), ({"FORCE_COLOR": "0"}, "0")]
)
def test_on_a_terminal_processes_may_use_color(tmp_path, chosen, color):
    program = write_program(tmp_path, SEES)
    printed = run_on_terminal("run", "--processes", "2", program, columns=50, **chosen)
    assert printed.code == 0
    assert sorted(printed.text.splitlines()) == [f"[0] 46 {color}", f"[1] 46 {color}"]


def test_closing_the_output_ends_the_run(tmp_path):
    program = write_program(tmp_path, "while True: print('y')")
    launcher = start("--processes", "2", program)
    launcher.stdout.readline()
    launcher.stdout.close()
    assert launcher.wait(timeout=300) == 128 + signal.SIGPIPE
    assert launcher.stderr.read() == ""


# jax


def test_a_single_process_can_call_initialize(tmp_path):
    program = write_program(
        tmp_path,
        """
        import os
        os.environ["JAX_ENABLE_X64"] = "1"
        import jax, jax.numpy as jnp
        jax.distributed.initialize()
        print(jax.process_count(), jax.device_count(), jnp.zeros(2).dtype)
        """,
    )
    done = run("--devices", "3", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "1 3 float64"
    assert "allocated jax arrays" in done.stdout


KEEPS = "import jax, sys\nkept = jax.numpy.ones(1000)\n"


@pytest.mark.parametrize(
    ("options", "code", "exit_code", "has_table"),
    [
        ((), "print('no jax')", 0, False),
        ((), "import jax", 0, False),
        ((), f"{KEEPS}raise SystemExit(4)", 4, False),
        ((), f"{KEEPS}raise SystemExit", 0, True),
        (("--quiet",), f"{KEEPS}raise SystemExit", 0, False),
        ((), f"{KEEPS}sys.path.clear()", 0, True),
        ((), f"{KEEPS}sys.stdout.close()", 0, False),
    ],
)
def test_only_successful_programs_that_used_jax_get_a_table(tmp_path, options, code, exit_code, has_table):
    done = run(*options, write_program(tmp_path, code))
    assert (done.returncode, done.stderr) == (exit_code, "")
    assert ("arrays" in done.stdout) == ("(1000,)" in done.stdout) == has_table


def test_each_run_has_its_own_port(tmp_path):
    """If the port were released before it is used, two concurrent runs could join each other."""
    import socket

    from jax_array_info_cli.launch import held_port

    with held_port() as port, socket.socket() as other:
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with pytest.raises(OSError, match="in use"):
            other.bind(("", port))


@pytest.mark.parametrize("is_imported_before", [False, True])
def test_processes_join_when_jax_is_imported_and_not_when_it_is_looked_for(tmp_path, is_imported_before):
    (tmp_path / "sitecustomize.py").write_text("import jax\n" if is_imported_before else "")
    code = "import importlib.util as i\ni.find_spec('jax')\nimport jax\nprint(jax.process_count())"
    proxies = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    options = ("--quiet", "--devices", 1, "--processes", 2)
    done = run(*options, write_program(tmp_path, code), PYTHONPATH=path, **proxies)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] 2", "[1] 2"]


def test_too_few_open_files_are_a_one_line_error(tmp_path):
    # The first processes may begin before the others cannot be started.
    program = write_program(tmp_path, "import time\ntime.sleep(100)\nprint(1)")
    done = subprocess.run(
        [*COMMAND, "run", "--processes", "16", "--devices", "1", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20)),
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "jai-cli run: the program cannot be started: Too many open files."
        " Start fewer processes, or raise the limit with ulimit\n"
    )


def test_lines_of_c_are_complete_under_pythonunbuffered(tmp_path):
    program = write_program(
        tmp_path,
        """
        import ctypes, threading
        library = ctypes.CDLL(None)
        def write(which):
            for number in range(300):
                library.printf(b"C%d line %d\\n", which, number)
        threads = [threading.Thread(target=write, args=(which,)) for which in (1, 2)]
        for thread in threads:
            thread.start()
        for number in range(300):
            print("Python line", number)
        for thread in threads:
            thread.join()
        """,
    )
    done = run("--processes", "2", "--devices", "1", program, PYTHONUNBUFFERED="1")
    lines = done.stdout.splitlines()
    assert len(lines) == 2 * 900
    assert all(re.fullmatch(r"\[[01]] (C[12]|Python) line \d+", line) for line in lines)
