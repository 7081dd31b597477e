"""Reference cycles that keep arrays alive to which no name leads."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Container, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from .components import strong_components
from .links import Link
from .names import is_bare, is_class, scope_name, type_name
from .search import OnProgress, Search

_MOST_LINKS = 8
"""How many links of a cycle are told; of a longer one, those of its beginning and of its end."""


class Cycles(NamedTuple):
    """Reference cycles that keep arrays alive."""

    paths: dict[int, str]
    """A cycle for each array that one keeps alive, by the ``id`` of the array."""

    is_complete: bool
    """Whether all arrays were looked at; otherwise the time was up."""


def cycles_round(
    arrays: Sequence[Any], *, max_seconds: float | None = 5.0, on_progress: OnProgress | None = None
) -> Cycles:
    """Return the reference cycles that keep arrays alive, of those that no name leads to.

    Such as ``Node.me → Node``, ``Parent.child → Child.parent → Parent`` or
    ``closure of loop: loop → loop``: the cycle itself, without the way from it to the array. Objects that
    all lead to each other have many; one of the shortest of them is told for all. An array that is not
    told of has a name, or is held by JAX or C++.

    Args:
        arrays: The arrays; that sequence is not taken for a holder.
        max_seconds: After how many seconds to return what was found so far; None for no bound.
        on_progress: Called while the search runs, with the seconds so far.

    Raises:
        SearchError: (a ValueError) ``max_seconds`` is no number of seconds.
    """
    with closing(_CycleSearch(arrays, max_seconds, on_progress)) as search:
        return Cycles(search.cycles(), search.is_complete)


class _CycleSearch(Search):
    """A search for cycles: also through functions and frames, which may be garbage as well as objects."""

    def _is_end(self, thing: Any) -> bool:
        return id(thing) in self.scopes.namespaces or is_class(thing)

    def cycles(self) -> dict[int, str]:
        """Return the cycle round each array that has one."""
        known = self._named() | self.array_ids
        nameless = {key: thing for key, thing in self.found.items() if key not in known}
        cycles: dict[int, str] = {}
        components = strong_components(
            nameless, lambda key: [id(link.to) for link in self._links_from(key) if id(link.to) in nameless]
        )
        for component in components:
            cycle = self._cycle_in(component)
            if cycle is not None:
                cycles |= dict.fromkeys(component, cycle)
        # From all cycles at once: what several lead to is told of the nearest.
        for key, link in self._links_breadth_first(list(cycles), nameless):
            cycles.setdefault(id(link.to), cycles[key])
        return {key: cycle for key, cycle in cycles.items() if key in self.array_ids}

    def _links_from(self, key: int) -> list[Link]:
        if self.is_late():
            self.is_complete = False
            return []
        return self.links_of(self.found[key])

    def _links_breadth_first(
        self, starts: Collection[int], inside: Container[int]
    ) -> Iterator[tuple[int, Link]]:
        """Yield the links of some objects, and of those inside some part of all to which they lead.

        With each comes the id of its object.
        """
        waiting, seen = deque(starts), set(starts)
        while waiting:
            key = waiting.popleft()
            for link in self._links_from(key):
                yield key, link
                if id(link.to) in inside and id(link.to) not in seen:
                    seen.add(id(link.to))
                    waiting.append(id(link.to))

    def _named(self) -> set[int]:
        """Return the ids of all that a name of a module or of a running function leads to."""
        names = [link for _, link in self.scopes.variables]
        for namespace in self.scopes.namespaces.values():
            names += namespace.links(self.found)
        named = {id(link.to) for link in names} & self.found.keys()
        named |= {id(link.to) for _, link in self._links_breadth_first(named, self.found)}
        return named | self.scopes.namespaces.keys()

    def _cycle_in(self, component: Sequence[int]) -> str | None:
        """Return a short cycle in a strongly connected component, None where it is one object without."""
        first = next((key for key in component if not is_bare(self.found[key])), component[0])
        start = self.found[first]
        if is_class(start):
            # It is the first in its own order of classes.
            return f"{type_name(start)}.__mro__ → {type_name(start)}"
        inside = set(component)
        before: dict[int, tuple[int, Link]] = {}
        for key, link in self._links_breadth_first([first], inside):
            if id(link.to) in inside:
                before.setdefault(id(link.to), (key, link))
            if first in before:
                break
        else:
            return None
        key, link = before[first]
        cycle = [link]
        while key != first:
            key, link = before[key]
            cycle.append(link)
        return _text(cycle[::-1])


def _text(cycle: Sequence[Link]) -> str:
    """Return a cycle as it is written; the last link leads to where the first begins."""
    texts = [text := _name(cycle[-1].to)]
    before = text
    for link in cycle:
        # What a function or frame holds says whose it is.
        if link.kind == "scope":
            texts[-1] = texts[-1].removesuffix(before) + link.text()
        else:
            texts[-1] += link.text()
        before = _name(link.to)
        if not is_bare(link.to) or link is cycle[-1]:
            texts.append(before)
    if len(texts) > _MOST_LINKS:
        half = _MOST_LINKS // 2
        texts[half:-half] = [f"… {len(texts) - 2 * half} more …"]
    return " → ".join(texts)


def _name(thing: Any) -> str:
    return scope_name(thing) or type_name(type(thing))
