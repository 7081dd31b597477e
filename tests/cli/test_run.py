"""``jai-cli run``: arguments, exit codes, output and ``jax.distributed``."""

import os
import re
import resource
import signal
import subprocess
import sys
import zipfile

import pytest

from tests.cli.launching import COMMAND, run, start, write_program

pytestmark = pytest.mark.own_process

FACES = """
    import sys
    main = sys.modules["__main__"]
    print(main.__dict__ is globals(), __name__, __file__, __package__, __spec__ and __spec__.name)
    print(type(__loader__).__name__, sys.argv, sys.path[0])
"""


def python(*args, cwd=None):
    done = subprocess.run(
        [sys.executable, *args], cwd=cwd, capture_output=True, text=True, check=False, timeout=300
    )
    return done.returncode, done.stdout, done.stderr


def as_python(*args, cwd=None):
    """Return the result of ``jai-cli run``, which must be the same as that of Python."""
    done = run("--quiet", *args, cwd=cwd)
    assert (done.returncode, done.stdout, done.stderr) == python(*args, cwd=cwd)
    return done


# Arguments


def test_arguments_after_the_script_go_to_the_script(tmp_path):
    write_program(tmp_path, FACES)
    done = as_python("program.py", "--devices", "3", "--", "-m", "x", "--quiet", "", cwd=tmp_path)
    assert "['program.py', '--devices', '3', '--', '-m', 'x', '--quiet', '']" in done.stdout
    done = run("--devices", "2", "--", "program.py", "--timeout", cwd=tmp_path)
    assert "['program.py', '--timeout']" in done.stdout


def test_a_program_can_have_as_many_arguments_as_the_system_allows(tmp_path):
    write_program(tmp_path, "import sys; print(len(sys.argv), sys.argv[-1])")
    done = as_python("program.py", *map(str, range(40_000)), cwd=tmp_path)
    assert done.stdout == "40001 39999\n"


def test_arguments_after_the_module_go_to_the_module(tmp_path):
    write_program(tmp_path, "", "package/__init__.py")
    write_program(tmp_path, f"from . import other\n{FACES.replace('    ', '')}", "package/__main__.py")
    write_program(tmp_path, "", "package/other.py")
    done = as_python("-m", "package", "--devices", "3", "-m", cwd=tmp_path)
    assert "package.__main__" in done.stdout


@pytest.mark.parametrize("where", ["program.py", "folder/program.py", "link.py"])
def test_a_script_is_main_as_under_python(tmp_path, where):
    write_program(tmp_path, FACES, "folder/program.py")
    write_program(tmp_path, FACES)
    (tmp_path / "link.py").symlink_to("folder/program.py")
    assert "True __main__" in as_python(where, "x", cwd=tmp_path).stdout


def test_a_directory_and_a_zip_file_are_programs(tmp_path):
    write_program(tmp_path, FACES, "folder/__main__.py")
    with zipfile.ZipFile(tmp_path / "zipped.zip", "w") as file:
        file.write(tmp_path / "folder" / "__main__.py", "__main__.py")
    for path in (tmp_path / "folder", tmp_path / "zipped.zip"):
        assert "True __main__" in as_python(str(path), "x").stdout


def test_main_can_be_pickled_and_spawned(tmp_path):
    program = write_program(
        tmp_path,
        """
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
        """,
    )
    assert "[Point(x=6)]" in as_python(program).stdout


def test_a_missing_script_is_a_one_line_error_with_exit_code_2(tmp_path):
    done = run("missing.py", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "jai-cli run: can't open file 'missing.py': No such file or directory\n"


def test_a_missing_module_fails_as_under_python(tmp_path):
    assert as_python("-m", "no_such_module", cwd=tmp_path).returncode == 1


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["-m"],
        ["--devices", "0", "s.py"],
        ["--processes", "0", "s.py"],
        ["--timeout", "0", "s.py"],
        ["--timeout", "x", "s.py"],
        ["--nonsense", "s.py"],
        ["--devices", "2049", "s.py"],
        ["--devices", "8", "--processes", "257", "s.py"],
    ],
)
def test_bad_arguments_are_usage_errors(args):
    done = run(*args)
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: jai-cli run ")
    assert done.stdout == ""


def test_too_many_devices_in_total_are_rejected():
    assert (
        "--devices 8 with --processes 257 makes 2056 devices; the limit is 2048"
        in run("--processes", "257", "s.py").stderr
    )


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


@pytest.mark.parametrize("options", [(), ("--devices", "1"), ("--processes", "1")])
@pytest.mark.parametrize("name", FAILURES)
def test_a_failing_program_ends_as_under_python(tmp_path, name, options):
    program = write_program(tmp_path, FAILURES[name])
    done = run("--quiet", *options, program)
    assert (done.returncode, done.stdout, done.stderr) == python(program)


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


@pytest.mark.parametrize("options", [(), ("--devices", "1"), ("--processes", "1")])
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


def test_lines_fit_the_terminal(tmp_path):
    program = write_program(
        tmp_path, "import os; print(os.environ['COLUMNS'], os.environ.get('FORCE_COLOR'))"
    )
    done = run("--processes", "2", program, COLUMNS="100")
    assert sorted(done.stdout.splitlines()) == ["[0] 96 None", "[1] 96 None"]


@pytest.mark.parametrize(
    ("chosen", "color"), [({}, "1"), ({"NO_COLOR": "1"}, None), ({"FORCE_COLOR": "0"}, "0")]
)
def test_on_a_terminal_processes_may_use_color(tmp_path, chosen, color):
    program = write_program(
        tmp_path, "import os; print(os.environ['COLUMNS'], os.environ.get('FORCE_COLOR'))"
    )
    leader, terminal = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "50", **chosen}
    done = subprocess.run(
        [*COMMAND, "run", "--processes", "2", program],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0
    said = os.read(leader, 1000).decode().split("\r\n")[:-1]
    assert sorted(said) == [f"[0] 46 {color}", f"[1] 46 {color}"]


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


def test_only_successful_programs_that_used_jax_get_a_table(tmp_path):
    for code in ("print('no jax')", "import jax", "import jax; jax.numpy.ones(3); raise SystemExit(4)"):
        assert "arrays" not in run(write_program(tmp_path, code)).stdout
    kept = write_program(tmp_path, "import jax\nkept = jax.numpy.ones(1000)\nraise SystemExit")
    assert "(1000,)" in run(kept).stdout
    assert run("--quiet", kept).stdout == ""


def test_each_run_has_its_own_port(tmp_path):
    """If the port were released before it is used, two concurrent runs could join each other."""
    import socket

    from jax_array_info_cli.launch import held_port

    with held_port() as port, socket.socket() as other:
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with pytest.raises(OSError, match="in use"):
            other.bind(("", port))


def test_a_program_that_looks_for_jax_joins_only_when_it_imports_jax(tmp_path):
    code = "import importlib.util as i\ni.find_spec('jax')\nimport jax\nprint(jax.process_count())"
    proxies = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    done = run("--quiet", "--devices", 1, "--processes", 2, write_program(tmp_path, code), **proxies)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] 2", "[1] 2"]


def test_a_program_can_clear_its_import_path(tmp_path):
    code = "import jax, sys\nkept = jax.numpy.ones(1000)\nsys.path.clear()"
    done = run(write_program(tmp_path, code))
    assert done.returncode == 0, done.stderr
    assert "(1000,)" in done.stdout


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


def test_a_program_can_close_its_stdout(tmp_path):
    code = "import jax, sys\nx = jax.numpy.ones(4)\nsys.stdout.close()"
    done = run(write_program(tmp_path, code))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("timeout", ["nan", "inf", "1e300"])
def test_a_timeout_must_be_finite_and_below_the_limit(tmp_path, timeout):
    done = run("--timeout", timeout, write_program(tmp_path, "print(1)"))
    assert done.returncode == 2
    assert "--timeout must be at most 10000000 seconds, got" in done.stderr


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


def test_processes_join_even_if_jax_is_imported_before_the_program(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import jax\n")
    program = write_program(tmp_path, "import jax; print(jax.process_count())")
    done = run("--processes", "2", "--devices", "1", "--quiet", program, PYTHONPATH=str(tmp_path))
    assert sorted(done.stdout.splitlines()) == ["[0] 2", "[1] 2"]
