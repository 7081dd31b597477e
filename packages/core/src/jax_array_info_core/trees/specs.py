"""Partition specs by the paths of leaves, by logical axis names, and as trees of specs."""

from __future__ import annotations

import contextlib
import difflib
import fnmatch
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..base.errors import SpecError
from ..base.text import cut, plain_text
from ..compat import values
from ..facts.reports.tree import TreeRow, UnmatchedAxes, UnmatchedName
from ..geometry.layouts.spec import Spec, as_spec, spec_entries
from .leaves import entries_at


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
        return self.rule_of(*paths)[1]

    def rule_of(self, *paths: str) -> tuple[str, Any]:
        """Return the first pattern that matches a leaf, with its spec; an empty one with None if none."""
        matching = (
            (pattern, spec)
            for pattern, spec in self._rules.items()
            if any(path_matches(pattern, path) for path in paths)
        )
        return next(matching, ("", None))

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
    whole = "" if pattern.startswith("*") else f", which it must match as a whole, such as {f'*/{pattern}'!r}"
    return f"the pattern {pattern!r} matches no leaf: print_tree shows the paths{whole}"


def path_matches(pattern: str, path: str) -> bool:
    """Return whether a pattern with ``*`` and ``?`` matches a whole path. Brackets match themselves."""
    return fnmatch.fnmatchcase(path, pattern.replace("[", "[[]"))


BOX_KEYS = ("value", "0", "data_array")
"""Keys of boxes in files: of Flax, and of the NamedArrays of haliax and penzai."""


def matched_paths(rows: Sequence[TreeRow], others: Collection[TreeRow]) -> list[str]:
    """Return the path of each leaf; if another tree has the leaf with other keys of boxes, its path there."""
    paths = {row.path for row in rows}
    exact = {row.path for row in others}
    similar = {path: row.path for row in others if row.path not in paths for path in row.paths}
    matched: dict[str, None] = {}
    for row in rows:
        path = row.path
        if path not in exact:
            names = (name for name in row.paths if name in similar and similar[name] not in matched)
            path = next(map(similar.__getitem__, names), path)
        matched[path] = None
    return list(matched)


def without_box_keys(paths: Sequence[str]) -> list[str]:
    """Return the paths of a file without the key of a box that all of them end with.

    They stay as they are if two of them would become equal.

    >>> without_box_keys(["bias/value", "kernel/value"]), without_box_keys(["attn/key", "attn/value"])
    (['bias', 'kernel'], ['attn/key', 'attn/value'])
    """
    for key in BOX_KEYS:
        if all(path.endswith(f"/{key}") for path in paths):
            cut = [path.removesuffix(f"/{key}") for path in paths]
            return cut if len({*cut, *paths}) == 2 * len(paths) else list(paths)
    return list(paths)


class LeafSpecs(NamedTuple):
    """The entry of ``specs`` for each leaf of a tree."""

    entries: Sequence[Any]
    """A PartitionSpec, a Spec, a Sharding or None for each leaf."""

    shorter: Sequence[str] = ()
    """Paths of the leaves that are replicated: they have fewer axes than a spec that others share."""


def specs_by_path(
    specs: Any, rows: Sequence[TreeRow], side_paths: Iterable[str] = (), *, argument: str = "specs"
) -> LeafSpecs:
    """Return the entry of ``specs`` for each leaf.

    A PartitionSpec for a whole tree or subtree, and that of a pattern such as ``*`` or ``params/*``, is for
    the leaves with enough axes. The others are replicated, unless no leaf has enough axes.

    Args:
        specs: PathRules, or a tree or prefix of PartitionSpecs, Specs, Shardings, Formats and None, as
            ``in_shardings`` takes.
        rows: The leaves.
        side_paths: Paths at which the tree has no array: other leaves, and containers without entries.
        argument: Name of the argument in errors.

    Raises:
        SpecError: If a pattern matches nothing, an entry has no leaf, or a leaf has no entry. The message has
            the first problem of each kind, ``problems`` all.
    """
    if specs is None:
        return LeafSpecs([None] * len(rows))
    if isinstance(specs, PathRules):
        if unmatched := specs.unmatched(path for row in rows for path in row.paths):
            place = "" if argument == "specs" else f"{argument}: "
            problems = [f"{place}{unmatched_problem(pattern)}" for pattern in unmatched]
            raise SpecError(problems, _firsts(problems))
        rules = [specs.rule_of(*row.paths) for row in rows]
        shared = [pattern == "*" or pattern.endswith("/*") for pattern, _ in rules]
        placed = [(pattern, values.without_format(spec)) for pattern, spec in rules]
        return _fitted(placed, shared, rows)
    entries = {path: values.without_format(entry) for path, entry in entries_at(specs, is_entry)}
    prefixes = [_longest_prefix(row.paths, entries) for row in rows]
    used = {*prefixes, *(_longest_prefix((path,), entries) for path in side_paths)}
    wrong = [
        f"the entry of {argument} at {_shown(path)} must be a PartitionSpec, a Sharding or None, "
        f"got {plain_text(type(entry), repr)}"
        for path, entry in entries.items()
        if not is_entry(entry)
    ]
    missing = [
        f"{argument} has no entry for {_shown(row.path)}: None leaves a leaf as it is"
        for row, prefix in zip(rows, prefixes, strict=True)
        if prefix is None
    ]
    surplus = [
        f"{argument} has an entry at {_shown(path)}, but the tree has no leaf there"
        for path, entry in entries.items()
        if path not in used and entry is not None and is_entry(entry)
    ]
    if problems := [*wrong, *missing, *surplus]:
        forms = (
            f"{argument} takes one PartitionSpec for all leaves, a tree of them like the tree or a prefix "
            "of it, or PathRules({'*/kernel': P('data'), '*': P()})"
        )
        raise SpecError(problems, [*_firsts(wrong, missing, surplus), forms])
    placed = [(prefix, entries[prefix]) for prefix in prefixes if prefix is not None]
    return _fitted(
        placed, [prefix not in row.paths for prefix, row in zip(prefixes, rows, strict=True)], rows
    )


def specs_key(specs: Any) -> Any:
    """Return a value that is equal for equal specs; None for specs that have other entries than specs."""
    if isinstance(specs, PathRules):
        return specs, repr(specs)
    entries = entries_at(specs, is_entry)
    return entries if all(is_entry(entry) for _, entry in entries) else None


def _fitted(placed: Sequence[tuple[str, Any]], shared: Sequence[bool], rows: Sequence[TreeRow]) -> LeafSpecs:
    """Return the entry of each leaf. Of one that leaves share, those with fewer axes are replicated.

    Args:
        placed: The place of each leaf's entry in ``specs``, and the entry.
        shared: Whether the entry of each leaf is for all leaves at that place.
        rows: The leaves.
    """
    entries: list[Any] = [entry for _, entry in placed]
    shorter: dict[int, str] = {}
    used: set[str] = set()
    specs: dict[int, Spec | None] = {}
    for number, ((place, entry), row) in enumerate(zip(placed, rows, strict=True)):
        if not shared[number] or entry is None or values.is_sharding(entry) or row.is_deleted:
            continue
        if id(entry) not in specs:
            specs[id(entry)] = None  # whoever plans the leaf reports it
            with contextlib.suppress(SpecError, TypeError):
                specs[id(entry)] = as_spec(entry)
        whole = specs[id(entry)]
        if whole is None:
            continue
        spec = without_surplus(whole, len(row.shape))
        if spec is None:
            shorter[number] = place
        else:
            entries[number] = spec
            used.add(place)
    shorter = {number: place for number, place in shorter.items() if place in used}
    for number in shorter:
        entries[number] = Spec(())
    return LeafSpecs(entries, [rows[number].path for number in shorter])


def without_surplus(spec: Spec, ndim: int) -> Spec | None:
    """Return a spec without entries of None beyond the axes of an array; None if it has other ones there.

    >>> without_surplus(Spec((("x",), ())), 1), without_surplus(Spec((("x",),)), 0)
    (Spec(axes=(('x',),), unconstrained=(), unreduced=()), None)
    """
    if len(spec.axes) <= ndim:
        return spec
    is_fitting = not any(spec.axes[ndim:]) and not any(axis >= ndim for axis in spec.unconstrained)
    return replace(spec, axes=spec.axes[:ndim]) if is_fitting else None


def _firsts(*kinds: Sequence[str]) -> list[str]:
    """Return the first problem of each kind, with the number of the others of its kind."""
    return [
        problems[0]
        + (f" (and {len(problems) - 1} more: see the error's problems)" if len(problems) > 1 else "")
        for problems in kinds
        if problems
    ]


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
    longest = None
    for path in paths:
        while path not in entries and path:
            path = path.rpartition("/")[0]
        if path in entries and (longest is None or len(path) > len(longest)):
            longest = path
    return longest


LogicalAxes = Mapping[str, Any] | Iterable[tuple[str, Any]]
"""Rules in Flax's form: pairs of a logical axis name and its mesh axis, mesh axes or None; or a mapping."""

_SHOWN = 8
"""Number of names in an error."""
_LONGEST = 200
"""Number of characters of a pair in an error."""


class _Rule(NamedTuple):
    name: str
    axes: tuple[str, ...]
    is_unconstrained: bool


class LogicalRules:
    """Rules that replace logical axis names with mesh axes, and the names that they met.

    Args:
        rules: Pairs of a logical axis name and its mesh axes, in order of precedence; or a mapping.

    Raises:
        SpecError: If the rules have another form.
    """

    def __init__(self, rules: LogicalAxes) -> None:
        self.rules = _parsed(rules)
        self._names = dict.fromkeys(rule.name for rule in self.rules)
        self._found: dict[str, None] = {}
        """Logical axis names of the leaves."""
        self._left_out: dict[str, None] = {}

    def spec_of(
        self, logical: Spec, mesh: Sequence[str], *, keeps_mesh_axes: bool = False
    ) -> tuple[Spec, list[str]]:
        """Return a spec in mesh axes, as ``flax.linen.logical_to_mesh_axes`` does, and its problems.

        In the order of the rules, each name takes the mesh axes of its first rule whose axes are all free,
        whether their sizes divide the array axis or not. Mesh axes that the mesh lacks are left out of a
        rule. A name without a rule is replicated. An entry of several names consists of mesh axes.

        Args:
            logical: The logical axis name of each array axis.
            mesh: Names of the mesh axes.
            keeps_mesh_axes: Whether a mesh axis without a rule stands for itself.
        """
        axes = [names if len(names) > 1 else () for names in logical.axes]
        places: dict[str, int] = {}
        problems = []
        for place, names in enumerate(logical.axes):
            if len(names) != 1:
                continue
            (name,) = names
            if keeps_mesh_axes and name in mesh and name not in self._names:
                axes[place] = names
            elif name in places:
                problems.append(f"logical axis {name!r} is on two array axes, which Flax does not support")
            else:
                places[name] = place
        self._found |= dict.fromkeys(places)
        taken = {name for names in axes for name in names}
        unconstrained = set(logical.unconstrained)
        for rule in self.rules:
            if rule.name not in places:
                continue
            self._left_out |= dict.fromkeys(name for name in rule.axes if name not in mesh)
            chosen = tuple(name for name in rule.axes if name in mesh)
            if taken.isdisjoint(chosen):
                place = places.pop(rule.name)
                axes[place] = chosen
                taken.update(chosen)
                unconstrained.update([place] if rule.is_unconstrained else [])
        return replace(logical, axes=tuple(axes), unconstrained=tuple(sorted(unconstrained))), problems

    def unmatched(self) -> UnmatchedAxes:
        """Return the names that did not match, or raise SpecError if no rule matches a leaf."""
        names, rules = list(self._found), list(self._names)
        unruled = [name for name in names if name not in self._names]
        unused = [_unmatched(name, unruled) for name in rules if name not in self._found]
        if len(unused) == len(rules):
            have = _listed(names) if names else "none: pass them in specs"
            raise SpecError(
                [
                    f"no leaf has a logical axis of the rules, {_listed(unused) or 'which are empty'}: "
                    f"the logical axes of the leaves are {have}"
                ]
            )
        return UnmatchedAxes(
            unused_rules=tuple(unused),
            without_rule=tuple(_unmatched(name, rules) for name in unruled),
            left_out=tuple(self._left_out),
        )


def _parsed(rules: Any) -> tuple[_Rule, ...]:
    """Return rules in order, or raise SpecError, which has the first pair that is not a rule."""
    parsed = []
    pair = rules
    try:
        if isinstance(rules, str):
            raise TypeError
        for pair in rules.items() if isinstance(rules, Mapping) else rules:
            name, axes = pair
            if values.is_partition_spec(axes):
                axes = spec_entries(axes)
            spec = as_spec((axes,))
            several = isinstance(axes, (tuple, list))
            names = axes if several else () if axes is None or spec.unconstrained else (axes,)
            if isinstance(pair, str) or not all(isinstance(part, str) for part in (name, *names)):
                raise TypeError
            parsed.append(_Rule(plain_text(name), spec.axes[0], bool(spec.unconstrained)))
    except (TypeError, ValueError):
        raise SpecError(
            [
                "logical_axes must be pairs of a logical axis name and its mesh axes, as Flax's rules, or a "
                f"mapping, got {cut(plain_text(pair, repr), _LONGEST)}"
            ]
        ) from None
    return tuple(parsed)


def _unmatched(name: str, others: Sequence[str]) -> UnmatchedName:
    return UnmatchedName(name=name, similar=tuple(difflib.get_close_matches(name, others, n=3)))


def _listed(names: Sequence[object]) -> str:
    """Return some names as text."""
    shown = [repr(name) if isinstance(name, str) else str(name) for name in names[:_SHOWN]]
    return ", ".join([*shown, *(["…"] if len(names) > _SHOWN else [])])
