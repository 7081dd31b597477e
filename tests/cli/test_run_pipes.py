"""``jai-cli run`` of programs from a pipe or standard input."""

import os
import subprocess
import sys

import pytest

from tests.cli.launching import COMMAND

pytestmark = [pytest.mark.own_process, pytest.mark.newest]

PIPED = """
import sys
main = sys.modules["__main__"]
print(main.__dict__ is globals(), __name__, __file__, __package__, __spec__, type(__loader__).__name__, __builtins__)
print(sys.argv, sys.path[0], sys._getframe().f_code.co_filename, repr(sys.stdin.read()))
"""


def through_pipe(command, path, code=PIPED):
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


@pytest.mark.parametrize("way", ["fifo", "shell", "stdin", "file"])
def test_a_program_from_a_pipe_runs_as_under_python(tmp_path, way):
    under_python = through_pipe([sys.executable], tmp_path / way)
    assert "['" in under_python[1]
    assert through_pipe([*COMMAND, "run", "--quiet"], tmp_path / way) == under_python


def test_all_processes_run_the_program_from_a_pipe(tmp_path):
    program = "print(42)\n" + "#" * 200_000
    for way in ("shell", "stdin"):
        code, out, err = through_pipe([*COMMAND, "run", "--processes", "3"], tmp_path / way, program)
        assert (code, err) == (0, "")
        assert sorted(out.splitlines()) == ["[0] 42", "[1] 42", "[2] 42"]


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
