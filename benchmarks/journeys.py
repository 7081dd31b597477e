"""Files of the project that one call enters, and its calls between them: what a reader must follow."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import compare
import jax
import jax.numpy as jnp

from jax_array_info import print_program, sharding_info
from jax_array_info_cli.commands import jai_cli

PACKAGES = Path(__file__).parents[1] / "packages"


def journey(call: Callable[[], object]) -> tuple[int, int, int]:
    """Return the files that a call enters, the returns to a file that it had left, and all calls.

    The call is made twice, and the second one is counted: the first imports modules.
    """
    compare.silent(call)()
    files: list[str] = []
    calls = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(PACKAGES)):
            calls += 1
            if not files or files[-1] != file:
                files.append(file)

    silent = compare.silent(call)
    sys.setprofile(count)
    try:
        silent()
    finally:
        sys.setprofile(None)
    return len(set(files)), len(files) - len(set(files)), calls


def check_of_a_dump() -> None:
    """Check a dump of two leaves in MaxText's format, as ``jai-cli check`` does."""
    mesh = {"axis_names": ["fsdp"], "shape": {"fsdp": 4}}
    leaf = {"mesh": mesh, "partition_spec": ["fsdp", None], "shape": [8, 4]}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "named_shardings.json")
        file.write_text(json.dumps({f".params/['params']/['{name}']": leaf for name in "ab"}))
        jai_cli(["check", os.fspath(file)], standalone_mode=False)


if __name__ == "__main__":
    array = jnp.ones((8, 4))
    matmul = jax.jit(lambda x, y: x @ y)
    for name, call, bound in [
        ("sharding_info(array)", lambda: sharding_info(array, "x"), 14),
        ("print_program of a matmul", lambda: print_program(matmul, array, array.T), 40),
        ("jai-cli check of a small dump", check_of_a_dump, 28),
    ]:
        entered, returns, calls = journey(call)
        print(f"{name}: {entered} files (bound: {bound}), {returns} returns to a file, {calls} calls")
