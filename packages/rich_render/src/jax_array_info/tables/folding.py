"""Groups of live arrays that look alike in a table: folded into one row, or told apart by their specs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from jax_array_info_core import LiveArrayGroup

Look = tuple[object, ...]
"""What two rows differ in, their sharding last."""


def look_of(group: LiveArrayGroup) -> Look:
    """Return what tells a group's row from others."""
    return (
        group.local_nbytes,
        group.shape,
        group.dtype,
        group.label,
        group.device_count > 1,
        group.nbytes,
        group.replicas,
        group.memory_kind,
        group.origin,
        group.views_of,
        # On one device there is nothing to shard.
        group.sharding if group.device_count > 1 else "",
    )


def folded(groups: Sequence[LiveArrayGroup]) -> list[LiveArrayGroup]:
    """Return groups that agree in all columns and in sharding as one."""
    alike: dict[Look, LiveArrayGroup] = {}
    for group in groups:
        look = look_of(group)
        alike[look] = _together(alike[look], group) if look in alike else group
    return list(alike.values())


def _together(first: LiveArrayGroup, other: LiveArrayGroup) -> LiveArrayGroup:
    places = Counter(dict(first.device_counts)) + Counter(dict(other.device_counts))
    return replace(
        first,
        count=first.count + other.count,
        device_counts=tuple(sorted(places.items())),
        holders=tuple(dict.fromkeys(first.holders + other.holders)),
        unheld_count=first.unheld_count + other.unheld_count,
    )


def spec_lines(groups: Sequence[LiveArrayGroup], *, always: bool) -> dict[Look, list[str]]:
    """Return the partition specs that rows need, by their looks.

    The mesh is added where groups of one spec and different meshes would still look alike.

    Args:
        groups: The groups, folded.
        always: Whether every sharded group needs its spec, and not only those that differ in nothing else.
    """
    without_sharding = Counter(look_of(group)[:-1] for group in groups)
    with_spec = Counter((*look_of(group)[:-1], _spec(group)) for group in groups)
    lines = {}
    for group in groups:
        look = look_of(group)
        if look[-1] and (always or without_sharding[look[:-1]] > 1):
            is_plain = with_spec[(*look[:-1], _spec(group))] == 1
            lines[look] = [_spec(group) if is_plain else group.sharding]
    return lines


def _spec(group: LiveArrayGroup) -> str:
    """Return a group's sharding without its mesh."""
    return group.sharding.partition(" over ")[0]
