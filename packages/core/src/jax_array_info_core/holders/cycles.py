"""Reference cycles that keep arrays alive although no name refers to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from .links import Link
from .names import is_bare, is_class, scope_name, type_name
from .search import OnProgress, Search


def strong_components(nodes: Iterable[int], successors: Callable[[int], Iterable[int]]) -> list[list[int]]:
    """Return the strongly connected components of a graph, by Tarjan's algorithm, without recursion.

    Args:
        nodes: The nodes.
        successors: Returns the nodes that a node has an edge to.
    """
    numbers: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: dict[int, None] = {}  # a dict, for fast membership tests; in the order of ``numbers``
    components: list[list[int]] = []

    def enter(node: int) -> tuple[int, Iterator[int]]:
        numbers[node] = lowest[node] = len(numbers)
        stack[node] = None
        return node, iter(successors(node))

    for root in nodes:
        path = [] if root in numbers else [enter(root)]
        while path:
            node, rest = path[-1]
            for other in rest:
                if other not in numbers:
                    path.append(enter(other))
                    break
                if other in stack:
                    lowest[node] = min(lowest[node], numbers[other])
            else:
                path.pop()
                if path:
                    parent = path[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[node])
                if lowest[node] == numbers[node]:
                    component: list[int] = []
                    while not component or component[-1] != node:
                        component.append(stack.popitem()[0])
                    components.append(component)
    return components


_MOST_LINKS = 8
"""The most links of a cycle that are printed; the middle of a longer cycle is left out."""


class Cycles(NamedTuple):
    """Reference cycles that keep arrays alive."""

    paths: dict[int, str]
    """The cycle that keeps an array alive, by the ``id`` of the array."""

    is_complete: bool
    """Whether everything was searched. False after the time limit, or where the variables of a running
    function could not be read."""


def find_cycles(
    arrays: Sequence[Any], *, max_seconds: float | None = 5.0, on_progress: OnProgress | None = None
) -> Cycles:
    """Return the reference cycles that keep unnamed arrays alive.

    A cycle is written as ``Node.me → Node``, ``Parent.child → Child.parent → Parent`` or
    ``closure of loop: loop → loop``, without the path from the cycle to the array. Objects that all reach
    each other are in many cycles; one of the shortest is returned for all of them. An array without an
    entry is reachable from a name, or is held by JAX or C++.

    Args:
        arrays: The arrays. This sequence itself does not count as a referrer.
        max_seconds: The time limit in seconds; None for no limit. After it, returns the cycles found so far.
        on_progress: Called while the search runs, with the seconds since its start.

    Raises:
        SearchError: (a ValueError) If ``max_seconds`` is negative or not a number.
    """
    with closing(_CycleSearch(arrays, max_seconds, on_progress)) as search:
        return Cycles(search.cycles(), search.is_complete)


class _CycleSearch(Search):
    """A search for cycles. It follows functions and frames too, which may be part of the garbage."""

    def _is_end(self, thing: Any) -> bool:
        return id(thing) in self.scopes.namespaces or is_class(thing)

    def cycles(self) -> dict[int, str]:
        """Return the cycle that keeps each array alive, where there is one."""
        known = self._reachable_from_names() | self.array_ids
        unnamed = {key: thing for key, thing in self.found.items() if key not in known}
        cycles: dict[int, str] = {}
        components = strong_components(
            unnamed, lambda key: [id(link.to) for link in self.links_from(key) if id(link.to) in unnamed]
        )
        for component in components:
            cycle = self._cycle_in(component)
            if cycle is not None:
                cycles |= dict.fromkeys(component, cycle)
        # Starts at all cycles at once, so that an object reachable from several gets the nearest.
        for key, link in self.links_breadth_first(list(cycles), unnamed):
            cycles.setdefault(id(link.to), cycles[key])
        return {key: cycle for key, cycle in cycles.items() if key in self.array_ids}

    def _reachable_from_names(self) -> set[int]:
        """Return the ids of all objects that a variable of a module or of a running function reaches."""
        variables = [link for _, link in self.scopes.variables]
        for namespace in self.scopes.namespaces.values():
            variables += namespace.links(self.found)
        reachable = {id(link.to) for link in variables} & self.found.keys()
        reachable |= {id(link.to) for _, link in self.links_breadth_first(reachable, self.found)}
        return reachable | self.scopes.namespaces.keys()

    def _cycle_in(self, component: Sequence[int]) -> str | None:
        """Return a short cycle in a strongly connected component, or None for one object without a cycle."""
        first = next((key for key in component if not is_bare(self.found[key])), component[0])
        start = self.found[first]
        if is_class(start):
            # Every class is in its own method resolution order.
            return f"{type_name(start)}.__mro__ → {type_name(start)}"
        inside = set(component)
        reached_by: dict[int, tuple[int, Link]] = {}
        for key, link in self.links_breadth_first([first], inside):
            if id(link.to) in inside:
                reached_by.setdefault(id(link.to), (key, link))
            if first in reached_by:
                break
        else:
            return None
        key, link = reached_by[first]
        cycle = [link]
        while key != first:
            key, link = reached_by[key]
            cycle.append(link)
        return _cycle_text(cycle[::-1])


def _cycle_text(cycle: Sequence[Link]) -> str:
    """Return the printed form of a cycle, whose last link leads to the object of the first."""
    texts = [text := _name(cycle[-1].to)]
    owner = text
    for link in cycle:
        # The text of a scope's link already contains the name of the function or frame.
        if link.access == "scope":
            texts[-1] = texts[-1].removesuffix(owner) + link.text()
        else:
            texts[-1] += link.text()
        owner = _name(link.to)
        if not is_bare(link.to) or link is cycle[-1]:
            texts.append(owner)
    if len(texts) > _MOST_LINKS:
        half = _MOST_LINKS // 2
        texts[half:-half] = [f"… {len(texts) - 2 * half} more …"]
    return " → ".join(texts)


def _name(thing: Any) -> str:
    return scope_name(thing) or type_name(type(thing))
