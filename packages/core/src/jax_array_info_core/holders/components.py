"""Strongly connected components of a graph: maximal sets of nodes that can reach each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator


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
