"""Rules on the differences of two programs or trees, such as ``sent+5%``, and whether they are broken."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NoReturn, get_args

from ..base.errors import CheckError, NotationError, UnsupportedValueError, require
from ..base.grouping import by_key
from ..base.quantities import format_bytes, format_number, known_sum, parse_bytes
from ..base.text import printable
from ..facts.reports.changes import ChangedField, LeafChange, ProgramDiff, RuleResult, TreeDiff, rule_lines
from ..facts.reports.collectives import Collective, link_words
from ..facts.reports.program import ProgramReport
from ..facts.reports.program_values import (
    ProgramValue,
)
from ..facts.reports.tree import TreeReport, TreeRow
from ..facts.reports.work import WorkShare
from ..geometry.layouts.links import LINKS, Link
from ..trees.files import read_report
from ..trees.tree_diff import tree_diff_report
from ..trees.tree_report import tree_report
from ..xla.hlo.collectives import COLLECTIVES
from .assertions import matching
from .program_diff import all_values, is_placed_alike, program_diff_report, sent_nbytes

_KINDS = COLLECTIVES - {"send"}  # a misspelt "sent" would pass as a kind that the programs lack
_NEW = frozenset(f"new-{kind}" for kind in (*_KINDS, "collective"))
_OF_PROGRAMS = frozenset({"sent", "memory", "flops", "work", "sharding", "donation"}) | _KINDS | _NEW
_OF_TREES = frozenset({"memory", "added", "removed", "changed", *get_args(ChangedField)})
_PARTS = {
    "memory": "memory",
    "flops": "FLOPs",
    "work": "share of work",
    "donation": "donations",
    "sharding": "shardings",
}
"""Parts of a report on a program that rules need; others need the collectives."""
_WITH_AXIS = frozenset({"sent"}) | _KINDS | _NEW
_WITH_AMOUNT = frozenset({"memory", "flops", "work"}) | _WITH_AXIS
_FORMS = (
    "programs have the rules sent, memory, flops, work, sharding, donation, new-collective, and the name of a"
    " collective such as all-gather or new-all-gather; trees have memory, added, removed, changed, shape,"
    " dtype, spec, axis_types and memory_kind. Write an accepted growth as sent+5% or memory+1GiB,"
    " and a mesh axis or a link as all-gather:fsdp or sent@dcn"
)
_PERCENT = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*%")
_LEAST_PERCENT = 5
"""Growth of the share of work that breaks no rule, in percent, unless the rule has another one."""
_MOST = 3
"""Maximum number of leaves that a result names."""
_Place = tuple[str, str | tuple[str, str] | None]
"""Kind of a collective, and the path of an argument, else the file and the function of an origin."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that the differences of two programs or trees may break."""

    text: str
    """The rule as written."""

    subject: str
    """The figure, the property, or the kind of collectives."""

    axis: str | None = None
    """Mesh axis of the collectives; None for all."""

    link: Link | None = None
    """Slowest link of the collectives; None for all."""

    percent: Fraction | None = None
    """Accepted growth in percent."""

    number: int = 0
    """Accepted growth in bytes or flops, unless it is in percent."""

    @property
    def noun(self) -> str:
        """The subject with its mesh axis and its link."""
        words = self.subject.replace("new-", "new ")
        words += "" if self.axis is None else f" over {self.axis}"
        return words if self.link is None else f"{words} by {link_words(self.link)}"


def parse_rule(text: str) -> Rule:
    """Parse a rule such as ``sent+5%``, ``memory+1GiB``, ``all-gather:fsdp``, ``sent@dcn`` or ``sharding``.

    Raises:
        NotationError: (a ValueError) If the text is not a rule. The message marks the error.

    >>> parse_rule("all-gather:fsdp+10MiB").number
    10485760
    """
    head, plus, amount = text.partition("+")
    before, _, after = head.rpartition("@")
    link = next((name for name in LINKS if before and name == after), None)
    subject, colon, axis = (head if link is None else before).partition(":")

    def fail(position: int, problem: str) -> NoReturn:
        raise NotationError(text, position, f"{problem}: {_FORMS}")

    if subject not in _OF_PROGRAMS | _OF_TREES:
        fail(0, f"unknown rule {subject!r}")
    if colon and (subject not in _WITH_AXIS or not axis):
        fail(len(subject), "a mesh axis follows only sent: or the name of a collective")
    if link is not None and subject not in _WITH_AXIS:
        fail(len(before), "a link follows only sent@ or the name of a collective")
    rule = Rule(text, subject, axis or None, link)
    if not plus:
        return rule
    if subject not in _WITH_AMOUNT:
        fail(len(head), f"{subject} accepts no growth")
    if subject not in _NEW and (percent := _PERCENT.fullmatch(amount)):
        return replace(rule, percent=Fraction(percent[1]))
    if subject == "work":
        fail(len(head) + 1, "expected a growth such as 10%")
    kinds = "5% or 1e9" if subject == "flops" else "10MiB" if subject in _NEW else "5% or 10MiB"
    try:
        number = parse_bytes(amount)
    except ValueError:
        fail(len(head) + 1, f"expected a growth such as {kinds}")
    if subject == "flops" and amount[-1].isalpha():
        fail(len(head) + 1, f"expected a growth such as {kinds}")
    return replace(rule, number=number)


def diff_with_rules(before: Any, after: Any, rules: Sequence[Rule]) -> ProgramDiff | TreeDiff:
    """Return the differences of two programs or trees, with the results of rules.

    Args:
        before: A ``ProgramReport``, or a tree as for ``tree_diff_report``.
        after: Another one.
        rules: The rules.

    Raises:
        UnsupportedValueError: (a ValueError) If a rule is not one of programs, or not one of trees, or no
            program has its mesh axis; or if only one of the two is a program.
    """
    if isinstance(before, ProgramReport) or isinstance(after, ProgramReport):
        difference = program_diff_report(before, after)
        _require_rules(rules, _OF_PROGRAMS, "programs")
        meshes = [report.mesh for report in (before, after) if report.mesh is not None]
        known = {name for mesh in meshes for name in mesh.names}
        for rule in rules:
            if rule.axis is not None and meshes and rule.axis not in known:
                names = ", ".join(sorted(map(repr, known)))
                raise UnsupportedValueError(
                    f"rule {rule.text!r}: {rule.axis!r} is not a mesh axis: the meshes have {names}"
                )
        return replace(
            difference, rules=tuple(_of_programs(rule, before, after, difference) for rule in rules)
        )
    first, second = tree_report(before), tree_report(after)
    _require_rules(rules, _OF_TREES, "trees")
    changes = tree_diff_report(first, second)
    return replace(changes, rules=tuple(_of_trees(rule, first, second, changes) for rule in rules))


def assert_no_regression(before: Any, after: Any, fail_on: str | Iterable[str]) -> None:
    """Raise CheckError if the change from one program or tree to another breaks a rule.

    What is unknown breaks a rule. An improvement breaks none. Bytes are per device.

    Rules of programs are:

    - ``sent``, or a kind of collectives such as ``all-gather``: more bytes are sent, or a kind is new.
      ``all-gather:fsdp`` counts collectives over this mesh axis, also over a part of it, and ``sent@dcn``
      those whose slowest link is this one;
    - ``new-all-gather``, or ``new-collective`` for any kind: an argument, or else a function, has more of
      them and sends more bytes with them, whatever the others save;
    - ``memory``: the peak grows; where it is unknown, arguments, outputs that reuse no argument, and
      temporaries;
    - ``flops``: the flops of dots and convolutions grow;
    - ``work``: the share of the heavy work that each device does grows by more than 5 %, as from 1.00, where
      it is divided evenly, to 1.06;
    - ``sharding``: an argument or output has another sharding or memory kind;
    - ``donation``: the memory of a donated argument is no longer reused.

    Rules of trees are ``memory`` (of the fullest device), ``added``, ``removed``, ``changed``, and ``shape``,
    ``dtype``, ``spec`` or ``memory_kind`` of a leaf. Figures take an accepted growth: ``sent+5%``,
    ``memory+1GiB``, ``flops+1e9``.

    Args:
        before: A report from ``program_report`` or ``from_json``, a tree as for ``tree_diff_report``, or the
            path of a file with one of these.
        after: Another one.
        fail_on: The rules.

    Raises:
        CheckError: (an AssertionError) If a rule is broken. The message has a line for each rule, and
            ``report`` is the ``ProgramDiff`` or ``TreeDiff``.
        NotationError: (a ValueError) If a rule cannot be read.
        UnsupportedValueError: (a ValueError) If there is no rule, a rule does not apply to programs or to
            trees, or only one of the two is a program.

    >>> import jax, jax.numpy as jnp
    >>> x = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    >>> before, after = program_report(lambda x: x @ x, x), program_report(lambda x: x @ x @ x, x)
    >>> assert_no_regression(before, after, fail_on=("sent", "flops+100%"))
    """
    __tracebackhide__ = True
    before, after = _opened(before), _opened(after)
    require(fail_on, Iterable, "rules as text, such as fail_on=('sent+5%',)")
    rules = [parse_rule(text) for text in ([fail_on] if isinstance(fail_on, str) else fail_on)]
    if not rules:
        raise UnsupportedValueError("expected at least one rule, such as fail_on=('sent+5%',)")
    report = diff_with_rules(before, after, rules)
    if not all(result.passed for result in report.rules):
        raise CheckError("\n".join(map(printable, rule_lines(report.rules))), report)


def _opened(value: Any) -> Any:
    """Return the report in a file, of a program or a tree; anything else as it is."""
    if not isinstance(value, str | os.PathLike):
        return value
    report = read_report(value)
    require(report, (ProgramReport, TreeReport), f"the report of a program or a tree in {os.fspath(value)}")
    return report


def _require_rules(rules: Iterable[Rule], known: Iterable[str], what: str) -> None:
    for rule in rules:
        if rule.subject not in known:
            raise UnsupportedValueError(f"rule {rule.text!r} does not apply to {what}: {_FORMS}")


def _of_programs(rule: Rule, before: ProgramReport, after: ProgramReport, diff: ProgramDiff) -> RuleResult:
    part = _PARTS.get(rule.subject, "collectives")
    pairs = (("first", before.lacks(part)), ("second", after.lacks(part)))
    if lacking := [f"{word} program: {words}" for word, words in pairs if words]:
        fact = f"{rule.noun} unknown: {' '.join(lacking)}"
        return RuleResult(rule=rule.text, passed=False, fact=fact, is_left_out=True)
    if rule.subject == "sharding":
        return _of_leaves(rule, _other_shardings(before, after))
    if rule.subject == "donation":
        return _of_leaves(rule, _lost_donations(diff))
    if rule.subject == "memory":
        has_peak = all(report.memory and report.memory.peak_nbytes is not None for report in (before, after))
        return _of_figure(rule, _memory(before, has_peak), _memory(after, has_peak))
    if rule.subject == "flops":
        return _of_figure(rule, before.dot_flops, after.dot_flops, _number)
    if rule.subject == "work":
        return _of_work(rule, before.work or WorkShare(), after.work or WorkShare())
    if rule.subject in _NEW:
        return _of_new(rule, before, after)
    kind = None if rule.subject == "sent" else rule.subject
    return _of_figure(rule, _sent(before, kind, rule), _sent(after, kind, rule))


def _of_work(rule: Rule, before: WorkShare, after: WorkShare) -> RuleResult:
    """Return the result of the rule on the share of work of each device."""
    percent = _LEAST_PERCENT if rule.percent is None else rule.percent
    # Compared as printed: a share is exact to half a percent.
    old, new = (None if work.share is None else round(Fraction(work.share), 3) for work in (before, after))
    sides = [work.share_words for work in (before, after)]
    return RuleResult(
        rule=rule.text,
        passed=old is not None and new is not None and new <= old * (1 + Fraction(percent) / 100),
        fact=f"share of work {' to '.join(sides)}, allowed +{float(percent):g} %",
        before=None if old is None else before.repeated_flops,
        after=None if new is None else after.repeated_flops,
    )


def _sent(report: ProgramReport, kind: str | None, rule: Rule) -> int | None:
    """Return the bytes sent by collectives; None if part of them is unknown."""
    collectives = list(matching(report, kind, rule.axis, rule.link))
    if not report.is_sent_known or (rule.axis is not None and any(row.axes is None for row in collectives)):
        return None
    if rule.link is not None and any(row.link != rule.link for row in collectives):
        return None
    return sent_nbytes(collectives)


def _of_new(rule: Rule, before: ProgramReport, after: ProgramReport) -> RuleResult:
    """Return the result of a rule on collectives that the first program does not have.

    They are compared by argument, else by function: lines change with every edit. XLA may split a collective
    in two, which then send as many bytes as the one.
    """
    name = rule.subject.removeprefix("new-")
    kind = None if name == "collective" else name
    known = _by_place(before, kind, rule)
    total: int | None = 0
    growths = []
    for place, rows in _by_place(after, kind, rule).items():
        earlier = known.get(place, [])
        old, new = sent_nbytes(earlier), sent_nbytes(rows)
        is_more = old is None or new is None or new > old
        if is_more and sum(row.count for row in rows) > sum(row.count for row in earlier):
            more = None if old is None or new is None else new - old
            total = None if more is None or total is None else total + more
            size = "unknown" if more is None else format_bytes(more)
            about = [
                *([] if kind else [rows[0].kind]),
                size,
                *([f"of {rows[0].path}"] if rows[0].path else []),
            ]
            growths.append(", ".join([" ".join(about), *([str(rows[0].origin)] if rows[0].origin else [])]))
    if not after.is_sent_known:
        total, growths = None, ["unknown", *growths]
    allowed = f", allowed +{format_bytes(rule.number)}" if rule.number and growths else ""
    listed = _of_leaves(rule, growths)
    passed = total is not None and total <= rule.number
    return replace(listed, passed=passed, fact=listed.fact + allowed, after=total)


def _by_place(report: ProgramReport, kind: str | None, rule: Rule) -> dict[_Place, list[Collective]]:
    """Return the collectives of each argument, and those of other arrays by function."""

    def place(collective: Collective) -> _Place:
        function = None if collective.origin is None else (collective.origin.file, collective.origin.function)
        return collective.kind, collective.path or function

    collectives = matching(report, kind, rule.axis, rule.link)
    return by_key((place(collective), collective) for collective in collectives)


def _memory(report: ProgramReport, has_peak: bool) -> int | None:
    """Return the bytes that a program needs at one time, by its peak or by the sum of its parts."""
    memory = report.memory
    if memory is None or has_peak:
        return None if memory is None else memory.peak_nbytes
    total = known_sum((memory.argument_nbytes, memory.output_nbytes, memory.temporary_nbytes))
    return None if total is None else total - (memory.alias_nbytes or 0)


def _other_shardings(before: ProgramReport, after: ProgramReport) -> Iterator[str]:
    for old, other in all_values(before, after):
        if old is None or other is None or old.is_pruned or other.is_pruned:
            continue
        if old.got is None or not is_placed_alike(old, other):
            yield f"{other.path} ({_placed(old, other)} to {_placed(other, old)})"


def _placed(value: ProgramValue, other: ProgramValue) -> str:
    memory = f" in {value.host_memory_kind}" if value.host_memory_kind else ""
    return ("unknown" if value.got is None else value.got.beside(other.got)) + memory


def _lost_donations(diff: ProgramDiff) -> Iterator[str]:
    for donation in diff.donations:
        if donation.before is None or donation.before.output is None or donation.is_absent_after:
            continue
        now = (
            "not donated"
            if donation.after is None
            else f"not reused, {donation.after.reason or 'reason unknown'}"
        )
        yield f"{donation.path} (reused for {donation.before.output} to {now})"


def _of_trees(rule: Rule, before: TreeReport, after: TreeReport, diff: TreeDiff) -> RuleResult:
    match rule.subject:
        case "memory":
            old, new = (
                None if report.unknown_count else report.fullest_device_nbytes for report in (before, after)
            )
            return _of_figure(rule, old, new)
        case "added":
            return _of_leaves(rule, (row.path for row in diff.added))
        case "removed":
            return _of_leaves(rule, (row.path for row in diff.removed))
    changed = [
        f"{change.after.path} ({' to '.join(_properties(change, field))})"
        for change in diff.changed
        for field in change.fields
        if rule.subject in ("changed", field)
    ]
    if rule.subject in ("changed", "spec"):
        # Unknown shardings are not among the differences.
        changed += [
            f"{row.path} (sharding unknown)"
            for row in (*before.rows, *after.rows)
            if row.unknown_because is not None
        ]
    return _of_leaves(rule, dict.fromkeys(changed))


def _properties(change: LeafChange, field: ChangedField) -> tuple[str, str]:
    """Return a field of a leaf before and after."""
    if field == "axis_types":
        return change.before_types, change.after_types
    return _property(change.before, field), _property(change.after, field)


def _property(row: TreeRow, field: ChangedField) -> str:
    if field == "spec":
        return row.sharding_text
    if field == "memory_kind":
        return row.host_memory_kind or "device memory"
    return str(row.shape if field == "shape" else row.dtype)


def _of_leaves(rule: Rule, leaves: Iterable[str]) -> RuleResult:
    """Return the result of a rule that any leaf breaks."""
    listed = list(leaves)
    more = [f"and {len(listed) - _MOST} more"] if len(listed) > _MOST else []
    words = ", ".join([*listed[:_MOST], *more]) or "none"
    return RuleResult(
        rule=rule.text, passed=not listed, fact=f"{rule.noun}: {words}", before=0, after=len(listed)
    )


def _of_figure(
    rule: Rule, old: int | None, new: int | None, words: Callable[[int], str] = format_bytes
) -> RuleResult:
    """Return the result of a rule on the growth of a figure."""
    if rule.percent is not None:
        allowed = f"allowed +{float(rule.percent):g} %"
    else:
        allowed = f"allowed +{words(rule.number)}" if rule.number else "no growth allowed"
    if old is None or new is None:
        sides = ["unknown" if number is None else words(number) for number in (old, new)]
        # Nothing is less than 0.
        passed, change = new == 0, f"unknown ({sides[0]} to {sides[1]})"
    else:
        growth = new - old
        accepted = rule.number if rule.percent is None else rule.percent * old / 100
        passed = growth <= accepted
        change = _change_words(rule, old, new, passed, words)
    fact = f"{rule.noun} {change}, {allowed}"
    return RuleResult(rule=rule.text, passed=passed, fact=fact, before=old, after=new)


def _change_words(rule: Rule, old: int, new: int, passed: bool, words: Callable[[int], str]) -> str:
    """Return a growth with the figures before and after, exact ones where rounded ones would mislead."""
    if old == new:
        return f"unchanged ({words(old)})"
    sign, size = "+" if new > old else "-", abs(new - old)
    grown = words(size)
    is_close = words(old) == words(new) or (not passed and grown == words(rule.number))
    if rule.percent is not None and old:
        tenths = (2000 * size + old) // (2 * old)
        grown = f"{format_number(tenths // 10)}.{tenths % 10} %"
        is_close = words(old) == words(new) or (not passed and tenths <= 10 * rule.percent)
    shown = _number if is_close else words
    unit = " bytes" if is_close and words is not _number else ""
    return f"{sign}{grown} ({shown(old)} to {shown(new)}{unit})"


def _number(number: int) -> str:
    return f"{number:,}" if number < 10**18 else format_number(number)
