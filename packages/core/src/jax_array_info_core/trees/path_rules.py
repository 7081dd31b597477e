"""Rules that choose a spec by the path of a leaf."""

from __future__ import annotations

import functools
import re
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
        self._rules = {pattern: (path_pattern(pattern), spec) for pattern, spec in rules.items()}

    def __repr__(self) -> str:
        """Return the rules as they were passed."""
        return f"PathRules({ {pattern: spec for pattern, (_, spec) in self._rules.items()}!r})"

    def spec_of(self, *paths: str) -> Any:
        """Return the spec of the first pattern that matches one of a leaf's paths; None if none matches."""
        for pattern, spec in self._rules.values():
            if any(map(pattern.fullmatch, paths)):
                return spec
        return None

    def unmatched(self, paths: Iterable[str]) -> list[str]:
        """Return the patterns that match none of the paths."""
        remaining = {text: pattern for text, (pattern, _) in self._rules.items()}
        for path in paths:
            if not remaining:
                break
            for text in [text for text, pattern in remaining.items() if pattern.fullmatch(path)]:
                del remaining[text]
        return list(remaining)


def unmatched_problem(pattern: str) -> str:
    """Return the error for a pattern that matches no path."""
    return f"the pattern {pattern!r} matches no leaf: print_tree shows the paths"


@functools.lru_cache(maxsize=1024)
def path_pattern(pattern: str) -> re.Pattern[str]:
    """Return a pattern with ``*`` and ``?`` as a regular expression."""
    pieces = {"*": ".*", "?": "."}
    return re.compile("".join(pieces.get(char) or re.escape(char) for char in pattern), re.DOTALL)
