"""Help texts and shell completion: every command has examples, and every example runs."""

import os
import re
import shlex
import subprocess
import sys

import click
import pytest

from jax_array_info_cli.commands import jai_cli
from tests.cli.launching import write_program

pytestmark = [pytest.mark.own_process, pytest.mark.newest]

PROGRAM = "import jax; x = jax.numpy.ones((8, 8))"
STEP = """
import jax
from jax.sharding import NamedSharding, PartitionSpec as P

def step(params):
    return params * 2

def abstract(mesh):
    return jax.ShapeDtypeStruct((64, 64), "float32", sharding=NamedSharding(mesh, P("fsdp")))
"""


def examples_in(text):
    return re.findall(r"^ +\$ (.+)$", text, re.MULTILINE)


def all_examples():
    """Return the examples of ``jai-cli`` itself, under the name ``jai-cli``, and of each of its commands."""
    group = click.Context(jai_cli, info_name="jai-cli")
    found = {"jai-cli": examples_in(jai_cli.get_help(group))}
    for name, command in jai_cli.commands.items():
        found[name] = examples_in(command.get_help(click.Context(command, parent=group, info_name=name)))
    return found


EXAMPLES = all_examples()
NEED = {
    "jai-cli": EXAMPLES["diff"][:2],  # writes model.npz and plan.json
    "run": [],
    "program": [],
    "why": [],
    "top": [],
}
"""Commands whose examples need train.py or step.py, and the examples that must run before theirs."""


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """A directory with ``jai-cli`` and ``python`` for the path."""
    folder = tmp_path_factory.mktemp("path")
    python = shlex.quote(sys.executable)
    for name, command in (("jai-cli", f"{python} -m jax_array_info_cli"), ("python", python)):
        (folder / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def shell(commands, tmp_path):
    """A function that runs a line in bash, in an empty folder with ``jai-cli`` on the path."""

    def run(line, **environment):
        return subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{commands}:{os.environ['PATH']}", **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    return run


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_each_command_run_in_this_order_in_an_empty_folder(name, shell, tmp_path):
    if name in NEED:
        write_program(tmp_path, PROGRAM, "train.py")
        write_program(tmp_path, STEP, "step.py")
    for line in [*NEED.get(name, []), *EXAMPLES[name]]:
        done = shell(line)
        assert (line, done.returncode, done.stderr) == (line, 0, "")


def test_each_command_has_an_example_and_a_question():
    for name, command in jai_cli.commands.items():
        assert any(line.startswith(f"jai-cli {name}") for line in EXAMPLES[name]), name
        assert "?" in command.short_help, name


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("sh", {"show"}),
        ("show --format j", {"json"}),
        ("run --pro", {"--processes"}),
        ("explain --me", {"--mesh"}),
    ],
)
def test_bash_completes_words(words, completed, shell):
    done = shell(
        'eval "$(_JAI_CLI_COMPLETE=bash_source jai-cli)"\n'
        f"COMP_WORDS=(jai-cli {words}) COMP_CWORD={len(words.split())}\n"
        "_jai_cli_completion jai-cli\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == completed


def test_file_arguments_complete_file_names(shell):
    for words in (
        "run tr",
        "profile mem",
        "tree mod",
        "check pl",
        "diff a",
        "diff a b",
        "program st",
        "why st",
    ):
        request = {"COMP_WORDS": f"jai-cli {words}", "COMP_CWORD": str(len(words.split()))}
        answer = shell("jai-cli", _JAI_CLI_COMPLETE="bash_complete", **request)
        assert answer.stdout == f"file,{words.split()[-1]}\n"
