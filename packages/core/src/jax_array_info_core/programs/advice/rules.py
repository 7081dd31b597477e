"""The rules that propose changes: each is a function of what can be changed in a program."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping

from ...base.grouping import by_key
from ...facts.reports.left_out import Parts
from .constraint_rules import as_parameter, restored, restored_together
from .edits import Candidate
from .pins import Pins
from .proposals import Change, Rule
from .state_rules import freed, freed_together, moves_of_state, returned, twins
from .value_rules import batch, before_loop, moves_of_values, needed_whole, whole

_FEW = 40
"""Number of values and arguments below which all other shardings of them are proposed, too."""


def candidates(pins: Pins, parts: Parts) -> list[Candidate]:
    """Return what the rules propose: the first of each rule, then the second of each, the most bytes first.

    Of equal changes, the one of the first rule is kept.

    Args:
        pins: What can be changed.
        parts: What keeps the rules that fail.
    """
    queues = [*_proposed(pins, RULES, parts)]
    rows = [row for proposed in itertools.zip_longest(*queues) for row in proposed if row is not None]
    if len(pins.places) + len(pins.arguments) < _FEW:
        rows += itertools.chain.from_iterable(_proposed(pins, MOVES, parts))
    alike = by_key((tuple(sorted(row.edits, key=repr)), row) for row in rows if row.edits)
    return [equal[0] for equal in alike.values()]


def _proposed(pins: Pins, rules: Mapping[str, Rule], parts: Parts) -> Iterator[list[Candidate]]:
    """Yield the candidates of each rule, the most bytes first."""
    for name, rule in rules.items():
        none: list[Change] = []
        changes = parts.made(f"changes to try ({name})", functools.partial(_changes, rule, pins), none)
        rows = [
            Candidate(name, because, tuple(own), tuple(edits), weight, number)
            for number, (because, own, edits, weight) in enumerate(changes)
        ]
        yield sorted(rows, key=lambda row: -row.weight)


def _changes(rule: Rule, pins: Pins) -> list[Change]:
    return [*rule(pins)]


RULES: dict[str, Rule] = {
    "twins": twins,
    "restored": restored,
    "restored together": restored_together,
    "as parameter": as_parameter,
    "batch": batch,
    "freed": freed,
    "freed together": freed_together,
    "whole": whole,
    "before the loop": before_loop,
    "needed whole": needed_whole,
    "returned": returned,
}
"""The rules, the most often right first."""
MOVES: dict[str, Rule] = {"moves of state": moves_of_state, "moves of values": moves_of_values}
"""Rules for small programs, after the others."""
