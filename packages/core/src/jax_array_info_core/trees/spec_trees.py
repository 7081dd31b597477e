"""Trees of specs and shardings, matched with the leaves of a tree by path."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ..compat import values
from ..errors import SpecError
from ..layouts.spec import Spec
from ..text import plain_text
from .leaves import entries_at
from .path_rules import PathRules, unmatched_problem


def specs_by_path(
    specs: Any, paths: Sequence[str], side_paths: Iterable[str] = (), *, argument: str = "specs"
) -> list[Any]:
    """Return the entry of ``specs`` for each leaf: a PartitionSpec, a Spec, a Sharding or None.

    Args:
        specs: PathRules, or a tree or prefix of PartitionSpecs, Specs, Shardings, Formats and None, as
            ``in_shardings`` takes.
        paths: Paths of the leaves.
        side_paths: Paths at which the tree has no array: other leaves, and containers without entries.
        argument: Name of the argument in errors.

    Raises:
        SpecError: If a pattern matches nothing, an entry has no leaf, or a leaf has no entry.
    """
    if specs is None:
        return [None] * len(paths)
    if isinstance(specs, PathRules):
        if unmatched := specs.unmatched(paths):
            place = "" if argument == "specs" else f"{argument}: "
            raise SpecError([f"{place}{unmatched_problem(pattern)}" for pattern in unmatched])
        return [values.without_format(specs.spec_of(path)) for path in paths]
    entries = {path: values.without_format(entry) for path, entry in entries_at(specs, is_entry)}
    prefixes = [_longest_prefix(path, entries) for path in paths]
    used = {*prefixes, *(_longest_prefix(path, entries) for path in side_paths)}
    problems = [
        f"the entry of {argument} at {_shown(path)} must be a PartitionSpec, a Sharding or None, "
        f"got {plain_text(type(entry), repr)}"
        for path, entry in entries.items()
        if not is_entry(entry)
    ]
    problems += [
        f"{argument} has no entry for {_shown(path)}: None leaves a leaf as it is"
        for path, prefix in zip(paths, prefixes, strict=True)
        if prefix is None
    ]
    problems += [
        f"{argument} has an entry at {_shown(path)}, but the tree has no leaf there"
        for path, entry in entries.items()
        if path not in used and entry is not None and is_entry(entry)
    ]
    if problems:
        raise SpecError(problems)
    return [entries[prefix] for prefix in prefixes if prefix is not None]


def is_entry(value: Any) -> bool:
    """Return whether a value is an entry of a tree of specs."""
    return (
        value is None
        or isinstance(value, Spec)
        or values.is_partition_spec(value)
        or values.is_sharding(value)
    )


def _shown(path: str) -> str:
    return repr(path) if path else "the root"


def _longest_prefix(path: str, entries: Collection[str]) -> str | None:
    """Return the path itself or the longest path above it that is among the entries."""
    while path not in entries:
        if not path:
            return None
        path = path.rpartition("/")[0]
    return path
