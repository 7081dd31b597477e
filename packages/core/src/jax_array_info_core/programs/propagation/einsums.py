"""The letters of the user's einsum for the factors of the products that compute it and its gradients."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

Dims = Sequence[Sequence[int]]
"""Factors of each dimension of an operand."""

_EINSUM = re.compile(r"(?:^|[/(])([A-Za-z]+),([A-Za-z]+)->([A-Za-z]*)(?=[/)])")
_TRANSPOSED = "transpose("


def einsum_letters(name: str, operands: Sequence[Dims], results: Sequence[Dims]) -> Mapping[int, str]:
    """Return the letter of each factor of a product; empty if it is not known for certain.

    ``jnp.einsum`` gives its products its subscripts as a name. Those of three operands are not read.

    >>> einsum_letters("jit(f)/bsd,vd->bsv/dot_general", [[[0], [1], [2]], [[3], [2]]], [[[0], [1], [3]]])
    {0: 'b', 1: 's', 2: 'd', 3: 'v'}

    Args:
        name: Name of the operation, with its transformations.
        operands: Its operands.
        results: Its results.
    """
    found = _EINSUM.findall(name)
    dims = [*operands, *results]
    if not found or len(dims) != 3 or any(len(factors) != 1 for of_one in dims for factors in of_one):
        return {}
    first, second, third = ([factors[0] for factors in of_one] for of_one in dims)
    ways = {
        tuple(sorted(way.items()))
        for order, expected in _orders(*found[-1], has_gradients=_TRANSPOSED in name)
        if (way := _matched((first, second), order)) and {way.get(factor) for factor in third} == expected
    }
    return dict(*ways) if len(ways) == 1 else {}


def _orders(
    left: str, right: str, result: str, *, has_gradients: bool
) -> Iterator[tuple[tuple[str, str], set[str]]]:
    """Yield the letters that the two operands of a product can have, and those of its result.

    Of a gradient, the first operand has the letters of the result in the order in which JAX computes it.
    """
    if any(len(set(term)) < len(term) for term in (left, right, result)):
        return
    # A letter of one operand alone is summed before.
    pair = [
        "".join(letter for letter in term if letter in other + result)
        for term, other in ((left, right), (right, left))
    ]
    batch = "".join(letter for letter in result if letter in left and letter in right)
    orders = {
        (one, other): batch
        + "".join(letter for letter in one + other if letter in result and letter not in batch)
        for one, other in (pair, pair[::-1])
    }
    # JAX computes the operands in the order that needs no transpose of the result, if there is one.
    computed = {terms: order for terms, order in orders.items() if order == result} or orders
    for terms, order in computed.items():
        yield terms, set(result)
        for one, other in (pair, pair[::-1]) if has_gradients else ():
            yield (order, one), set(other)


def _matched(operands: Sequence[Sequence[int]], terms: Sequence[str]) -> dict[int, str]:
    """Return the letter of each factor, if each has one and each letter has one factor; else nothing."""
    if any(len(factors) != len(term) for factors, term in zip(operands, terms, strict=True)):
        return {}
    pairs = {pair for place in (0, 1) for pair in zip(operands[place], terms[place], strict=True)}
    way = dict(pairs)
    return way if len(pairs) == len(way) == len({*way.values()}) else {}
