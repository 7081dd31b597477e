"""Reference page of contexts and JAX versions, generated from the table and versions of the tests."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from types import ModuleType

PAGE = """---
hide: [toc]
---

# Supported transformations and JAX versions

You can inspect an array inside each of these transformations, on each of these versions of JAX. The table is
generated from the tests, which run every combination. The guide [inside jit](../guides/inside-jit.md)
explains `known from`.

- `known from` is the source of the sharding: the array, its type or the compiler. `manual`: the function sees
  one shard. `unknown`: the sharding is not known, for example because nothing is compiled.
- `called under` is the transformation that the report names.
- `reports` is the number of reports of one run.

<div class="dense" markdown>

{table}

</div>

✓: tested on that version. –: this version of JAX does not have or does not allow it.

## Code of each context

`look` inspects a value and returns it. `x` is a sharded array on `mesh`, whose axes are `a` and `b`.

{programs}
"""


def context_page(contexts: ModuleType, noxfile: Path) -> str:
    """Return the page: contexts of ``tests.contexts`` by versions of ``noxfile.py``, and their code."""
    versions = versions_of(noxfile)
    minors = [tuple(map(int, version.split(".")[:2])) for version in versions]
    table = [["context", "known from", "called under", "reports", *versions]]
    table.append(["---"] * 4 + [":-:"] * len(versions))
    programs = []
    for name, context in contexts.CONTEXTS.items():
        link = f"[{name}](#{name.replace(' ', '-')})"
        tested = ["✓" if context.since <= minor else "–" for minor in minors]
        table.append([link, context.source, context.called_under or "", str(context.reports), *tested])
        _, _, program = inspect.getsource(context.run).partition("\n")
        programs.append(f"### {name}\n\n```python\n{program.rstrip()}\n```")
    rows = (f"| {' | '.join(row)} |" for row in table)
    return PAGE.format(table="\n".join(rows), programs="\n\n".join(programs))


def versions_of(noxfile: Path) -> list[str]:
    """Return the JAX versions of the test matrix, the oldest first, without running the file."""
    _, _, rest = noxfile.read_text(encoding="utf-8").partition("PYTHON_FOR_JAX = ")
    return list(ast.literal_eval(rest[: rest.index("}") + 1]))
