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

See in which transformations you can inspect an array, and what is reported in each. The table is generated
from the tests, which run every combination marked ✓. The guide
[Which sharding did XLA choose inside jit?](../guides/inside-jit.md) explains the panels.

- `source`: the source of the sharding (`ArrayReport.source`): the array itself, its type, or the compiler.
  `manual` means that the function sees one shard, and `unknown` that the sharding is not available, for
  example because nothing is compiled.
- `called under`: the transformation that the panel names in its line `called in jit` or `called under …`.
  JAX always compiles the body of `scan`, so the panel contains `called in jit` even without `jit`.
- `reports`: the number of reports from one run.

Each combination is also tested with a tree of two values: the number of reports is the same, and each is one
table with the source of every leaf.

<div class="dense" markdown>

{table}

</div>

✓: tested on that version. –: not available in that version of JAX.

## Code of each context

`inspect` is a function that inspects a value and returns it, such as `tap_sharding`. `x` is a sharded array
on `mesh`, whose axes are `a` and `b`.

{programs}

## Helper functions

```python
{helpers}
```
"""

HELPERS = ("shard_map", "_with_custom_vjp", "_explicit")
"""Functions of ``tests.contexts`` that the code of the contexts calls."""


def context_page(contexts: ModuleType, noxfile: Path) -> str:
    """Return the page: contexts of ``tests.contexts`` by versions of ``noxfile.py``, and their code."""
    versions = versions_of(noxfile)
    minors = [tuple(map(int, version.split(".")[:2])) for version in versions]
    table = [["context", "source", "called under", "reports", *versions]]
    table.append(["---"] * 4 + [":-:"] * len(versions))
    programs = []
    for name, context in contexts.CONTEXTS.items():
        link = f"[{name}](#{name.replace(' ', '-')})"
        tested = ["✓" if context.since <= minor else "–" for minor in minors]
        table.append([link, context.source, context.called_under or "", str(context.reports), *tested])
        _, _, program = inspect.getsource(context.run).partition("\n")
        programs.append(f"### {name}\n\n```python\n{program.rstrip()}\n```")
    helpers = "\n\n\n".join(inspect.getsource(getattr(contexts, name)).rstrip() for name in HELPERS)
    rows = (f"| {' | '.join(row)} |" for row in table)
    return PAGE.format(table="\n".join(rows), programs="\n\n".join(programs), helpers=helpers)


def versions_of(noxfile: Path) -> list[str]:
    """Return the JAX versions of the test matrix, the oldest first, without running the file."""
    _, _, rest = noxfile.read_text(encoding="utf-8").partition("PYTHON_FOR_JAX = ")
    return list(ast.literal_eval(rest[: rest.index("}") + 1]))
