"""The progress of a rank in a log: its counters, the times between them, and whether it ended well."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from .lines import DAY, read_line, seconds_at, text_start

_PROGRESS = re.compile(
    r"\b(?P<name>step|epoch|iter(?:ation)?s?|it)\b[\"']?[ \t]{0,3}[:=#/\[(]{0,2}[ \t]{0,8}"
    r"(?P<number>0{1,18})\b(?!\.?0)"
    r"|\b(?P<bar>0{1,9})/0{1,9} \[0"
    r"|\b(?:saved|finished|passed|(?:training|job|upload) complete[d]?|is unstuck waiting)\b",
    re.IGNORECASE,
)
_ALARM = re.compile(
    r"(?:Error|Exception|Interrupt)(?:: |:?$)|\b[EF]\d{4} \d\d:|: [EF] |\b(?:ERROR|CRITICAL)\b"
    r"|[A-Z]_[A-Z]{4,}: "
    r"|\b(?:INTERNAL|ABORTED|UNAVAILABLE|UNKNOWN|CANCELLED)\b|error:"
)
"""Words of errors, which may name a step."""
_SAVED = re.compile(r"\bsaved\b", re.IGNORECASE)
_DONE = re.compile(
    r"\bexit(?:ed|ing)?(?: with)?(?: exit)? code:? 0\b|\b(?:training|job|run) (?:finished|complete)"
    r"|\b\d{1,9} passed\b"
    r"|\b(?:step|iter(?:ation)?)s?\b\W{0,3}(\d{1,18}) ?(?:/|of) ?\1\b(?!\.?\d)"
    r"|^(?:all )?(?:done|finished|completed)[.!]?$",
    re.IGNORECASE,
)
"""Texts of lines that say that a run ended well: its last step of a known number of steps, too."""
_AFTER_DEATH = re.compile(r"^wandb: |\bcrash|traceback|core dump|emergency|\bprofile\b", re.IGNORECASE)
"""Words of lines that say that a program saved or finished something when it died."""

HEAD = 500
"""Characters in which a line may tell of progress."""
_ORDER = {"epoch": 0, "bar": 1}
_MOST_STEPS = 1000
_MOST_GAPS = 20
LONGEST_STEPS = 10
"""Median steps after which a rank stands still."""
LEAST_SECONDS = 60
"""Seconds before which no rank is said to stand still."""


class Shape(NamedTuple):
    """What lines that differ only in their digits have in common."""

    rank: tuple[int, int] | None
    """Place of the rank."""
    time: int
    """Place of the time; -1 without one."""
    is_progress: bool
    counters: tuple[tuple[str, slice], ...]
    """Names and places of all counters, an epoch first and a step last."""
    words: tuple[int, ...]
    """Words that make it a candidate."""
    is_traceback: bool
    is_indented: bool
    is_done: bool
    """Whether it may say that the run saved or ended well."""


class Gap(NamedTuple):
    """Time without a line."""

    seconds: int
    """Its length."""
    number: int
    """Number of the line after it."""
    step: int | None
    """Last step before it."""


class Restart(NamedTuple):
    """A line at which a counter falls after a possible failure."""

    last: int
    """Number of the last line with progress before it."""
    line: int
    """Its number."""
    is_usual: bool
    """Whether counters of the log also fall without a failure."""


class Progress:
    """What one rank has done so far."""

    __slots__ = (
        "_clock",
        "_falls",
        "_latest",
        "_tops",
        "done",
        "durations",
        "gaps",
        "last",
        "line_count",
        "restarts",
        "risen",
        "saved",
        "seconds",
        "step",
        "steps",
        "tail",
        "time",
    )

    def __init__(self) -> None:
        self.line_count = 0
        """Number of its lines."""
        self.last = 0
        """Number of the last line with progress."""
        self.risen = 0
        """Number of the last line with a counter above all of its name before it."""
        self.restarts: list[Restart] = []
        """Lines at which it may have begun again."""
        self.tail = b""
        """The last line with text."""
        self.steps = 0
        """Number of lines with progress."""
        self.seconds: int | None = None
        """Time of the last line with progress."""
        self.time: int | None = None
        """Time of the last line."""
        self.durations: list[int] = []
        """Seconds between lines with progress."""
        self.gaps: list[Gap] = []
        """The longest times without a line."""
        self.saved = 0
        """Number of the last line that says that it saved."""
        self.done = 0
        """Number of the last line that says that it ended well."""
        self._tops: dict[str, int] = {}
        """Highest number of each counter."""
        self._latest: dict[str, int] = {}
        self._falls = 0
        """How often a counter fell without a failure before it."""
        self._clock = b""
        self.step: int | None = None
        """The last step."""

    @property
    def bound(self) -> float:
        """Seconds after which it stands still."""
        return max(LEAST_SECONDS, LONGEST_STEPS * median(self.durations)) if self.durations else LEAST_SECONDS

    def see(self, facts: Shape, line: bytes, number: int, failed: int) -> None:
        """Take note of a line with a time or with progress.

        Args:
            facts: Its facts.
            line: The line.
            number: Its number.
            failed: Number of the last line before it that may be a failure.
        """
        if facts.time >= 0:
            clock = line[facts.time : facts.time + 8]
            if clock != self._clock:
                self._clock = clock
                self._see_time(seconds_at(line, facts.time), number)
        if facts.is_done:
            self._see_end(line, number)
        if facts.is_progress:
            tops, latest, is_fall = self._tops, self._latest, False
            for name, place in facts.counters:
                count = int(line[place])
                if count > tops.get(name, -1):
                    if name == "epoch":  # begins its steps again
                        tops.clear()
                        latest.clear()
                    tops[name] = count
                    self.risen = number
                elif count < latest.get(name, 0):
                    is_fall = True
                latest[name] = count
                if name != "bar":
                    self.step = count
            if is_fall:
                self._see_fall(facts, number, failed)
            self.last = number
            self.steps += 1
            if facts.time >= 0 and self.time is not None:
                if self.seconds is not None and len(self.durations) < _MOST_STEPS:
                    self.durations.append(max(0, self.time - self.seconds))
                self.seconds = self.time

    def see_many(
        self, rows: Sequence[tuple[Shape, int]], lines: Sequence[bytes], first: int, failed: int
    ) -> None:
        """Take note of lines that are no candidates. Most have nothing new.

        Args:
            rows: Facts and place of each.
            lines: The lines.
            first: Number of the first line.
            failed: Number of the last line before them that may be a failure.
        """
        if len(self.durations) < _MOST_STEPS:
            few, rows = rows[:_MOST_STEPS], rows[_MOST_STEPS:]
            for facts, place in few:
                self.see(facts, lines[place], first + place, failed)
        steps = [(facts.counters, place) for facts, place in rows if facts.is_progress]
        count = self.steps + len(steps)
        # The first one tells whether counters fell after a failure, the highest and the last one the rest.
        counts = [int(lines[place][of[0][1]]) if of else -1 for of, place in steps]
        highest = counts.index(max(counts)) if counts else 0
        read = {place for _, place in (*steps[:1], *steps[highest : highest + 1], *steps[-1:])}
        clock = self._clock
        for facts, place in rows:
            time = facts.time
            if (time >= 0 and lines[place][time : time + 8] != clock) or facts.is_done or place in read:
                self.see(facts, lines[place], first + place, failed)
                clock = self._clock
        self.steps = count

    def _see_end(self, line: bytes, number: int) -> None:
        """Take note of a line that may say that it saved or ended well."""
        text = read_line(line[:HEAD]).text
        if _DONE.search(text):
            self.done = number
        if _SAVED.search(text):
            self.saved = number

    def _see_fall(self, facts: Shape, number: int, failed: int) -> None:
        """Take note of a line with a counter below the one before it."""
        if failed <= self.last:
            self._falls += 1
            return
        self.restarts.append(Restart(self.last, number, is_usual=self._falls > 0))
        self._tops = {name: self._latest[name] for name, _ in facts.counters}
        self.risen = number

    def _see_time(self, seconds: int, number: int) -> None:
        """Take note of a time that is not that of the line before."""
        if self.time is not None and self.steps > 2:
            gap = seconds - self.time
            # Without a date, midnight is passed.
            gap += DAY if gap < -DAY // 2 else 0
            if gap > LEAST_SECONDS:
                self.gaps.append(Gap(gap, number, self.step))
                if len(self.gaps) > _MOST_GAPS:
                    self.gaps.remove(min(self.gaps))
        self.time = seconds


def progress_in(text: str) -> re.Match[str] | None:
    """Return the progress in a line; None for an error that names a step."""
    is_other = _ALARM.search(text, 0, HEAD) or _AFTER_DEATH.search(text, 0, HEAD)
    return None if is_other else _PROGRESS.search(text, 0, HEAD)


def is_progress(text: str) -> bool:
    """Return whether a line tells of progress."""
    return progress_in(re.sub(r"\d", "0", text[:HEAD])) is not None


def counters_in(text: str) -> tuple[tuple[str, slice], ...]:
    """Return names and places of the counters in a line, an epoch first and a step last."""
    found = [
        ((count["name"] or "bar").lower(), slice(*count.span(group)))
        for count in _PROGRESS.finditer(text, 0, HEAD)
        for group in ("number", "bar")
        if count[group]
    ]
    return tuple(sorted(found, key=lambda counter: _ORDER.get(counter[0], len(_ORDER))))


def may_be_end(text: str) -> bool:
    """Return whether a line may say that the run saved or ended well."""
    if _ALARM.search(text) or _AFTER_DEATH.search(text):
        return False
    said = text[text_start(text)[0] :]
    return _DONE.search(said) is not None or _SAVED.search(said) is not None
