"""The commands, each imported from its module when it is called, and the one that shows a file.

Errors escape control characters.
"""

from __future__ import annotations

import errno
import importlib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from jax_array_info_core.base.text import printable

from ..reporting import Context
from ..output import Refusal, refused

if TYPE_CHECKING:
    from pathlib import Path

_QUESTIONS = {
    "show": "Which slice would each device hold on a mesh I don't have?",
    "explain": "What does this sharding, or this code of a finding, mean?",
    "mesh": "Which mesh axis crosses which wire?",
    "tree": "How is every leaf of a checkpoint or a saved tree sharded, and what does a device hold?",
    "check": "Is this tree sharded as meant, and does it fit?",
    "diff": "Which leaves of a checkpoint or a plan changed, or what does my program send now?",
    "run": "Which arrays does my program leave alive, and what does it compile again?",
    "program": "What does XLA make of my function, and what does it send over each mesh axis?",
    "layers": "What does each layer cost: bytes held, sent and saved, and FLOPs?",
    "advise": "Which change of a sharding makes my function better, and by how much?",
    "why": "Why is each value of my function sharded as it is, and where is a mesh axis lost?",
    "log": "What killed this job, in which rank, and what is to be done?",
    "devices": "Which devices does JAX see, and how much of their memory is in use?",
    "hosts": "Which process of a job has the most bytes, and which have other arrays?",
    "memory": "What happened to the memory over time: when was the peak, and what grew?",
    "top": "What holds the memory of this running job now, and what grows?",
    "profile": "What does this device memory profile contain?",
    "report": "What does this saved report say?",
    "demo": "What does this show of an array, a model, a step, a leak and a recompile?",
}
"""The question that each command answers, in the order of the help."""
_SHARED = {
    **dict.fromkeys(("log", "hosts", "memory", "profile", "report", "top"), "recorded"),
    **dict.fromkeys(("mesh", "explain"), "show"),
    **dict.fromkeys(("check", "diff"), "tree"),
    **dict.fromkeys(("demo", "devices"), "run"),
    **dict.fromkeys(("layers", "why"), "program"),
}
"""The modules of commands that are not in one of their name."""
_EPILOG = """
\b
Examples:
  $ jai-cli show 16384,16384 --mesh data=4,model=2 --spec data,model
  $ jai-cli tree model.npz --mesh fsdp=8 --spec 'embed=fsdp' --spec '*=-'
  $ jai-cli check plan.json --hbm 95GiB --optimizer adam
  $ jai-cli run --devices 8 train.py
  $ jai-cli program step.py:step --mesh fsdp=8 --args-from step.py:abstract
  $ jai-cli why step.py:step --mesh fsdp=64 --args-from step.py:abstract
  $ jai-cli demo

\b
Environment variables:
  NO_COLOR     Turn colors off.
  FORCE_COLOR  Use colors even when the output is redirected.
  COLUMNS      Output width. Default: the terminal's width, or 80.

\b
Exit codes:
  0  Success.
  1  Failure unrelated to the arguments, such as a full disk.
  2  Invalid argument or file.
  check, diff and hosts exit with 0 if nothing was found, with 1 for findings
  or differences (with --fail-on, for a broken rule), and with 2 if there is
  no answer.
  program exits with 1 if the function does not compile or does not fit the
  memory of its topology, and with 2 if there is no answer.
  why exits with 1 for a finding of --fail-on, with 2 without an answer.
  log exits with 1 if something in it ended the run, with 2 without an answer.
  run exits with the exit code of the program, or with 124 after --timeout;
  with --fail-on-recompile, with 1 if the program recompiles and succeeds.
  run exits with 128 + n if signal n ends the program.

\b
Shell completion, with one line in the shell's startup file:
  bash   eval "$(_JAI_CLI_COMPLETE=bash_source jai-cli)"
  zsh    eval "$(_JAI_CLI_COMPLETE=zsh_source jai-cli)"
  fish   _JAI_CLI_COMPLETE=fish_source jai-cli | source
"""


class Commands(Mapping[str, click.Command]):
    """The commands by name. Each is imported from its module when it is looked up."""

    def __getitem__(self, name: str) -> click.Command:
        question = _QUESTIONS[name]
        module = importlib.import_module(f"{__package__}.{_SHARED.get(name, name)}")
        command: click.Command = getattr(module, name)
        command.short_help = question
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(_QUESTIONS)

    def __len__(self) -> int:
        return len(_QUESTIONS)


class Group(click.Group):
    """The group of all commands, in the order of their addition."""

    context_class = Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, unsorted."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the questions of the commands, which are not imported for it."""
        with formatter.section("Commands"):
            formatter.write_dl([*_QUESTIONS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that a word names, or that shows the file or the folder of this name."""
        word = args[0]
        if word not in self.commands and is_path(word):
            entry = entry_of(word)
            ctx.obj = f"{printable(word)}: {entry.kind}, as jai-cli {entry.command} shows it"
            args = [entry.command, *args]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. Errors are escaped for the terminal and its encoding."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise click.UsageError(shown_on_stderr(error.format_message()), error.ctx) from error
        except click.ClickException as error:
            error_class = Refusal if error.exit_code == Refusal.exit_code else click.ClickException
            raise error_class(shown_on_stderr(error.format_message())) from error


def shown_on_stderr(message: str) -> str:
    """Return a message with every character escaped that stderr cannot show or a terminal would obey."""
    from jax_array_info_core.base.text import printable_lines

    # Click writes UTF-8 even if the encoding of stderr is ASCII.
    return printable_lines(message, getattr(sys.stderr, "encoding", None) or "utf-8")


@click.group(
    cls=Group,
    commands=Commands(),
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="jax-array-info")
def jai_cli() -> None:
    """See how JAX arrays are sharded and how much memory they take on each device.

    Each command answers one question. Run jai-cli COMMAND --help for its options and examples. jai-cli FILE
    looks at a file or a folder, and shows it: a checkpoint, a saved report, a log, a record or a profile.
    """


_TREES = (".json", ".npz", ".npy", ".safetensors")
_REPORT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"report"\s*:\s*"(\w+)"')
"""Start of a saved report, or of the summary before it."""
_HEAD = 64
_DEEPEST = 3
"""Folders inside each other from a manager's to that of an item with arrays."""


class Entry(NamedTuple):
    """How a file or a folder is read."""

    command: str
    """Name of the command that reads it."""
    kind: str
    """What it is, in words."""


def is_path(word: str) -> bool:
    """Return whether a word that is not a command looks like a path, or is one."""
    return "/" in word or "." in word or os.path.exists(word)


def entry_of(name: str) -> Entry:
    """Return how a file or a folder is read, by its content.

    Raises:
        Refusal: If no command shows it without further arguments, or it cannot be read.
    """
    from pathlib import Path  # commands do not need it

    path, shown = Path(name), printable(name)
    with refused(OSError, prefix=f"{shown}: "):
        if path.is_dir():
            return _entry_of_folder(path, shown)
        if path.suffix == ".py":
            takers = f"jai-cli run {shown} runs it; jai-cli program and why take {shown}:FUNCTION"
            raise Refusal(f"{shown}: a program: {takers}")
        head = b""
        if path.is_file():  # others, such as pipes, are read once
            with path.open("rb") as file:
                head = file.read(_HEAD)
        elif not path.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    if report := _REPORT.match(head):
        is_tree = report[1] == b"TreeReport"
        return Entry("tree", "a saved tree") if is_tree else Entry("report", "a saved report")
    if path.suffix.lower() in _TREES or head.startswith((b"PK\x03\x04", b"\x93NUMPY")):
        return Entry("tree", "the arrays of a file")
    if head.startswith(b"\x1f\x8b"):
        return Entry("profile", "a device memory profile")
    return Entry("log", "a log")


def _entry_of_folder(folder: Path, shown: str) -> Entry:
    from jax_array_info_core.jobs.logs import LOG_SUFFIXES
    from jax_array_info_core.trees.stored.orbax import METADATA

    if any(folder.glob("*.jsonl")):
        return Entry("memory", "a record of memory")
    for path in folder.glob("*.json"):
        with path.open("rb") as file:
            if _REPORT.match(file.read(_HEAD)):
                return Entry("hosts", "the reports of processes")
    if any(any(folder.glob("*/" * depth + METADATA)) for depth in range(_DEEPEST)):
        return Entry("tree", "an Orbax checkpoint")
    if any(path.suffix in LOG_SUFFIXES for path in folder.iterdir()):
        return Entry("log", "logs")
    kinds = f"a record (*.jsonl), saved reports (*.json), a checkpoint, logs ({', '.join(LOG_SUFFIXES)})"
    raise Refusal(f"{shown}: a folder with none of these: {kinds}")
