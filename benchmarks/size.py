"""Size of the project: counts per package, large functions, vague names, and the files that a call enters."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any

import compare

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "core": "core/src/jax_array_info_core",
    "rich_render": "rich_render/src/jax_array_info",
    "cli": "cli/src/jax_array_info_cli",
}
IMPORTS = (ast.Import, ast.ImportFrom)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
VAGUE = ["one", "found", "each", "own", "rest", "left", "of", "told", "same"]
"""Names of variables that say nothing about their values."""


def is_docstring(node: ast.AST) -> bool:
    """Return whether a statement is a text alone, as docstrings of modules, functions and fields are."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def counts(nodes: Iterable[ast.AST]) -> tuple[int, int]:
    """Return the statements without docstrings and imports, and the imports."""
    statements = [node for node in nodes if isinstance(node, ast.stmt)]
    imports = sum(isinstance(node, IMPORTS) for node in statements)
    return len(statements) - imports - sum(map(is_docstring, statements)), imports


def vague_names(nodes: Iterable[ast.AST]) -> Counter[str]:
    """Return how often variables and parameters have a name that says nothing."""
    variables = (node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    parameters = (node.arg for node in nodes if isinstance(node, ast.arg))
    return Counter(name for name in chain(variables, parameters) if name in VAGUE)


def large_functions(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield functions with more than 60 lines of body, without the docstring, or more than 10 parameters."""
    for node in nodes:
        if isinstance(node, FUNCTIONS):
            first = node.body[is_docstring(node.body[0]) and len(node.body) > 1]
            lines = (node.body[-1].end_lineno or 0) - first.lineno + 1
            parameters = sum(isinstance(part, ast.arg) for part in ast.walk(node.args))
            if lines > 60 or parameters > 10:
                yield f"{node.name}: {lines} lines, {parameters} parameters"


def journey(call: Callable[[], object]) -> tuple[int, int, int]:
    """Return the files that a call enters, the returns to a file that it had left, and all calls.

    The call is made twice, and the second one is counted: the first imports modules.
    """
    silent = compare.silent(call)
    silent()
    files: list[str] = []
    calls = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(ROOT / "packages")):
            calls += 1
            if not files or files[-1] != file:
                files.append(file)

    sys.setprofile(count)
    try:
        silent()
    finally:
        sys.setprofile(None)
    return len(set(files)), len(files) - len(set(files)), calls


def program_of_the_readme(name: str, folder: str) -> dict[str, Any]:
    """Run the block of the README whose first line is this file name, and return its names."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(rf"```python\n(# {re.escape(name)}\n.*?)```", text, re.DOTALL)
    assert block is not None
    file = Path(folder, name)
    file.write_text(block[1], encoding="utf-8")
    names: dict[str, Any] = {}
    compare.silent(lambda: names.update(runpy.run_path(os.fspath(file))))()
    return names


def check_of_a_dump(folder: str) -> None:
    """Check a dump of two leaves in MaxText's format, as ``jai-cli check`` does."""
    from jax_array_info_cli.commands import jai_cli

    mesh = {"axis_names": ["fsdp"], "shape": {"fsdp": 4}}
    leaf = {"mesh": mesh, "partition_spec": ["fsdp", None], "shape": [8, 4]}
    file = Path(folder, "named_shardings.json")
    file.write_text(json.dumps({f".params/['params']/['{name}']": leaf for name in "ab"}))
    jai_cli(["check", os.fspath(file)], standalone_mode=False)


def journeys() -> None:
    """Print the files that three calls enter."""
    import jax

    from jax_array_info import print_program, sharding_info

    with tempfile.TemporaryDirectory() as folder:
        head = program_of_the_readme("state.py", folder)["params"]["head"]
        step, w, x, output = map(program_of_the_readme("gather.py", folder).get, ("step", "w", "x", "output"))
        compiled = jax.jit(step, out_shardings=output)
        for name, call, bound in [
            ("sharding_info of the README's head", lambda: sharding_info(head), 13),
            ("print_program of the README's step", lambda: print_program(compiled, w, x), 42),
            ("jai-cli check of a small dump", lambda: check_of_a_dump(folder), 24),
        ]:
            entered, returns, calls = journey(call)
            print(f"{name}: {entered} files (bound: {bound}), {returns} returns to a file, {calls} calls")


if __name__ == "__main__":
    nodes: list[ast.AST] = []
    file_count = 0
    for package, place in PACKAGES.items():
        files = sorted((ROOT / "packages" / place).rglob("*.py"))
        inside = [node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
        print("{}: {} statements, {} imports, {} files".format(package, *counts(inside), len(files)))
        nodes += inside
        file_count += len(files)
    print(
        "in total: {} statements without docstrings and imports, {} imports, {} files".format(
            *counts(nodes), file_count
        )
    )
    print(*large_functions(nodes), sep="\n")
    vague = vague_names(nodes)
    print(
        f"vague names: {vague.total()},", ", ".join(f"{name} {count}" for name, count in vague.most_common())
    )
    import jax_array_info
    import jax_array_info_core

    for module in (jax_array_info_core, jax_array_info):
        rooms = (module.errors, module.layouts, module.reports)
        listed = ", ".join(f"{len(room.__all__)} in {room.__name__.rpartition('.')[2]}" for room in rooms)
        print(f"{module.__name__}: {len(module.__all__)} public names, and {listed}")
    tests = [len(file.read_text(encoding="utf-8").splitlines()) for file in (ROOT / "tests").rglob("*.py")]
    print(f"tests: {sum(tests)} lines, {len(tests)} files")
    journeys()
