"""``jai-cli advise``: nothing is left of it, nothing of the user's is touched, and what its errors say."""

import json
import os
import random
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest

from jax_array_info_cli.advice.child import Failed, Program
from jax_array_info_cli.advice.engine import SourceEngine
from jax_array_info_cli.output import Refusal
from jax_array_info_cli.user_code import FunctionName
from jax_array_info_cli.user_code.compiling import Request
from jax_array_info_core.programs.advice.candidates import Edit
from jax_array_info_core.programs.advice.child import EndedError
from jax_array_info_core.programs.advice.search import Base, TryFailedError, figures_of
from jax_array_info_core.reports import ProgramReport
from tests.cli.launching import COMMAND, MAIN, jai, restore_signals, write_program

pytestmark = [
    pytest.mark.own_process,
    pytest.mark.newest,
    pytest.mark.skipif(
        not os.path.isdir("/proc/self"),
        reason="finds the processes that are left in /proc, which this system lacks",
    ),
]

HEAD = """
import os, signal, sys, threading, time
with open("log", "a") as file:
    print(os.getpid(), os.getppid(), file=file)
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
import helper

def args(mesh):
    one = jax.ShapeDtypeStruct((512, 512), jnp.float32, sharding=NamedSharding(mesh, P(None, "x")))
    return one, one
"""
STEP = """
def f(x, w):
    return helper.dot(x, w).sum(1)
"""
HELPER = """
def dot(x, w):
    return (x @ w) * 2
"""
INTERRUPTS = 50 if "JAI_FUZZ" in os.environ else 5


SOON = "import jax_array_info_core.programs.advice.search as search; search._LEAST_SECONDS = 4"
"""Ends the wait for the program as it is before long."""


class Folder:
    """A folder with a program, whose processes can be found."""

    def __init__(self, path):
        self.path = path
        self.mark = uuid.uuid4().hex
        self.environment = {"JAI_OF_TEST": self.mark, "TMPDIR": str(path / "tmp"), "HOME": str(path / "home")}
        write_program(path, HELPER, "helper.py")
        (path / "tmp").mkdir()
        (path / "home").mkdir()

    def write(self, text):
        write_program(self.path, text, "step.py")

    def arguments(self, budget="600s"):
        return ["advise", "step.py:f", "--mesh", "x=2", "--args-from", "step.py:args", "--budget", budget]

    def advise(self, *options, budget="600s"):
        environment = {**self.environment, "PYTHONDONTWRITEBYTECODE": ""}
        code = MAIN if budget != "2s" else f"{SOON}; {MAIN}"
        return jai(*self.arguments(budget), *options, cwd=self.path, code=code, **environment)

    def start(self):
        return subprocess.Popen(
            [*COMMAND, *self.arguments()],
            cwd=self.path,
            env={**os.environ, **self.environment, "PYTHONDONTWRITEBYTECODE": ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
            preexec_fn=restore_signals,
        )

    def imported(self):
        """Return the processes that imported the program, each with its parent."""
        log = self.path / "log"
        return [line.split() for line in log.read_text().splitlines()] if log.exists() else []

    def processes(self):
        """Return the processes of the command."""
        found = []
        for one in Path("/proc").glob("[0-9]*"):
            try:
                if self.mark.encode() in (one / "environ").read_bytes():
                    found.append(int(one.name))
            except OSError:  # it has ended
                continue
        return found

    def assert_nothing_is_left(self):
        """Wait until its processes have ended, and assert that there is no file but those of the user."""
        for _ in range(600):
            if not (left := self.processes()):
                break
            time.sleep(0.1)
        assert left == []
        files = {str(one.relative_to(self.path)) for one in self.path.rglob("*")}
        assert files - {"log", "aborted"} == {"step.py", "helper.py", "tmp", "home"}


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


CHANGES = """
print("printed")
os.write(1, b"written\\n")
os.system("echo echoed")
os.chdir("/")
sys.path[:] = []
for name in ("json", "socket", "pickle", "jax_array_info_core", "jax_array_info_core.programs.advice"):
    sys.modules.pop(name, None)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
threading.Thread(target=time.sleep, args=(1000,)).start()
"""


def test_a_file_is_imported_once_in_each_child_whatever_it_changes(folder):
    """A file that changes the state of its process changes no answer. Only the report is on stdout."""
    folder.write(HEAD + CHANGES + STEP)
    before = (folder.path / "step.py").read_bytes(), (folder.path / "helper.py").read_bytes()
    done = folder.advise("--format", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["tried"] > 2, report["failed"], report["caveats"]) == (True, 0, [])
    assert report["remedies"]
    children, parents = map(set, zip(*folder.imported(), strict=True))
    assert len(folder.imported()) == len(children) >= 2
    assert len(parents) == 1
    assert children.isdisjoint(parents)
    assert sorted(done.stderr.split()) == ["echoed", "printed", "written"]
    folder.assert_nothing_is_left()
    assert before == ((folder.path / "step.py").read_bytes(), (folder.path / "helper.py").read_bytes())


def test_a_process_that_ends_while_it_tries_counts_as_failed(folder):
    """The others are tried in a process of their own."""
    folder.write(
        HEAD
        + """
here, times = os.getcwd(), []

def f(x, w):
    times.append(1)
    if len(times) == 3 and not os.path.exists(f"{here}/aborted"):
        open(f"{here}/aborted", "w").close()
        os.abort()
    return helper.dot(x, w).sum(1)
"""
    )
    done = folder.advise("--format", "json")
    assert done.returncode == 0, done.stderr
    assert (folder.path / "aborted").exists()
    report = json.loads(done.stdout)
    assert (report["failed"], report["tried"] > 2) == (1, True)
    folder.assert_nothing_is_left()


SLOW = (
    "step.py:f was not imported and compiled within 4 s: give it more with --budget, or see with jai-cli program"
    " where it waits"
)
ENDED = "step.py:f: the process that compiles ended{}. jai-cli program step.py:f shows why"


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("raise ValueError('two')\n", 2, "step.py cannot be loaded: ValueError: two (step.py:12 <module>)"),
        (
            "def f(x, w):\n    sys.exit(3)\n",
            1,
            "step.py:f does not compile: SystemExit: 3 (step.py:13 f)",
        ),
        ("os.abort()\n", 2, ENDED.format(" with SIGABRT")),
        ("os._exit(0)\n", 2, ENDED.format("")),
        ("import time; time.sleep(1000)\n", 2, SLOW),
    ],
)
def test_an_error_is_one_line(folder, text, code, message):
    folder.write(HEAD + text)
    done = folder.advise(budget="2s" if message == SLOW else "600s")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"Error: {message}\n")
    assert len(folder.imported()) <= 2  # again without calls around its expressions
    folder.assert_nothing_is_left()


def test_an_interrupt_leaves_nothing(folder):
    """The command ends with the code of the other commands, at any time."""
    folder.write(HEAD + STEP)
    numbers = random.Random(0)
    for number in range(INTERRUPTS):
        command = folder.start()
        time.sleep(numbers.uniform(0.1, 6))
        for _ in range(1 + number % 3):
            os.killpg(command.pid, signal.SIGINT)
            time.sleep(0.01)
        out, error = command.communicate(timeout=60)
        if command.returncode != 0:  # it has not ended before
            assert (command.returncode, out) in ((2, ""), (130, ""), (-signal.SIGINT, "")), error
            assert "Traceback" not in error or command.returncode == -signal.SIGINT, error
        folder.assert_nothing_is_left()


def test_the_children_end_with_the_command(folder):
    folder.write(HEAD + STEP)
    command = folder.start()
    while not folder.imported() and command.poll() is None:
        time.sleep(0.05)
    command.kill()
    command.communicate(timeout=60)
    assert command.returncode == -signal.SIGKILL
    folder.assert_nothing_is_left()


EDITED = """
if len(open("log").readlines()) == 1:
    with open("helper.py", "a") as file:
        print("# saved", file=file)
"""


def test_a_file_that_changes_meanwhile_ends_the_command(folder):
    """The figures of a proof would be those of another program."""
    folder.write(HEAD + EDITED + STEP)
    done = folder.advise()
    message = "Error: helper.py changed while it was looked at: run again\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)
    folder.assert_nothing_is_left()


class FakeChild:
    """Gives some answers, and raises those that are errors."""

    def __init__(self, *answers):
        self.answers = [*answers]
        self.messages = []
        self.starts = 0

    def start(self, *args, **options):
        self.starts += 1
        return self

    def ask(self, message, deadline):
        self.messages.append(message)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self):
        pass


def test_a_file_that_cannot_be_imported_again_ends_no_search(monkeypatch):
    """The changes that are left count as failed, and after some failures, no process is started."""
    report = ProgramReport(name="f", platform="cpu")
    program = Program(Base(report=report, tried_as=figures_of(report)), (), (), ())
    refused = Failed("refused", "step.py cannot be loaded: FileExistsError: out")
    child = FakeChild(program, EndedError("ended"), refused, refused, refused)
    monkeypatch.setattr("jax_array_info_cli.advice.engine.Child", child)
    options = {"topology": None, "dcn": None}
    engine = SourceEngine(Request(function=FunctionName("step.py", "f"), mesh={"x": 2}, options=options), 2)
    engine.base(0.0)
    messages = []
    for _ in range(6):
        with pytest.raises(TryFailedError) as raised:
            engine.tried(Edit("argument", ()), 0.0)
        messages.append(str(raised.value))
    assert messages == ["ended", *3 * [refused.message], *2 * ["the process that compiles ended too often"]]
    assert child.starts == 4


def test_a_file_that_does_not_run_with_calls_runs_without_them(monkeypatch):
    """What jai-cli program loads is loaded, and what it refuses has the same error."""
    report = ProgramReport(name="f", platform="cpu")
    program = Program(Base(report=report, tried_as=figures_of(report)), (), (), ())
    raised = Failed("refused", "step.py cannot be loaded: NameError", is_raised=True)
    options = {"topology": None, "dcn": None}
    request = Request(function=FunctionName("step.py", "f"), mesh={"x": 2}, options=options)
    child = FakeChild(raised, program)
    monkeypatch.setattr("jax_array_info_cli.advice.engine.Child", child)
    assert SourceEngine(request, 2).base(0.0) == program.base
    assert [task.has_calls for task in child.messages] == [True, False]
    for answers in ([raised, raised], [Failed("refused", "step.py has no function 'f'")]):
        child = FakeChild(*answers)
        monkeypatch.setattr("jax_array_info_cli.advice.engine.Child", child)
        with pytest.raises(Refusal, match=r"step\.py"):
            SourceEngine(request, 2).base(0.0)
        assert child.answers == []


def test_the_environment_keeps_flags_but_writes_no_files(monkeypatch, tmp_path):
    """Flags of XLA stay, also those of a file, but neither the number of devices nor the dumps."""
    flags = "--xla_dump_to=/x --xla_cpu_enable_fast_math=true --xla_force_host_platform_device_count=2"
    (tmp_path / "flags").write_text(flags)
    request = Request(
        function=FunctionName("step.py", "f"), mesh={"x": 4}, options={"topology": None, "dcn": None}
    )
    for value in (flags, str(tmp_path / "flags")):
        monkeypatch.setenv("XLA_FLAGS", value)
        assert SourceEngine(request, 4)._environment["XLA_FLAGS"] == (
            "--xla_cpu_enable_fast_math=true --xla_force_host_platform_device_count=4"
        )
