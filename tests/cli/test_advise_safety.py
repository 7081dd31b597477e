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
from jax_array_info_core.programs.advice.edits import Candidate
from jax_array_info_core.programs.advice.judging import figures_of
from jax_array_info_core.programs.advice.search import Base, EndedError
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
    shardings = NamedSharding(mesh, P(None, "x")), NamedSharding(mesh, P("x"))
    return [jax.ShapeDtypeStruct((512, 512), jnp.float32, sharding=one) for one in shardings]
"""
STEP = """
def f(x, w):
    return helper.dot(x, w).sum(1)
"""
HELPER = """
def dot(x, w):
    return (x @ w) * 2
"""
INTERRUPTS, MOMENTS = (50, 20) if "JAI_FUZZ" in os.environ else (5, 4)


QUIET = "import jax_array_info_cli.advice.engine as engine; engine._SECONDS = 600.0"
"""Says no step, however slow the machine is."""
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
        code = f"{QUIET}; {MAIN}" if budget != "2s" else f"{SOON}; {MAIN}"
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
        sessions = [int(one.name.split("-")[3]) for one in Path("/dev/shm").glob("jax-array-info-*")]
        assert [session for session in sessions if not os.path.exists(f"/proc/{session}")] == []


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
    assert len(parents) == len(children)  # each has a watcher
    assert children.isdisjoint(parents)
    assert sorted(done.stderr.split()) == ["echoed", "printed", "written"]
    folder.assert_nothing_is_left()
    assert before == ((folder.path / "step.py").read_bytes(), (folder.path / "helper.py").read_bytes())


COMPILES = """
compiling, calls, here = jax.stages.Lowered.compile, [], os.getcwd()

def compile_or_end(*args, **options):
    calls.append(1)
    if len(calls) == 3:  # after the report, and the program as changes are tried
        end()
    return compiling(*args, **options)

jax.stages.Lowered.compile = compile_or_end

def end():
"""

CHECK = """
    if not os.path.exists(f"{here}/aborted"):
        open(f"{here}/aborted", "w").close()
        os.write(2, b"F1129 15:41:33.2 1 spmd.cc:666] Check failed: 1 == 2 (1 vs. 2)\\n*** stack trace: ***\\n")
        os.abort()
"""


def test_a_process_that_ends_while_it_tries_counts_as_failed(folder):
    """The others are tried in a process of their own. The check that failed is said, and its stack is not."""
    folder.write(HEAD + COMPILES + CHECK + STEP)
    done = folder.advise("--format", "json")
    assert done.returncode == 0, done.stderr
    assert (folder.path / "aborted").exists()
    report = json.loads(done.stdout)
    assert (report["failed"], report["tried"] > 2) == (1, True)
    ended = "1 try failed: the process that compiles ended with SIGABRT: Check failed: 1 == 2 (1 vs. 2)"
    assert (report["caveats"], done.stderr) == ([ended], "")
    assert report["remedies"]
    folder.assert_nothing_is_left()


WAITS = """
    import tempfile
    tempfile.mkdtemp(dir="/dev/shm", prefix=f"jax-array-info-{os.getsid(0)}-")
    time.sleep(1000)
"""


def test_a_try_under_way_is_ended_with_the_budget(folder):
    """The folder in memory of its compilation goes, too."""
    folder.write(HEAD + COMPILES + WAITS + STEP)
    start = time.monotonic()
    done = folder.advise("--format", "json", budget="6s")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["tried"], report["remedies"], report["untried"] > 2) == (0, [], True)
    assert time.monotonic() - start < 300
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
            assert command.returncode in (2, 130, -signal.SIGINT), error
            has_page = out.startswith("1 change helps")  # Python ends, after the page
            assert not out or (has_page and command.returncode != 2), error
            assert "Traceback" not in error or command.returncode == -signal.SIGINT, error
        folder.assert_nothing_is_left()


STARTS = """
import subprocess
subprocess.Popen(["sleep", "4322"])
subprocess.Popen(["sleep", "4322"], process_group=0)
if os.fork() == 0:
    time.sleep(4322)
"""
HOLDS = """
import re
open(f"{__file__}.held", "w").close()
re.match(r"(a+)+$", "a" * 60 + "b")  # without end, with Python's lock
"""
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL)


def test_no_process_of_the_session_is_left_after_a_signal(folder):
    """Neither what the file has started nor the file itself, which holds Python's lock, and no pipe is open."""
    folder.write(HEAD + STARTS + HOLDS + STEP)
    held = folder.path / "step.py.held"
    for number in SIGNALS:
        command = folder.start()
        while not held.exists() and command.poll() is None:
            time.sleep(0.05)
        command.send_signal(number)
        command.communicate(timeout=60)
        assert command.returncode == -number
        held.unlink()
        folder.assert_nothing_is_left()


def test_no_process_of_the_session_is_left_whenever_a_signal_comes(folder):
    folder.write(HEAD + STARTS + STEP)
    numbers = random.Random(1)
    for number in range(MOMENTS):
        command = folder.start()
        time.sleep(numbers.uniform(0.1, 6))
        command.send_signal(SIGNALS[number % len(SIGNALS)])
        command.communicate(timeout=60)
        folder.assert_nothing_is_left()


LEAVES = """
import subprocess
nowhere = subprocess.DEVNULL
subprocess.Popen(["sleep", "4323"], start_new_session=True, stdout=nowhere, stderr=nowhere)
"""


def test_a_process_in_a_session_of_its_own_is_said(folder):
    """It is left, as it would be of a run of the file."""
    folder.write(HEAD + LEAVES + STEP)
    done = folder.advise("--format", "json")
    for process in folder.processes():
        os.kill(process, signal.SIGKILL)
    (caveat,) = json.loads(done.stdout)["caveats"]
    words = "processes run on in sessions of their own, started by step.py: sleep"
    assert caveat == f"{len(folder.imported())} {words}"


def test_a_step_that_takes_long_is_said(folder):
    folder.write(HEAD + "time.sleep(3)\n" + STEP.replace("return", "time.sleep(3)\n    return"))
    begin = "import jax_array_info_cli.advice.engine as engine; engine._SECONDS = 0.5"
    done = jai(*folder.arguments(), cwd=folder.path, code=f"{begin}; {MAIN}", **folder.environment)
    said = [line.rpartition(" … ")[0] for line in done.stderr.splitlines()]
    assert list(dict.fromkeys(said)) == ["importing step.py", "compiling step.py:f"]


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
        self.left = []

    def start(self, *args, **options):
        self.starts += 1
        return self

    def ask(self, message, deadline, on_step=None):
        self.messages.append(message)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self):
        pass


def test_a_file_that_cannot_be_imported_again_ends_no_search(monkeypatch):
    """A change that is tried then counts as one that has ended the process."""
    report = ProgramReport(name="f", platform="cpu")
    program = Program(Base(report=report, tried_as=figures_of(report)), (), (), ())
    refused = Failed("refused", "step.py cannot be loaded: FileExistsError: out", is_raised=True)
    child = FakeChild(program, EndedError("ended"), refused)
    monkeypatch.setattr("jax_array_info_cli.advice.engine.Child", child)
    options = {"topology": None, "dcn": None}
    engine = SourceEngine(Request(function=FunctionName("step.py", "f"), mesh={"x": 2}, options=options), 2)
    engine.base(0.0)
    messages = []
    for _ in range(2):
        with pytest.raises(EndedError) as raised:
            engine.tried(Candidate("rule", "", (), ()), 0.0)
        messages.append(str(raised.value))
    assert messages == ["ended", refused.message]
    assert child.starts == 2


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
