"""Program that runs a page's blocks in order, like a notebook.

The input is a JSON list of blocks. The output is everything that they print, in pieces. Each piece begins
with a line of ``RECORD`` and JSON: the number of the block, and the command or value before the text.
"""

import ast
import faulthandler
import json
import os
import subprocess
import sys
import traceback
import types
from pathlib import Path
from typing import Any

from jax_array_info_core.programs.raised import explain

RECORD = "\x1e"
SECONDS = 600
"""Time limit of a block."""
UNOPTIMIZED = "--xla_backend_optimization_level=0"
"""Without LLVM's optimizations, programs compile in half the time, to the same HLO and the same sizes."""


def main() -> None:
    """Run the blocks, and stop at the first that fails or contradicts its options."""
    blocks = json.load(sys.stdin)
    environment = dict(os.environ)
    explain.SECONDS = SECONDS  # the bytes of edits do not depend on what else the machine does
    sys.path[0] = os.getcwd()
    page = sys.modules["__main__"] = types.ModuleType("__main__")
    page.__file__ = os.path.abspath("example.py")  # outputs that name a variable begin with the script name
    for block in blocks:
        record(block)
        if block["type"] == "console":
            run_commands(block, environment)
        else:
            Path(block["name"]).write_text(block["source"], encoding="utf-8")
            if not block["file"]:
                run_python(block, vars(page))
    record({"number": None})
    os._exit(0)  # skips JAX's shutdown of backends, which takes half a second


def record(block: dict[str, Any], **first: str) -> None:
    """Print the first line of a piece of output."""
    print(f"{RECORD}{json.dumps({'number': block['number'], **first})}", flush=True)


def run_commands(block: dict[str, Any], environment: dict[str, str]) -> None:
    """Run each command in a shell."""
    environment = environment | {"COLUMNS": str(block["width"])}
    for command in f"\n{block['source'].rstrip()}".split("\n$ ")[1:]:
        record(block, command=command)
        words = ["bash", "-o", "pipefail", "-c", command]
        code = subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, timeout=SECONDS).returncode
        if code != block["exit"]:
            sys.exit(f"{command!r} exits with {code}, not with {block['exit']}")


def run_python(block: dict[str, Any], namespace: dict[str, Any]) -> None:
    """Run code as in an interactive session, which displays the value of each expression."""
    os.environ["COLUMNS"] = str(block["width"])
    if block["devices"]:
        flags = f"{UNOPTIMIZED} --xla_force_host_platform_device_count={block['devices']}"
        if os.environ["XLA_FLAGS"] not in (UNOPTIMIZED, flags):
            sys.exit('the process has another number of devices: fresh="yes" starts a new one')
        os.environ["XLA_FLAGS"] = flags
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    sys.displayhook = lambda value: display(block, value)
    path = os.path.abspath(block["name"])
    try:
        exec(compile(ast.Interactive(ast.parse(block["source"], path).body), path, "single"), namespace)
    except Exception as error:
        if block["raises"] not in [error_type.__name__ for error_type in type(error).__mro__]:
            raise
        print(traceback.format_exception_only(error)[0], end="")  # without its notes
    else:
        if block["raises"]:
            sys.exit(f"the block does not raise {block['raises']}")
    if "jax" in sys.modules:
        sys.modules["jax"].effects_barrier()  # waits for the output of callbacks
    faulthandler.cancel_dump_traceback_later()


def display(block: dict[str, Any], value: Any) -> None:
    """Output the HTML or SVG of a value, as a notebook does, and its plain text."""
    if hasattr(value, "_repr_mimebundle_"):
        bundle = value._repr_mimebundle_()
        html = bundle.get("text/html") or bundle.get("image/svg+xml", "")
        record(block, html=html, plain=bundle.get("text/plain", ""))


if __name__ == "__main__":
    main()
