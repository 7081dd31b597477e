"""``jai-cli run --recompiles``: a line for each recompilation when it happens, and what is made of it at the end."""

import json
import re

import pytest

from jax_array_info import timeline_report
from jax_array_info_cli.launch import NOTE, print_message, recompiles
from jax_array_info_cli.launch.recompiles import Recompilations
from tests.cli.launching import run, write_program

pytestmark = [pytest.mark.own_process, pytest.mark.xdist_group("processes")]

LINE = re.compile(
    r"jai-cli run: (?:process(?:es)? ([0-9,-]+): )?(\S+) compiled again \((\w+), [0-9.]+ m?s\): (.*), (\S+:\d+)"
)

TRAINING = """
import sys
import jax, numpy as np

@jax.jit
def step(params, batch):
    print("traced", batch["x"].shape, file=sys.stderr)
    return params - (batch["x"] @ params).mean()

def train(sizes):
    params = np.ones((16, 4), np.float32)
    for size in sizes:
        params = step(params, {"x": np.ones((size, 16), np.float32)})
"""
TWICE = TRAINING + "train([8, 8, 5, 8, 7])\n"


def lines_in(text):
    """Return processes, function, number, reason and place of each line."""
    return [match.groups() for match in map(LINE.fullmatch, text.splitlines()) if match]


def test_each_recompilation_has_a_line_before_the_program_goes_on(tmp_path):
    """The function is traced for the next shape only after the line of the last one."""
    done = run("--recompiles", "--quiet", write_program(tmp_path, TWICE))
    assert (done.returncode, done.stdout) == (0, "")
    kept = [line for line in done.stderr.splitlines() if line.startswith("traced") or LINE.fullmatch(line)]
    assert [line[:6] for line in kept] == ["traced", "traced", "jai-cl", "traced", "jai-cl"]
    assert lines_in(done.stderr) == [
        (None, "step", "2nd", "batch/x: shape (8, 16) became (5, 16)", "program.py:13"),
        (None, "step", "3rd", "batch/x: shape (5, 16) became (7, 16)", "program.py:13"),
    ]


def test_the_table_stands_on_standard_error_at_the_end(tmp_path):
    done = run(
        "--recompiles", write_program(tmp_path, TWICE + "print('the end')\nkept = jax.numpy.ones(3)\n")
    )
    assert "2 recompilations of step; 3 compilations of 1 function took" in done.stderr
    assert done.stdout.startswith("the end\n")
    assert "allocated jax arrays" in done.stdout


CAUSES = """
import functools, json, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jax_array_info import watch_compiles

@functools.partial(jax.jit, static_argnames="mode")
def step(x, rate, mode="a"):
    return x * rate

def make(rate):
    return jax.jit(lambda x: x * rate)

mesh = Mesh(jax.devices(), ("data",))
x = np.ones(8, np.float32)
with watch_compiles() as watch:
    step(x, 0.1)
    step(x, np.float32(0.1))
    step(x, 0.1, mode="b")
    step(jax.device_put(x, NamedSharding(mesh, P("data"))), 0.1)
    with jax.default_matmul_precision("float32"):
        step(x, 0.1)
    for rate in (1.0, 2.0):
        make(rate)(x)
    jax.grad(lambda x: step(x, 0.1).sum())(x)
found = watch.report().recompilations
print(json.dumps([[one.function, one.number, one.reason] for one in found]))
"""


def test_the_lines_are_the_recompilations_of_watch_compiles(tmp_path):
    """Weak types, static arguments, shardings, settings and closures have the words of the watch."""
    done = run("--recompiles", "--quiet", "--devices", 2, write_program(tmp_path, CAUSES))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) >= 5
    lines = [(name, int(number[:-2]), reason) for _, name, number, reason, _ in lines_in(done.stderr)]
    assert lines == list(map(tuple, found))


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [(TWICE, 1), (TRAINING + "train([8, 8])", 0), (TWICE + "sys.exit(3)", 3), (TWICE + "raise KeyError", 1)],
    ids=["recompiled", "compiled once", "exits", "raises"],
)
def test_the_exit_code_is_that_of_the_program_unless_it_is_zero_and_there_was_a_recompilation(
    tmp_path, code, exit_code
):
    done = run("--fail-on-recompile", "--quiet", write_program(tmp_path, code))
    assert done.returncode == exit_code
    message = "jai-cli run: 2 recompilations (--fail-on-recompile)\n"
    assert done.stderr.endswith(message) == (code == TWICE)
    assert ("KeyError" in done.stderr) == ("KeyError" in code)
    assert len(lines_in(done.stderr)) == 2 * (code.startswith(TWICE))


def test_a_rank_above_zero_prints_nothing_and_fails(tmp_path):
    done = run("--fail-on-recompile", write_program(tmp_path, TWICE), SLURM_PROCID="1", SLURM_NTASKS="2")
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if not line.startswith("traced")] == [
        "jai-cli run: 2 recompilations (--fail-on-recompile)"
    ]


ALONE = "train([8, 5]); train([3] if jax.process_index() else [8])\n"


def test_two_processes_have_one_line_and_one_that_compiles_alone_has_its_own(tmp_path):
    script = write_program(tmp_path, TRAINING + ALONE)
    options = ("--fail-on-recompile", "--quiet", "--processes", 2, "--devices", 1)
    done = run(*options, "--record", "memory", script, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert [(ranks, number, reason) for ranks, _, number, reason, _ in lines_in(done.stderr)] == [
        ("0,1", "2nd", "batch/x: shape (8, 16) became (5, 16)"),
        ("1", "3rd", "batch/x: shape (5, 16) became (3, 16)"),
    ]
    assert done.stderr.endswith("jai-cli run: 2 recompilations (--fail-on-recompile)\n")
    assert re.findall(r"^\[(\d)\] \d recompilations? of step", done.stderr, re.MULTILINE) == ["0"]
    found = timeline_report(tmp_path / "memory").recompilations
    assert [(one.function, one.processes, one.count, one.origin.place) for one in found] == [
        ("step", (0, 1), 1, "program.py:13"),
        ("step", (1,), 1, "program.py:13"),
    ]


WORDS = ["step", 2, "x: shape (8,) became (5,)", "train.py:88"]


def note(seconds, words=WORDS):
    """Return the note of a process."""
    return json.dumps([words, seconds]).encode() + b"\n"


@pytest.mark.newest
def test_a_line_waits_for_all_processes_and_has_the_longest_duration():
    assert note(1.0).startswith(NOTE)
    written, notes = [], [b"\n", b""]
    told = Recompilations(2, written.append)

    def read():
        for process in (0, 1):
            told.read(process, lambda since, process=process: notes[process][since:])
        told.tell(is_end=False)

    notes[0] += note(1.0)[:9]
    read()
    notes[0] += note(1.0)[9:] + b"  File 'x.py', line 3 in step\n"
    read()
    assert (written, told.count) == ([], 0)
    notes[1] += note(2.5)
    read()
    words = "step compiled again (2nd, 2.5 s): x: shape (8,) became (5,), train.py:88"
    assert written == [f"processes 0,1: {words}"]
    read()
    assert told.count == 1


@pytest.mark.newest
def test_a_process_that_stays_alone_is_named_after_a_while(monkeypatch):
    written = []
    told = Recompilations(3, written.append)
    told.read(2, lambda since: note(0.5)[since:])
    told.tell(is_end=False)
    assert written == []
    monkeypatch.setattr(recompiles, "_PATIENCE", -1.0)
    told.tell(is_end=False)
    assert [line.partition(":")[0] for line in written] == ["process 2"]


@pytest.mark.newest
def test_a_recompilation_that_a_process_has_later_has_a_line_but_counts_once(monkeypatch):
    monkeypatch.setattr(recompiles, "_PATIENCE", -1.0)
    written = []
    told = Recompilations(2, written.append)
    for process in (0, 1):
        told.read(process, lambda since: note(0.5)[since:])
        told.tell(is_end=False)
    assert [line.partition(":")[0] for line in written] == ["process 0", "process 1"]
    assert told.count == 1


LATE = {
    "thread": "import threading, time\ndef late():\n    time.sleep(1); train([5])\nthreading.Thread(target=late).start()\n",
    "exit handler": "import atexit\natexit.register(train, [5])\natexit.register(print, 'the end', flush=True)\n",
}


@pytest.mark.parametrize("late", LATE)
def test_threads_and_exit_handlers_are_part_of_the_program(tmp_path, late):
    """They run once, and the table and the exit code have their recompilations."""
    script = write_program(tmp_path, TRAINING + "train([8])\n" + LATE[late])
    done = run("--fail-on-recompile", "--quiet", script)
    assert done.returncode == 1
    assert done.stdout == ("the end\n" if late == "exit handler" else "")
    assert [line[3] for line in lines_in(done.stderr)] == ["batch/x: shape (8, 16) became (5, 16)"]
    assert done.stderr.index("compiled again") < done.stderr.index("1 recompilation of step")
    assert done.stderr.endswith("jai-cli run: 1 recompilation (--fail-on-recompile)\n")


CAPTURED = """
import os

def holders():
    for name in os.listdir("/dev/fd"):
        try:
            yield os.path.samestat(os.fstat(int(name)), os.fstat(2))
        except OSError:
            continue  # of the listing itself

child = os.fork()
if child == 0:
    print(sum(holders()), flush=True)
    os._exit(0)
os.waitpid(child, 0)
kept = os.dup(2)
with open("captured.txt", "w") as file:
    os.dup2(file.fileno(), 2)
"""


def test_the_lines_are_not_in_what_the_program_captures(tmp_path):
    """They are printed meanwhile, as under pytest. A fork of the program does not hold standard error."""
    code = CAPTURED + TRAINING + "train([8, 5])\nos.dup2(kept, 2)\n"
    done = run("--recompiles", "--quiet", write_program(tmp_path, code), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert [line[3] for line in lines_in(done.stderr)] == ["batch/x: shape (8, 16) became (5, 16)"]
    assert "1 recompilation of step" in done.stderr
    captured = (tmp_path / "captured.txt").read_text()
    assert captured.count("traced") == 2
    assert "compiled again" not in captured


@pytest.mark.newest
def test_a_line_is_printed_even_if_the_program_has_closed_the_copy_of_standard_error(capfd):
    print_message("compiled again", -1)
    assert capfd.readouterr().err == "jai-cli run: compiled again\n"


@pytest.mark.parametrize("code", ["sys.stderr = None", "sys.stderr.close()"], ids=["none", "closed"])
def test_the_last_message_stands_on_standard_error_that_the_program_has_closed(tmp_path, code):
    done = run("--fail-on-recompile", "--quiet", write_program(tmp_path, TWICE + code + "\n"))
    assert done.returncode == 1
    assert done.stderr.endswith("jai-cli run: 2 recompilations (--fail-on-recompile)\n")


def test_the_table_has_all_rows(tmp_path):
    """The command has no option for more."""
    code = (
        "import string, jax, numpy as np\nf = jax.jit(lambda x: x)\n"
        "for name in string.ascii_letters:\n    f({name: np.ones(3)})\n"
    )
    done = run("--recompiles", "--quiet", write_program(tmp_path, code))
    assert "max_rows" not in done.stderr
    rows = re.findall(r"^│ <lambda> .*", done.stderr, re.MULTILINE)
    assert len(rows) == 52
