"""A program that runs a page's blocks one after the other, as a notebook does.

The input is a list of blocks in JSON. The output is all that they print. Before each piece of it, a line that
begins with ``RECORD`` has in JSON the number of the block, and the command or the HTML that comes first.
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

RECORD = "\x1e"
SECONDS = 600
"""How long a block may take."""


def main() -> None:
    """Run the blocks, and stop at the first that does not do what its options say."""
    blocks = json.load(sys.stdin)
    environment = dict(os.environ)
    sys.path[0] = os.getcwd()
    page = sys.modules["__main__"] = types.ModuleType("__main__")
    page.__file__ = os.path.abspath("example.py")  # outputs that name a variable begin with the script
    for block in blocks:
        record(block)
        if block["type"] == "console":
            run_commands(block, environment)
        else:
            Path(block["name"]).write_text(block["source"], encoding="utf-8")
            if not block["file"]:
                run_python(block, vars(page))
    record({"number": None})
    os._exit(0)  # JAX takes half a second to clear its backends


def record(block: dict[str, Any], **first: str) -> None:
    """Begin a piece of the output."""
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
    """Run code as typed, so that its expressions are displayed."""
    os.environ["COLUMNS"] = str(block["width"])
    if block["devices"]:
        flags = f"--xla_force_host_platform_device_count={block['devices']}"
        if os.environ.setdefault("XLA_FLAGS", flags) != flags:
            sys.exit('its process has other devices: fresh="yes" begins one')
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    sys.displayhook = lambda value: display(block, value)
    path = os.path.abspath(block["name"])
    try:
        exec(compile(ast.Interactive(ast.parse(block["source"], path).body), path, "single"), namespace)
    except Exception as error:
        if block["raises"] not in [kind.__name__ for kind in type(error).__mro__]:
            raise
        print(traceback.format_exception_only(error)[0], end="")  # without the notes that follow
    else:
        if block["raises"]:
            sys.exit(f"it does not raise {block['raises']}")
    if "jax" in sys.modules:
        sys.modules["jax"].effects_barrier()  # what callbacks print
    faulthandler.cancel_dump_traceback_later()


def display(block: dict[str, Any], value: Any) -> None:
    """Show a value as a notebook does, where that is HTML or SVG."""
    if hasattr(value, "_repr_mimebundle_"):
        bundle = value._repr_mimebundle_()
        record(block, html=bundle.get("text/html") or bundle.get("image/svg+xml", ""))


if __name__ == "__main__":
    main()
