"""Runs of the README's code blocks and of test programs, in a new process on fake devices."""

import os
import re
import subprocess
import sys
import tempfile
from functools import cache

SEPARATOR = "\N{SYMBOL FOR RECORD SEPARATOR}"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_python(code, *, devices=8, encoding="utf-8", **environment):
    """Return the output of a program, run on fake devices in an empty directory."""
    environment = {
        **os.environ,
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "JAX_PLATFORMS": "cpu",
        "PYTHONIOENCODING": encoding,
        **environment,
    }
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env=environment,
            capture_output=True,
            check=False,
            timeout=300,
        )
    assert process.returncode == 0, process.stderr.decode()
    return process.stdout.decode(encoding)


@cache
def run_blocks(blocks, devices=8):
    """Return the output of each Python block of a document, run in order in one process."""
    code = f"\nprint({SEPARATOR!r}, end='')\n".join(blocks)
    return run_python(code, devices=devices).split(SEPARATOR)


def printed_blocks(document):
    """Yield a region for each Python block of a document.

    A block must print the text block that follows it immediately, or nothing if there is none.
    """
    from sybil import Region

    found = list(BLOCK.finditer(document.text))
    blocks = tuple(match[2] for match in found if match[1] == "python")
    programs = [match for match in found if match[1] == "python"]
    for number, match in enumerate(programs):
        following = BLOCK.match(document.text, match.end() + len("\n\n"))
        expected = following[2] if following and following[1] == "text" else ""
        yield Region(match.start(), match.end(), (blocks, number, expected), check_block)


def check_block(example):
    """Return the difference between a block's output and the document, or None if they are equal."""
    blocks, number, expected = example.parsed
    printed = "".join(f"{line.rstrip()}\n" for line in run_blocks(blocks)[number].splitlines())
    return None if printed == expected else f"prints\n{printed}\nbut the document says\n{expected}"
