"""Logical axis names as mesh axes, by the rules of Flax."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..compat import values
from ..errors import SpecError
from ..layouts.spec import Spec, as_spec, spec_entries
from ..reports.tree import UnmatchedAxes, UnmatchedName
from ..text import plain_text

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
        self._rules = _parsed(rules)
        self._names = dict.fromkeys(rule.name for rule in self._rules)
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
        for rule in self._rules:
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
        found, rules = list(self._found), list(self._names)
        unruled = [name for name in found if name not in self._names]
        unused = [_unmatched(name, unruled) for name in rules if name not in self._found]
        if len(unused) == len(rules):
            have = _listed(found) if found else "none: pass them in specs"
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
    found = rules
    try:
        if isinstance(rules, str):
            raise TypeError
        for found in rules.items() if isinstance(rules, Mapping) else rules:
            name, axes = found
            if values.is_partition_spec(axes):
                axes = spec_entries(axes)
            spec = as_spec((axes,))
            several = isinstance(axes, (tuple, list))
            names = axes if several else () if axes is None or spec.unconstrained else (axes,)
            if isinstance(found, str) or not all(isinstance(each, str) for each in (name, *names)):
                raise TypeError
            parsed.append(_Rule(plain_text(name), spec.axes[0], bool(spec.unconstrained)))
    except (TypeError, ValueError):
        raise SpecError(
            [
                "logical_axes must be pairs of a logical axis name and its mesh axes, as Flax's rules, or a "
                f"mapping, got {_shortened(plain_text(found, repr))}"
            ]
        ) from None
    return tuple(parsed)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _unmatched(name: str, others: Sequence[str]) -> UnmatchedName:
    return UnmatchedName(name=name, similar=tuple(difflib.get_close_matches(name, others, n=3)))


def _listed(names: Sequence[object]) -> str:
    """Return some names as text."""
    shown = [repr(name) if isinstance(name, str) else str(name) for name in names[:_SHOWN]]
    return ", ".join([*shown, *(["…"] if len(names) > _SHOWN else [])])
