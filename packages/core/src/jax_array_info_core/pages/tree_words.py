"""Words and totals of pages of trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..reports import UnmatchedAxes, UnmatchedName

_MOST_NAMES_OF_TOTALS = 6
"""Maximum number of logical axis names in a line."""


def unmatched_lines(unmatched: UnmatchedAxes) -> Iterator[str]:
    """Yield the logical axis names and the rules that did not match, those with similar names first."""
    if unmatched.without_rule:
        yield f"logical axes without a rule, replicated: {_names_words(unmatched.without_rule)}"
    if unmatched.unused_rules:
        yield f"rules without a leaf: {_names_words(unmatched.unused_rules)}"
    if unmatched.left_out:
        yield f"not mesh axes, left out of rules: {_names_words(list(map(repr, unmatched.left_out)))}"


def _names_words(names: Sequence[UnmatchedName | str]) -> str:
    """Return the first names, and the number of the others."""
    ordered = sorted(names, key=lambda name: isinstance(name, str) or not name.similar)
    more = f" and {len(names) - _MOST_NAMES_OF_TOTALS} more" if len(names) > _MOST_NAMES_OF_TOTALS else ""
    return ", ".join(map(str, ordered[:_MOST_NAMES_OF_TOTALS])) + more
