"""Paths on which ``jax.device_put`` moves a leaf, and the shards that it does not copy."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compat.processes import process_count
from ...facts.reports.tree import TreeRow
from ...geometry.layouts.traffic import HeldShards
from .places import Place, is_uncommitted

Kind = Literal[
    "kept", "put", "compared", "copied", "sliced", "host", "program", "network", "unknown", "apart", "memory"
]
"""``kept``: the same shards. ``put``: from the host. ``compared``: from the host, after all processes have
compared it. ``copied``: whole shards between devices. ``sliced``: on its only device, then copied. ``host``:
gathered on the host. ``program``: a jitted identity. ``network``: whole shards between processes.
``unknown``: one of these. JAX refuses ``apart``: between processes, and ``memory``: to other memory.
"""
EXACT = frozenset[Kind]({"kept", "put", "copied", "sliced", "host"})
"""Paths without temporary values that only a compiled program has."""
WITHOUT_HOST = frozenset[Kind]({"kept", "copied"})
"""Paths that need no host memory."""
REFUSED = {
    "apart": "in several processes, a leaf moves to other devices only if its shards stay the same, each "
    "process has either old or new devices, and these are no CPUs",
    "memory": "a leaf does not move to another memory kind on its devices in another order, or on fewer of "
    "them with the same shards",
    "array-like": "leaves are only like an array, such as a Ref",
}
"""Why JAX refuses leaves, by path or kind of the leaf."""


class Path(NamedTuple):
    """A path of a leaf, with the devices whose shard is the same memory before and after."""

    kind: Kind
    shared: NDArray[np.bool_]
    """Whether each device of the target keeps its shard, by ascending id."""


def path_of(row: TreeRow, before: Place, after: Place, have: HeldShards | None, want: HeldShards) -> Path:
    """Return the path of a leaf, as ``jax.device_put`` chooses it."""
    if have is None:
        is_compared = (after.process_count or 1) >= max(2, process_count())
        return Path("compared" if is_compared else "put", _no(want))
    orders = before.order, after.order
    is_in_order = np.array_equal(orders[0], orders[1])
    is_same = have.counts == want.counts and np.array_equal(
        have.numbers[np.searchsorted(have.ids, orders[0])], want.numbers[np.searchsorted(want.ids, orders[1])]
    )
    is_other_memory = before.memory_kind != after.memory_kind
    if is_same and is_in_order and not is_other_memory:
        is_respelled = before.process_count != 1 and before.spec != after.spec and before.processes
        return Path("program", _no(want)) if is_respelled else Path("kept", ~_no(want))
    is_unknown = before.processes is None or after.processes is None
    if not is_unknown and not (before.process_count == 1 and _owners(before) == _owners(after)):
        return Path(_between_processes(row, before, after, have, want, is_same=is_same), _no(want))
    if not is_unknown and not is_in_order and len(want.ids) > 1 and np.array_equal(have.ids, want.ids):
        return Path("memory" if is_other_memory else "program", _no(want))
    stays = _no(want)
    if is_same:
        stays[np.searchsorted(want.ids, orders[1][orders[0] == orders[1]])] = True
    elif have.counts == want.counts:
        same = np.isin(want.ids, have.ids)
        places = np.searchsorted(have.ids, want.ids[same])
        stays[same] = have.numbers[places] == want.numbers[same]
    kind: Kind = "sliced" if len(have.ids) == 1 else "host"
    if have.counts == want.counts:
        kind = "memory" if is_other_memory and not is_same and stays.all() else "copied"
    return Path("unknown" if is_unknown else kind, stays & (not is_other_memory))


def _between_processes(
    row: TreeRow, before: Place, after: Place, have: HeldShards, want: HeldShards, *, is_same: bool
) -> Kind:
    """Return the path of a leaf on devices of several processes."""
    if np.array_equal(have.ids, want.ids):
        return "program"
    if len(have.ids) == 1 and is_uncommitted(row):
        return "compared"
    can_send = is_same and _owners(before) != _owners(after) and after.platform != "cpu"
    return "network" if can_send else "apart"


def _owners(place: Place) -> tuple[int, ...]:
    return tuple(owner for owner, _ in place.processes or ())


def _no(shards: HeldShards) -> NDArray[np.bool_]:
    return np.zeros(len(shards.ids), bool)
