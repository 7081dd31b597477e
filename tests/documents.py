"""Runs of the README's blocks and of test programs, in a new process on simulated devices."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

SEPARATOR = "\N{SYMBOL FOR RECORD SEPARATOR}"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# (\w+\.py)\n")


def run_python(code, *, devices=8, encoding="utf-8", file=None, **environment):
    """Return the output of a program, run on simulated devices in an empty directory, from a file if it has a name."""
    environment = {
        **os.environ,
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
        "PYTHONIOENCODING": encoding,
        **environment,
    }
    with tempfile.TemporaryDirectory() as folder:
        if file:
            (Path(folder) / file).write_text(code, encoding="utf-8")
        process = subprocess.run(
            [sys.executable, file] if file else [sys.executable, "-c", code],
            cwd=folder,
            env=environment,
            capture_output=True,
            check=False,
            timeout=300,
        )
    assert process.returncode == 0, process.stderr.decode()
    return process.stdout.decode(encoding)


@cache
def run_blocks(blocks, devices=8, file=None):
    """Return the output of each Python block of a program, run in order in one process."""
    code = f"\nprint({SEPARATOR!r}, end='')\n".join(blocks)
    return run_python(code, devices=devices, file=file).split(SEPARATOR)


def printed_blocks(document):
    """Yield a region for each Python block and each console block of a document.

    A Python block must print the text block that follows it immediately, or nothing if there is none. A block
    whose first line is a comment such as ``# train.py`` starts a new program with that file name. A console
    block has commands, each after ``$ ``, followed by their output.
    """
    from sybil import Region

    found = list(BLOCK.finditer(document.text))
    for match in found:
        if match[1] == "console":
            yield Region(match.start(), match.end(), match[2], check_console)
    for file, program in programs_of(match for match in found if match[1] == "python"):
        blocks = tuple(match[2] for match in program)
        for number, match in enumerate(program):
            following = BLOCK.match(document.text, match.end() + len("\n\n"))
            expected = following[2] if following and following[1] == "text" else ""
            yield Region(match.start(), match.end(), (file, blocks, number, expected), check_block)


def programs_of(python_blocks):
    """Return the file name and the blocks of each program; the first may have no name."""
    programs = []
    for match in python_blocks:
        named = FILE_NAME.match(match[2])
        if named or not programs:
            programs.append((named and named[1], []))
        programs[-1][1].append(match)
    return programs


def check_block(example):
    """Return the difference between a block's output and the document, or None if they are equal."""
    file, blocks, number, expected = example.parsed
    return difference(run_blocks(blocks, file=file)[number], expected)


def check_console(example):
    """Return the difference between the output of commands and the document, or None if they are equal."""
    shown = ""
    for command in re.findall(r"^\$ (.*(?:\\\n.*)*)\n", example.parsed, re.MULTILINE):
        program, *arguments = shlex.split(command)
        assert program == "jai-cli", command
        process = subprocess.run(
            [sys.executable, "-m", "jax_array_info_cli", *arguments],
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            check=True,
            timeout=300,
        )
        shown += f"$ {command}\n{process.stdout.decode()}"
    return difference(shown, example.parsed)


def difference(printed, expected):
    """Return both texts if they differ, ignoring trailing spaces, or None if they are equal."""
    printed = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
    return None if printed == expected else f"prints\n{printed}\nbut the document says\n{expected}"
