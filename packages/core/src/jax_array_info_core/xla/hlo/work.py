"""Work of the instructions of a program: heavy operations, and those on single elements."""

from __future__ import annotations

import math
from typing import NamedTuple

from .flops import costs
from .module import Computation, Instruction

PRODUCT, FFT, SORT, TOP_K, ELEMENTWISE = "product", "fft", "sort", "top_k", "elementwise"
"""Kinds of work. A decomposition has a kind of its own, by its name in JAX."""

_ELEMENTWISE = frozenset(
    {
        *("abs", "add", "and", "atan2", "cbrt", "ceil", "clamp", "compare", "complex", "cosine"),
        *("count-leading-zeros", "divide", "erf", "exponential", "exponential-minus-one", "floor"),
        *("imag", "is-finite", "log", "log-plus-one", "logistic", "maximum", "minimum", "multiply"),
        *("negate", "not", "or", "popcnt", "power", "real", "remainder", "round-nearest-afz"),
        *("round-nearest-even", "rsqrt", "select", "shift-left", "shift-right-arithmetic"),
        *("shift-right-logical", "sign", "sine", "sqrt", "subtract", "tan", "tanh", "xor"),
    }
)
"""Operations that compute each element of their result once."""


class Work(NamedTuple):
    """The work of one execution of an instruction."""

    place: int
    """Place of the instruction in its computation."""

    kind: str
    """Kind of the work."""

    flops: int | None
    """Number of operations; None if it is not known."""


def heavy_work(computation: Computation) -> list[Work]:
    """Return the products, convolutions, transforms, decompositions, sorts and top-k of a computation."""
    works = (_sorted(computation, instruction) for instruction in computation.instructions)
    counted = [work for work in works if work is not None]
    for place, products, transforms, decomposed in computation.once(costs):
        if products is None or products:
            counted.append(Work(place, PRODUCT, None if products is None else 2 * products))
        elif transforms:
            counted.append(Work(place, FFT, transforms))
        elif decomposed is not None:
            counted.append(Work(place, *decomposed))
    return counted


def _sorted(computation: Computation, instruction: Instruction) -> Work | None:
    """Return the work of a sort, which compares n log2 n times, or of a top-k; None for others."""
    is_sort = instruction.opcode == "sort"
    if not is_sort and "topk" not in (instruction.opcode, instruction.custom_call_target.lower()[-4:]):
        return None
    place, dims = instruction.place, _dims(computation, instruction, 0)
    if not is_sort or (instruction.op_name or "").endswith("/top_k"):  # some backends sort for it
        return Work(place, TOP_K, 4 * math.prod(dims))
    length = dims[instruction.op.dimensions[0]]
    return Work(place, SORT, round(math.prod(dims) * math.log2(max(length, 2))))


def light_work(computation: Computation) -> list[Work]:
    """Return the operations on single elements of a computation, with its reductions and scatters."""
    works = (
        Work(instruction.place, ELEMENTWISE, _elements(computation, instruction))
        for instruction in computation.instructions
    )
    return [work for work in works if work.flops]


def _elements(computation: Computation, instruction: Instruction) -> int:
    """Return the number of elements that an instruction computes, or takes together; 0 for others."""
    if instruction.opcode in _ELEMENTWISE:
        return math.prod(instruction.shapes[0].dims)
    if instruction.opcode == "reduce":
        arrays = range(len(instruction.operands) // 2)
        return sum(math.prod(_dims(computation, instruction, place)) for place in arrays)
    if instruction.opcode == "reduce-window":
        window = math.prod(int(side.size) for side in instruction.op.window.dimensions)
        return window * math.prod(instruction.shapes[0].dims)
    return math.prod(_dims(computation, instruction, -1)) if instruction.opcode == "scatter" else 0


def _dims(computation: Computation, instruction: Instruction, place: int) -> tuple[int, ...]:
    """Return the shape of an operand."""
    return computation.by_name[instruction.operands[place]].shapes[0].dims
