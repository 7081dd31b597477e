"""The page of contexts and versions of jax, from the table that the tests go through and their versions."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from types import ModuleType

PAGE = """---
hide: [toc]
---

# Contexts and versions of jax

From each of these a function may look at a value, and its report says how the sharding is known. The tests
run every one on every version named here; this table is made of theirs. What `known from` means stands in
[What did XLA choose inside jit?](../guides/inside-jit.md).

<div class="dense" markdown>

{table}

</div>

✓ is tested on that version; – where that version of jax has no such thing, or does not allow it.

## How each is made

`look` looks at a value and returns it; `x` is a sharded array, `mesh` its mesh, of axes a and b.

{programs}
"""


def context_page(contexts: ModuleType, noxfile: Path) -> str:
    """Return the table of ``tests.contexts`` against the versions of ``noxfile.py``, and each context."""
    versions = versions_of(noxfile)
    minors = [tuple(map(int, version.split(".")[:2])) for version in versions]
    table = [["context", "known from", "called under", "reports", *versions]]
    table.append(["---"] * 4 + [":-:"] * len(versions))
    programs = []
    for name, context in contexts.CONTEXTS.items():
        link = f"[{name}](#{name.replace(' ', '-')})"
        holds = ["✓" if context.since <= minor else "–" for minor in minors]
        table.append([link, context.source, context.called_under or "", str(context.reports), *holds])
        _, _, program = inspect.getsource(context.run).partition("\n")
        programs.append(f"### {name}\n\n```python\n{program.rstrip()}\n```")
    rows = (f"| {' | '.join(row)} |" for row in table)
    return PAGE.format(table="\n".join(rows), programs="\n\n".join(programs))


def versions_of(noxfile: Path) -> list[str]:
    """Return the versions of jax of the matrix, the oldest first, without running the file."""
    _, _, rest = noxfile.read_text(encoding="utf-8").partition("PYTHON_FOR_JAX = ")
    return list(ast.literal_eval(rest[: rest.index("}") + 1]))
