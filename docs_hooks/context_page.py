"""The page of contexts and versions of jax, from the table that the tests go through and their versions."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

HEAD = """---
hide: [toc]
---

# Contexts and versions of jax

From each of these a function may look at a value, and its report says how the sharding is known. The tests
run every one on every version named here; this table is made of theirs. What `known from` means stands in
[What did XLA choose inside jit?](../guides/inside-jit.md).
"""
FOOT = """
✓ is tested on that version; – where that version of jax has no such thing, or does not allow it.
"""


def context_page(contexts: ModuleType, noxfile: Path) -> str:
    """Return the table of ``tests.contexts`` against the versions of ``noxfile.py``, and each context."""
    versions = versions_of(noxfile)
    return (
        "\n".join(
            [
                HEAD,
                '<div class="dense" markdown>\n',
                *_table(contexts, versions),
                "\n</div>",
                FOOT,
                *_programs(contexts),
            ]
        )
        + "\n"
    )


def versions_of(noxfile: Path) -> list[str]:
    """Return the versions of jax of the matrix, the oldest first, without running the file."""
    for statement in ast.parse(noxfile.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "PYTHON_FOR_JAX":
            return list(ast.literal_eval(statement.value))
    raise ValueError(f"{noxfile.name} has no PYTHON_FOR_JAX")


def _table(contexts: ModuleType, versions: list[str]) -> Iterator[str]:
    yield " | ".join(["| context", "known from", "called under", "reports", *versions]) + " |"
    yield "|---|---|---|---|" + ":-:|" * len(versions)
    for name, context in contexts.CONTEXTS.items():
        holds = ["✓" if context.since <= _minor(version) else "–" for version in versions]
        link = f"[{name}](#{name.replace(' ', '-')})"
        yield (
            " | ".join(
                [f"| {link}", context.source, context.called_under or "", str(context.reports), *holds]
            )
            + " |"
        )


def _programs(contexts: ModuleType) -> Iterator[str]:
    """Yield how each context calls a function that looks."""
    yield "## How each is made"
    yield ""
    yield "`look` looks at a value and returns it; `x` is a sharded array, `mesh` its mesh, of axes a and b."
    for name, context in contexts.CONTEXTS.items():
        _, _, program = inspect.getsource(context.run).partition("\n")
        yield from ["", f"### {name}", "", "```python", program.rstrip(), "```"]


def _minor(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))
