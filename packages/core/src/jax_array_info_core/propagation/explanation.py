"""Values of a propagated program, each with the reason for its sharding."""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Collection, Hashable
from typing import Any

from ..layouts.spec import MeshAxes, advised_axes
from ..reports.propagation import Loss, PropagatedValue, ReplicatedValue
from .causes import Causes
from .conflicts import MOST_STEPS, dtype_of, most_first
from .graph import NOWHERE, Axes, Operation, Value, shard_of


class Explanation(Causes):
    """The facts of a program's values, with lines and paths."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._known_facts: dict[Hashable, dict[str, Any]] = {}
        self._finer = functools.cache(self._finer_axes)

    def values(self) -> tuple[PropagatedValue, ...]:
        """Return what the operations compute, the most bytes first."""
        facts = [self._facts(value) for value in self._results]
        rows = {id(one): PropagatedValue(**one) for one in self._known_facts.values()}
        return most_first(rows[id(one)] for one in facts)

    def opaque(self) -> tuple[str, ...]:
        """Return the operations on sharded values that have no rule, each with its line."""
        found = (
            self._named_line(one)
            for one in self._computing
            if one.rule is None
            and any(any(value.axes) for value in one.operands)
            and not any(any(value.axes) for value in one.results)
        )
        return tuple(dict.fromkeys(found))

    def kernels(self) -> tuple[str, ...]:
        """Return the kernels, callbacks and other calls inside of a ``shard_map``, each with its line."""
        calls = (one for one in self._computing if one.name == "stablehlo.custom_call" and one.is_manual)
        return tuple(dict.fromkeys(map(self._named_line, calls)))

    def _named_line(self, one: Operation) -> str:
        return f"{one.place.op or one.name} of {self._line(one.place) or 'an unknown line'}"

    def replicated(self) -> tuple[ReplicatedValue, ...]:
        """Return the values that could be sharded over more mesh axes, the most avoidable bytes first."""
        found: dict[Hashable, ReplicatedValue] = {}
        rows = []
        for value in self._results:
            nbytes = self.nbytes(value)
            if not nbytes or value.shape is None or value.definer is None or value.definer.is_manual:
                continue
            names, count = self._finer(value.shape, value.axes)
            if names:
                facts, loss = self._facts(value), self._explaining(value, names)
                key = id(facts), id(loss)
                if key not in found:
                    avoidable = nbytes - nbytes // count
                    found[key] = ReplicatedValue(
                        **facts, mesh_axes=names, avoidable_nbytes=avoidable, loss=loss
                    )
                rows.append(found[key])
        return tuple(sorted(most_first(rows), key=lambda row: -row.avoidable_nbytes * row.count))

    def _finer_axes(self, shape: tuple[int, ...], axes: Axes) -> tuple[tuple[str, ...], int]:
        """Return the mesh axes that should shard a value further, and the number of their devices."""
        sizes = self._graph.sizes
        unused = tuple((name, size) for name, size in sizes.items() if not self._has(axes, name))
        further = advised_axes(shard_of(shape, axes, sizes), unused)
        names = tuple(name for dim in further for name in dim)
        return names, math.prod(sizes[name] for name in names)

    def _explaining(self, value: Value, names: Collection[str]) -> Loss | None:
        """Return the nearest loss of some mesh axes before a value."""
        waiting, seen = deque([value]), {id(value)}
        while waiting and len(seen) < MOST_STEPS:
            value = waiting.popleft()
            before = [value.same] if value.same is not None else []
            if value.definer is not None:
                for loss in self._losses_of(value.definer):
                    if self._graph.part(loss.mesh_axis).name in names:
                        return loss
                before += [] if before else value.definer.operands
            waiting += [one for one in before if id(one) not in seen]
            seen.update(map(id, before))
        return None

    def _facts(self, value: Value) -> dict[str, Any]:
        """Return the fields of a value that an operation computes. Those of equal ones are one object."""
        place = value.definer.place if value.definer is not None else NOWHERE
        axes = self.origins(value)
        where = self._where(place)
        line = id(where["origin"]), where["columns"], where["phase"]
        is_manual = value.definer is not None and value.definer.is_manual
        manual = () if value.definer is None else value.definer.manual_here
        key = value.shape, value.dtype, value.axes, place.op, id(axes), manual, value.varying, *line
        if key not in self._known_facts:
            self._known_facts[key] = {
                "shape": value.shape,
                "dtype": dtype_of(value.dtype),
                "spec": self.spec(value),
                "nbytes": self.nbytes(value),
                "op": place.op,
                "axes": axes,
                "in_shard_map": is_manual,
                "manual_axes": MeshAxes(manual, tuple(map(self._graph.sizes.__getitem__, manual)))
                if manual
                else None,
                "invariant_axes": None
                if value.varying is None
                else tuple(name for name in manual if name not in value.varying),
                **where,
            }
        return self._known_facts[key]

    @functools.cached_property
    def _results(self) -> list[Value]:
        """What the operations of the user compute: of those into which JAX divides one, the last."""
        found: list[Value] = []
        for operation in self._computing:
            users = [user for one in operation.results for user in self._graph.users(one)]
            inside = [
                user
                for user in users
                # Equal operations of one line in a row have one place, too.
                if user.place is operation.place
                and user.name != operation.name
                and not user.name.startswith("sdy.")
            ]
            if not users or len(inside) < len(users):
                found += (value for value in operation.results if value.shape is not None)
        return found

    def is_uneven(self, value: Value) -> bool:
        """Return whether a sharded dimension is empty, does not divide, or has a part of a mesh axis."""
        counts = [math.prod(self._graph.part(name).size for name in names) for names in value.axes]
        has_parts = any(name not in self._graph.sizes for names in value.axes for name in names)
        shards = zip(value.shape or (), counts, strict=False)
        return has_parts or any(dim % count or (not dim and count > 1) for dim, count in shards)
