"""Strongly connected components: the parts of a graph in which each node leads to each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator


def strong_components(nodes: Iterable[int], after: Callable[[int], Iterable[int]]) -> list[list[int]]:
    """Return the strongly connected components of a graph, by Tarjan's algorithm, without recursion.

    Args:
        nodes: The nodes.
        after: The nodes to which one leads.
    """
    numbers: dict[int, int] = {}
    lowest: dict[int, int] = {}
    open_nodes: dict[int, None] = {}  # in the order of their numbers
    components: list[list[int]] = []

    def enter(node: int) -> tuple[int, Iterator[int]]:
        numbers[node] = lowest[node] = len(numbers)
        open_nodes[node] = None
        return node, iter(after(node))

    for root in nodes:
        way = [] if root in numbers else [enter(root)]
        while way:
            node, rest = way[-1]
            for other in rest:
                if other not in numbers:
                    way.append(enter(other))
                    break
                if other in open_nodes:
                    lowest[node] = min(lowest[node], numbers[other])
            else:
                way.pop()
                if way:
                    before = way[-1][0]
                    lowest[before] = min(lowest[before], lowest[node])
                if lowest[node] == numbers[node]:
                    component: list[int] = []
                    while not component or component[-1] != node:
                        component.append(open_nodes.popitem()[0])
                    components.append(component)
    return components
