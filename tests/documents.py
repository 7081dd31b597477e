"""Runs what the README and tests show, as a user would: in a process of its own, on fake devices."""

import os
import re
import subprocess
import sys
import tempfile
from functools import cache

SEPARATOR = "\N{SYMBOL FOR RECORD SEPARATOR}"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_python(code, *, devices=8, encoding="utf-8", **environment):
    """Return what a program prints on so many fake devices, in an empty folder."""
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
    """Return what each of a document's Python blocks prints, run one after the other in one process."""
    code = f"\nprint({SEPARATOR!r}, end='')\n".join(blocks)
    return run_python(code, devices=devices).split(SEPARATOR)


def printed_blocks(document):
    """Yield a region for each Python block of a document, which must print the text block under it.

    A Python block that no text block follows at once must print nothing.
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
    """Return how what a block prints differs from what the document says, None when it does not."""
    blocks, number, expected = example.parsed
    printed = "".join(f"{line.rstrip()}\n" for line in run_blocks(blocks)[number].splitlines())
    return None if printed == expected else f"prints\n{printed}\nbut the document says\n{expected}"
