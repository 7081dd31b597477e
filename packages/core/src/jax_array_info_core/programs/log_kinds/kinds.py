"""The form of a kind of line in the logs of fatal and stalled jobs, and the words to look for."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
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

    is_of_all: bool = False
    """Whether it tells nothing of the rank that wrote it."""


@functools.cache
def compiled(wording: str) -> re.Pattern[str]:
    """Return the pattern of a wording."""

    def group(found: re.Match[str]) -> str:
        name = found[1]
        number = SIZE if name.endswith("nbytes") else r"\d{1,18}"
        before = r"(?:/job:\w{1,40}/replica:\d{1,9}/task:)?" if name == "rank" else ""
        return f"{before}(?P<{name}>{number})"

    return re.compile(re.sub(r"(?<!\?P)<(\w+)>", group, _tolerant(wording)), re.MULTILINE)


def _tolerant(wording: str) -> str:
    """Return a wording that a colon before a size does not change: some versions have it."""
    return re.sub(r"(?<=\w):?\?? (?=<\w+nbytes>)", ":? ", wording)


_PART = re.compile(
    r"(?P<start>\()|(?P<end>\))|\[\^?(?:\\.|[^]\\])+\]|<\w+>|\\[a-zA-Z]|[\d.^$|+]"
    r"|(?P<maybe>[?*]|\{[^}]*\})|\\?(?P<letter>.)"
)
"""A part of a regular expression."""
_LEAST = 3
"""Letters of the shortest word."""


def words_of(wordings: Iterable[str]) -> tuple[bytes, ...]:
    """Return a few words: each text that a wording describes has at least one.

    Args:
        wordings: Regular expressions, each with at least three letters outside of groups and of classes.

    >>> words_of([r"[Oo]ut of memory: Killed", r"(?:a|b) of memory: <count>", r"core halted"])
    (b'core halted', b' of memory: ')
    """
    words: list[str] = []
    # A longer text may have the word of a shorter one.
    for texts in sorted(map(_texts, map(_tolerant, wordings)), key=lambda texts: len(max(texts, key=len))):
        if not any(word in text for word in words for text in texts):
            words.append(max(texts, key=len))
    return tuple(word.encode() for word in words)


def _texts(wording: str) -> list[str]:
    """Return the texts that are in everything that a wording describes."""
    texts, depth = [""], 0
    for part in _PART.finditer(wording):
        depth += bool(part["start"]) - bool(part["end"])
        if depth == 0 and part["letter"]:
            texts[-1] += part["letter"]
            continue
        # The letter before it may be missing.
        texts[-1] = texts[-1][:-1] if part["maybe"] and depth == 0 else texts[-1]
        texts.append("")
    return [text for text in texts if len(text) >= _LEAST]
