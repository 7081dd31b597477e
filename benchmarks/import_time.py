"""Cost of ``import jax_array_info`` and of ``jai-cli --help`` in a new process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import compare


def running(code: str) -> Callable[[], object]:
    """Return a function that runs Python code in a new process."""
    return lambda: subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


CASES = [
    ("import jax, jax_array_info", "import jax", "at most 1.05 x"),
    ("import jax; from jax_array_info import sharding_info", "import jax", "at most 1.12 x"),
    ("import jax_array_info", "import numpy, rich.console", "at most 1.3 x"),
    ("from jax_array_info import *", "import numpy, rich.console", "at most 2 x"),
    (
        "import sys; from jax_array_info_cli import main; sys.argv[1:] = ['--help']; main()",
        "import click",
        "at most 1.6 x",
    ),
]

if __name__ == "__main__":
    for ours, theirs, bound in CASES:
        compare.times(f"{ours}, relative to {theirs}", running(ours), running(theirs), bound=bound, rounds=7)
