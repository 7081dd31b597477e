"""Reference page of the kinds of lines in logs, generated from their table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from jax_array_info_core import log_report
from jax_array_info_core.facts.reports.codes import CODES
from jax_array_info_core.facts.reports.logs import LogCategory, LogRole
from jax_array_info_core.jobs.logs.events import NOT_INTERPRETED
from jax_array_info_core.programs.log_kinds.job_kinds import JOB_KINDS
from jax_array_info_core.programs.log_kinds.kinds import Kind
from jax_array_info_core.programs.log_kinds.memory_kinds import MEMORY_KINDS
from jax_array_info_core.programs.log_kinds.program_kinds import PROGRAM_KINDS
from jax_array_info_core.programs.log_kinds.verdict_kinds import VERDICT_KINDS

from .finding_pages import FOLDER

PAGE = """---
hide: [toc]
---

# Kinds of lines in logs

Look up an error or a warning that `jai-cli log` found: its cause, and what to do first. Its role leads to the
page of the finding.

- `root`: an error that ends the run, unless the same rank makes progress after it.
- `consequence`: the process ends because another one did. It is not named as the cause if a log has a root.
- `stall`: a process stands still, or waits for others that never started.
- `warning`: the run goes on. The exit code of `jai-cli log` stays 0.

A fatal line without a kind has the kind `{not_interpreted}`, and the report prints it as it is: {not_known}.
A time without progress has the kind `silent stall`: {stall}. The guide
[Hanging on several hosts](../problems/hanging-on-several-hosts.md) explains how the root over several ranks
is found.

With `--format json`, each finding has its `kind`, its `role`, the `rank` and the number of the `line`, and
the numbers in it. Numbers whose names end in `nbytes` are bytes. For the line
`{line}`:

```json
{found}
```

{tables}
"""
SECTIONS = {
    "Memory": MEMORY_KINDS,
    "Programs": PROGRAM_KINDS,
    "Processes, hosts and devices": JOB_KINDS,
    "Verdicts of launchers": VERDICT_KINDS,
}
OF_ROLES: dict[LogRole, LogCategory] = {
    "root": "fatal error",
    "consequence": "consequence",
    "stall": "stall",
    "warning": "log warning",
}
"""Category of the finding of a kind that has none of its own."""
EXAMPLE = "RESOURCE_EXHAUSTED: Attempting to allocate 1.96G. That was not possible. There are 1.18G free."


def log_kind_page() -> str:
    """Return the page: the tables of all kinds, with the finding of each."""
    [finding] = log_report([EXAMPLE]).findings
    shown = {name: getattr(finding, name) for name in ("code", "kind", "role", "rank", "line", "numbers")}
    return PAGE.format(
        not_interpreted=NOT_INTERPRETED,
        not_known=_link("not interpreted"),
        stall=_link("stall"),
        line=EXAMPLE,
        found=json.dumps(shown, indent=4),
        tables="\n\n".join("\n".join(_table(title, kinds)) for title, kinds in SECTIONS.items()),
    )


def _table(title: str, kinds: Iterable[Kind]) -> Iterator[str]:
    """Yield the lines of a section with a table of kinds."""
    yield from (f"## {title}", "", "| kind | role | cause | what to do |", "|---|---|---|---|")
    for kind in kinds:
        role = _link(kind.category or OF_ROLES[kind.role], kind.role)
        yield f"| `{kind.name}` | {role} | {kind.cause} | {kind.remedy} |"


def _link(category: LogCategory, text: str = "") -> str:
    """Return a link to the page of a code, by a text or by the code."""
    code = CODES[category].code
    return f"[{text or code}](../../{FOLDER}/{code}.md)"
