"""``jai-cli`` in the process of the tests, and a folder with a file of functions."""

import sys
from typing import NamedTuple

import pytest

from jax_array_info import from_json
from jax_array_info_cli.commands import jai_cli
from tests.cli.launching import write_program


class Done(NamedTuple):
    """Result of a command that ran in this process."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def call(capsys, monkeypatch):
    """A function that runs ``jai-cli`` in this process, at a given width."""

    def function(*args, columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit) as ended:
            jai_cli(args, prog_name="jai-cli")
        return Done(ended.value.code, *capsys.readouterr())

    return function


@pytest.fixture
def report(call, request):
    """A function that runs the command ``COMMAND`` of the test's module and returns its report."""

    def function(*args):
        done = call(request.module.COMMAND, *args, "--format", "json")
        assert done.returncode == 0, done.stderr
        return from_json(done.stdout)

    return function


@pytest.fixture
def folder(tmp_path, monkeypatch, request):
    """A working directory with ``STEP`` of the test's module as ``step.py``.

    The devices of the tests stand for those of the command.
    """
    write_program(tmp_path, request.module.STEP, "step.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("jax_array_info_cli.user_code.compiling._prepare_jax", lambda count: None)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
