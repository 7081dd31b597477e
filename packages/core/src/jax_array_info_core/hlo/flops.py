"""Floating-point operations of a program's dots and convolutions."""

from __future__ import annotations

from collections.abc import Mapping

from .contractions import multiply_adds
from .executions import Executions
from .module import Module


def dot_flops(module: Module, executions: Mapping[str, Executions]) -> int | None:
    """Return the operations of dots and convolutions in one call of a program, on one device.

    A multiply-add counts as two, of complex numbers too. A convolution counts as in XLA's cost analysis:
    without the products with padding. Unlike there, a loop counts as often as it turns.

    None if the number is not known: a dot in a loop of unknown length or in a branch, or a kernel that may
    contain dots, such as one written in Pallas.
    """
    total = 0
    for name, computation in module.computations.items():
        each = 0
        for instruction in computation.instructions:
            one = multiply_adds(instruction, computation)
            if one is None:
                return None
            each += 2 * one
        times = executions[name].times
        if each and times is None:
            return None
        total += each * (times or 0)
    return total
