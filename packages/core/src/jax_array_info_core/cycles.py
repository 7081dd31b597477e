"""Which reference cycles keep arrays alive that no name leads to."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .holders import Search
from .links import Link, is_bare, is_class, scope_name, type_name


class Cycles(NamedTuple):
    """The reference cycles that keep some arrays alive."""

    paths: dict[int, str]
    """That of each array that has one, by its ``id``."""

    is_complete: bool
    """Whether that is all; otherwise the time was up."""


def cycles_round(arrays: Sequence[Any], *, max_seconds: float | None = 5.0) -> Cycles:
    """Return the reference cycle that keeps each array alive, of those that no name leads to, by ``id``.

    Such as ``Node.me → Node``, ``Parent.child → Child.parent → Parent`` or
    ``closure of loop: loop → loop``: the cycle itself, without the way from it to the array. An array that
    is not told of has a name, is held by JAX or C++, or was not come to in time.

    Args:
        arrays: The arrays; that sequence is not taken for a holder.
        max_seconds: After how many seconds to return what was found so far; None for no bound.

    Raises:
        SearchError: (a ValueError) ``max_seconds`` is no number of seconds.
    """
    search = _CycleSearch(arrays, max_seconds)
    try:
        return Cycles(search.cycles(), not search.is_late())
    finally:
        search.forget()


class _CycleSearch(Search):
    """A search for cycles: also through functions and frames, which may be garbage as well as objects."""

    def _is_end(self, thing: Any) -> bool:
        return id(thing) in self.scopes.namespaces or is_class(thing)

    def cycles(self) -> dict[int, str]:
        """Return the cycle round each array that has one."""
        parents = self._parents()
        named = self._named()
        known: dict[int, str | None] = {}
        cycles = {}
        for key in self.array_ids - named:
            for holder in self._upwards(key, parents):
                if holder in named:
                    break
                if holder not in known:
                    known[holder] = self._cycle_through(holder)
                if known[holder] is not None:
                    cycles[key] = known[holder] or ""
                    break
        return cycles

    def _parents(self) -> dict[int, list[int]]:
        """Return the ids of what holds each thing that was found, by its id."""
        parents: dict[int, list[int]] = {}
        for key, thing in list(self.found.items()):
            if key not in self.array_ids and key not in self.scopes.namespaces:
                for link in self.links_of(thing):
                    parents.setdefault(id(link.to), []).append(key)
        return parents

    def _named(self) -> set[int]:
        """Return the ids of all that a name of a module or of a running function leads to."""
        held = [link.to for _, link in self.scopes.variables]
        for namespace in self.scopes.namespaces.values():
            held += (link.to for link in namespace.links())
        return set(self._reached(held))

    def _reached(self, things: Iterable[Any]) -> Iterable[int]:
        queue, seen = deque(things), set[int]()
        while queue:
            thing = queue.popleft()
            if id(thing) in self.found and id(thing) not in seen:
                seen.add(id(thing))
                queue += (link.to for link in self.links_of(thing))
        return seen

    def _upwards(self, key: int, parents: dict[int, list[int]]) -> Iterable[int]:
        """Yield the ids of what holds something, directly or not, the nearest first."""
        queue, seen = deque([key]), {key}
        while queue and not self.is_late():
            for holder in parents.get(queue.popleft(), ()):
                if holder not in seen:
                    seen.add(holder)
                    queue.append(holder)
                    yield holder

    def _cycle_through(self, key: int) -> str | None:
        """Return the shortest way from an object back to itself, None where there is none."""
        start = self.found[key]
        if is_class(start):
            # It is the first in its own order of classes.
            return f"{type_name(start)}.__mro__ → {type_name(start)}"
        queue: deque[tuple[Link, ...]] = deque((link,) for link in self.links_of(start))
        seen = set[int]()
        while queue and not self.is_late():
            way = queue.popleft()
            thing = way[-1].to
            if thing is start:
                return _text(way)
            if id(thing) not in seen and not is_class(thing):
                seen.add(id(thing))
                queue += ((*way, link) for link in self.links_of(thing))
        return None


def _text(cycle: Sequence[Link]) -> str:
    """Return a cycle as it is written, from an object whose type says something, where there is one."""
    # Each link comes from what the one before leads to; the last leads to where the first begins.
    telling = (number for number in range(len(cycle)) if not is_bare(cycle[number - 1].to))
    start = next(telling, 0)
    text = before = _name(cycle[start - 1].to)
    for link in (*cycle[start:], *cycle[:start]):
        # What a function or frame holds says whose it is.
        text = text.removesuffix(before) + link.text() if link.kind == "scope" else text + link.text()
        before = _name(link.to)
        if not is_bare(link.to) or link.to is cycle[start - 1].to:
            text += f" → {before}"
    return text


def _name(thing: Any) -> str:
    return scope_name(thing) or type_name(type(thing))
