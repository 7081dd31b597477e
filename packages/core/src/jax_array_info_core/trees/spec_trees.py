"""Trees of specs and shardings, matched with the leaves of a tree by path."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ..compat import values
from ..errors import SpecError
from ..layouts.spec import Spec
from ..reports.tree import TreeRow
from ..text import plain_text
from .leaves import entries_at
from .path_rules import PathRules, unmatched_problem


def specs_by_path(
    specs: Any, rows: Sequence[TreeRow], side_paths: Iterable[str] = (), *, argument: str = "specs"
) -> list[Any]:
    """Return the entry of ``specs`` for each leaf: a PartitionSpec, a Spec, a Sharding or None.

    Args:
        specs: PathRules, or a tree or prefix of PartitionSpecs, Specs, Shardings, Formats and None, as
            ``in_shardings`` takes.
        rows: The leaves.
        side_paths: Paths at which the tree has no array: other leaves, and containers without entries.
        argument: Name of the argument in errors.

    Raises:
        SpecError: If a pattern matches nothing, an entry has no leaf, or a leaf has no entry.
    """
    if specs is None:
        return [None] * len(rows)
    if isinstance(specs, PathRules):
        if unmatched := specs.unmatched(path for row in rows for path in row.paths):
            place = "" if argument == "specs" else f"{argument}: "
            raise SpecError([f"{place}{unmatched_problem(pattern)}" for pattern in unmatched])
        return [values.without_format(specs.spec_of(*row.paths)) for row in rows]
    entries = {path: values.without_format(entry) for path, entry in entries_at(specs, is_entry)}
    prefixes = [_longest_prefix(row.paths, entries) for row in rows]
    used = {*prefixes, *(_longest_prefix((path,), entries) for path in side_paths)}
    problems = [
        f"the entry of {argument} at {_shown(path)} must be a PartitionSpec, a Sharding or None, "
        f"got {plain_text(type(entry), repr)}"
        for path, entry in entries.items()
        if not is_entry(entry)
    ]
    problems += [
        f"{argument} has no entry for {_shown(row.path)}: None leaves a leaf as it is"
        for row, prefix in zip(rows, prefixes, strict=True)
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


def _longest_prefix(paths: Iterable[str], entries: Collection[str]) -> str | None:
    """Return the longest path, of a leaf or above it, that is among the entries."""
    found = None
    for path in paths:
        while path not in entries and path:
            path = path.rpartition("/")[0]
        if path in entries and (found is None or len(path) > len(found)):
            found = path
    return found
