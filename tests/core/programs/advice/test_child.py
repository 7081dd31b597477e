"""The child process that answers messages."""

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jax_array_info_core.programs.advice.child import Child, EndedError
from jax_array_info_core.programs.advice.search import TimeOverError

ANSWERS = """
import os, sys, time
from jax_array_info_core.programs.advice.child import Parent

def main():
    parent = Parent()
    for message in parent.messages():
        if message == "end":
            os.abort()
        if message == "sleep":
            time.sleep(100)
        parent.answer(eval(message))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "answers_of_child.py").write_text(ANSWERS)
    monkeypatch.syspath_prepend(tmp_path)
    return "answers_of_child"


def soon() -> float:
    return time.monotonic() + 60


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else []


def test_a_child_answers_and_leaves_nothing(module: str) -> None:
    """It answers one question after another. Its process and the socket are gone after it is closed."""
    before = descriptors()
    child = Child.start(module, {"OF_CHILD": "yes"})
    assert child.ask("1 + 1", soon()) == 2
    assert child.ask("os.environ['OF_CHILD']", soon()) == "yes"
    assert len(child.ask("'x' * 10_000_000", soon())) == 10_000_000
    number = child.ask("os.getpid()", soon())
    assert child.ask("os.getsid(0)", soon()) != os.getsid(0)
    child.close()
    child.close()
    assert not is_running(number)
    assert descriptors() == before


def test_a_child_that_ends_is_told(module: str) -> None:
    """A failed check in C++ ends the child, and the reason is its signal. So does an error."""
    child = Child.start(module, {})
    with pytest.raises(EndedError, match="SIGABRT"):
        child.ask("end", soon())
    with pytest.raises(EndedError):
        child.ask("1", soon())
    raising = Child.start(module, {})
    with pytest.raises(EndedError):
        raising.ask("1 / 0", soon())
    unknown = Child.start("a_module_that_does_not_exist", {})
    with pytest.raises(EndedError):
        unknown.ask("1", soon())


def test_a_child_that_is_late_is_ended(module: str) -> None:
    """Its answer would be that to the next question."""
    child = Child.start(module, {})
    number = child.ask("os.getpid()", soon())
    with pytest.raises(TimeOverError):
        child.ask("sleep", time.monotonic() + 0.05)
    assert not is_running(number)


def test_a_child_ends_with_its_object(module: str) -> None:
    """An interrupt before it is closed leaves no process behind."""
    child = Child.start(module, {})
    number = child.ask("os.getpid()", soon())
    del child
    gc.collect()
    assert not is_running(number)


def test_a_child_ends_with_its_parent(module: str) -> None:
    """Also if the parent is killed."""
    program = (
        f"import os, sys, time; sys.path[:] = {sys.path!r}\n"
        "from jax_array_info_core.programs.advice.child import Child\n"
        f"child = Child.start({module!r}, {{}})\n"
        "print(child.ask('os.getpid()', time.monotonic() + 60), flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    number = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = soon()
    while is_running(number) and time.monotonic() < deadline and _parent_of(number) != "Z":
        time.sleep(0.05)
    assert time.monotonic() < deadline


def _parent_of(number: int) -> str:
    """Return the state of a process: Z until the first process of a container has waited for it."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
