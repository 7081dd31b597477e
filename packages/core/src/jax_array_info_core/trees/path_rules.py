"""Rules that choose a spec by the path of a leaf."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import SpecError
from ..text import plain_text


class PathRules:
    """Specs by path pattern. The first pattern that matches the whole path of a leaf decides.

    In a pattern, ``*`` matches any characters, including ``/``, and ``?`` matches one character. All other
    characters, such as brackets, match themselves. A path with the keys of boxes, such as
    ``layers/0/kernel/value`` of Flax, matches as well.

    Args:
        rules: Spec of each pattern, in order: a PartitionSpec, a Sharding, a sequence with None, a name or a
            tuple of names for each array axis, or None, which leaves the leaf as it is.

    Raises:
        SpecError: (a ValueError) If the rules are not a mapping from patterns to specs.

    >>> from jax.sharding import PartitionSpec as P
    >>> rules = PathRules({"*mlp/w*": P("fsdp", "tensor"), "*": P()})
    >>> rules.spec_of("params/layers/0/mlp/wi") == P("fsdp", "tensor")
    True
    """

    def __init__(self, rules: Mapping[str, Any]) -> None:
        given: object = rules
        if not isinstance(given, Mapping) or not all(isinstance(pattern, str) for pattern in given):
            raise SpecError(
                [f"expected a mapping from path patterns to specs, got {plain_text(rules, repr)}"]
            )
        self._rules = dict(rules)

    def __repr__(self) -> str:
        """Return the rules as they were passed."""
        return f"PathRules({self._rules!r})"

    def spec_of(self, *paths: str) -> Any:
        """Return the spec of the first pattern that matches one of a leaf's paths; None if none matches."""
        for pattern, spec in self._rules.items():
            if any(path_matches(pattern, path) for path in paths):
                return spec
        return None

    def unmatched(self, paths: Iterable[str]) -> list[str]:
        """Return the patterns that match none of the paths."""
        remaining = list(self._rules)
        for path in paths:
            if not remaining:
                break
            remaining = [pattern for pattern in remaining if not path_matches(pattern, path)]
        return remaining


def unmatched_problem(pattern: str) -> str:
    """Return the error for a pattern that matches no path."""
    return f"the pattern {pattern!r} matches no leaf: print_tree shows the paths"


def path_matches(pattern: str, path: str) -> bool:
    """Return whether a pattern with ``*`` and ``?`` matches a whole path.

    Each text between two ``*`` is taken where it comes first, so nothing is tried twice.
    """
    first, *between = pattern.split("*")
    last = between.pop() if between else ""
    position, end = len(first), len(path) - len(last)
    if position > end or (position < end and first == pattern):
        return False
    if _find(first, path, 0, position) or _find(last, path, end, len(path)) != end:
        return False
    for text in filter(None, between):
        position = _find(text, path, position, end) + len(text)
        if position < len(text):
            return False
    return True


def _find(text: str, path: str, start: int, end: int) -> int:
    """Return the first position of a text with ``?`` in a part of a path; −1 if it is not there."""
    if "?" not in text:
        return path.find(text, start, end)
    places = range(start, end - len(text) + 1)
    same = (at for at in places if all(one in ("?", path[at + n]) for n, one in enumerate(text)))
    return next(same, -1)
