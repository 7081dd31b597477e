"""What ``import jax_array_info`` costs beside ``import jax``: each in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from compare import compare


def running(code: str) -> Callable[[], object]:
    """Return a function that runs Python code in a new process."""
    return lambda: subprocess.run([sys.executable, "-c", code], check=True)


if __name__ == "__main__":
    jax_alone = running("import jax")
    compare(
        "import jax_array_info, beside import jax",
        running("import jax_array_info"),
        jax_alone,
        bound="at most 1.10 x",
        rounds=7,
    )
    compare(
        "import jax and jax_array_info, beside import jax",
        running("import jax, jax_array_info"),
        jax_alone,
        bound="at most 1.10 x",
        rounds=7,
    )
