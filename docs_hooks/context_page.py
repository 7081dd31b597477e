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
from the tests, which run each context on {versions}.
The guide [Which sharding did XLA choose inside jit?](../guides/inside-jit.md) explains the panels.

- `source`: the source of the sharding (`ArrayReport.source`): the array, its type, or the compiler.
  `manual`: the function sees one shard. `unknown`: nothing is compiled, for example.
- `called under`: the transformation in the panel's line `called in jit` or `called under …`. JAX always
  compiles the body of `scan`, so it is `jit` even without `jit`.
- `reports`: the number of reports from one run. Of a tree of two values, each is one table with the source of
  every leaf.
- `since`: the first of these versions that has the context, if it is not the oldest.

{table}

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
    table = [["context", "source", "called under", "reports", "since"], ["---"] * 5]
    programs = []
    for name, context in contexts.CONTEXTS.items():
        link = f"[{name}](#{name.replace(' ', '-')})"
        since = next(
            version for version, minor in zip(versions, minors, strict=True) if context.since <= minor
        )
        row = [link, context.source, context.called_under or "", str(context.reports)]
        table.append([*row, "" if since == versions[0] else since])
        _, _, program = inspect.getsource(context.run).partition("\n")
        programs.append(f"### {name}\n\n```python\n{program.rstrip()}\n```")
    helpers = "\n\n\n".join(inspect.getsource(getattr(contexts, name)).rstrip() for name in HELPERS)
    rows = (f"| {' | '.join(row)} |" for row in table)
    tested = f"JAX {', '.join(versions[:-1])} and {versions[-1]}"
    return PAGE.format(
        versions=tested, table="\n".join(rows), programs="\n\n".join(programs), helpers=helpers
    )


def versions_of(noxfile: Path) -> list[str]:
    """Return the JAX versions of the test matrix, the oldest first, without running the file."""
    _, _, rest = noxfile.read_text(encoding="utf-8").partition("PYTHON_FOR_JAX = ")
    return list(ast.literal_eval(rest[: rest.index("}") + 1]))
