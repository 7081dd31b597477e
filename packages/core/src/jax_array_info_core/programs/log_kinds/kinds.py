"""Kinds of lines in the logs of fatal and stalled jobs: wordings, roles, causes and remedies."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from ...facts.reports.logs import LogCategory, LogRole
from ...xla.hlo.oom_logs import SIZE


class Kind(NamedTuple):
    """A kind of line."""

    name: str
    """Name, which reports give as ``kind``."""

    role: LogRole
    """Role of the line in the end of a job."""

    wordings: tuple[str, ...]
    """Regular expressions of its wordings in all versions.

    ``<name>`` is a number and ``<name_nbytes>`` a size; ``<rank>`` is a rank that the line names.
    """

    cause: str
    """Cause, as one sentence."""

    remedy: str
    """What to do first."""

    details: tuple[str, ...] = ()
    """Regular expressions of further numbers, in the line and in those that follow."""

    category: LogCategory | None = None
    """Category of the finding; None for that of the role."""

    is_hard: bool = False
    """Whether no process survives it, at any level."""

    is_weak: bool = False
    """Whether it is the root only if there is no other."""


@functools.cache
def compiled(wording: str) -> re.Pattern[str]:
    """Return the pattern of a wording."""

    def group(found: re.Match[str]) -> str:
        name = found[1]
        number = SIZE if name.endswith("nbytes") else r"\d{1,18}"
        before = r"(?:/job:\w{1,40}/replica:\d{1,9}/task:)?" if name == "rank" else ""
        return f"{before}(?P<{name}>{number})"

    return re.compile(re.sub(r"(?<!\?P)<(\w+)>", group, wording), re.MULTILINE)
