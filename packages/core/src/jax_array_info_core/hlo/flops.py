"""Floating-point operations of a program's dots and convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .contractions import multiply_adds
from .executions import Executions
from .module import Instruction, Module


class DotFlops(NamedTuple):
    """Operations of dots and convolutions in one call of a program, on one device."""

    known: int
    """Operations, without those that are not counted."""

    runs_unknown: tuple[Instruction, ...]
    """Dots and convolutions in a loop of unknown length or in a branch."""

    size_unknown: tuple[Instruction, ...]
    """Kernels that may contain dots, such as one written in Pallas, and dots whose size depends on data."""


def counted_flops(module: Module, executions: Mapping[str, Executions]) -> DotFlops:
    """Return the operations of dots and convolutions in one call of a program, on one device.

    A multiply-add counts as two, of complex numbers too. A convolution counts as in XLA's cost analysis:
    without the products with padding. Unlike there, a loop counts as often as it turns.
    """
    total = 0
    runs_unknown: list[Instruction] = []
    size_unknown: list[Instruction] = []
    for name, computation in module.computations.items():
        times = executions[name].times
        for instruction in computation.instructions:
            one = multiply_adds(instruction, computation)
            if one == 0 or times == 0:
                continue
            if one is None:
                size_unknown.append(instruction)
            elif times is None:
                runs_unknown.append(instruction)
            else:
                total += 2 * one * times
    return DotFlops(total, tuple(runs_unknown), tuple(size_unknown))


def dot_flops(module: Module, executions: Mapping[str, Executions]) -> int | None:
    """Return all operations of ``counted_flops``; None if some are not counted."""
    found = counted_flops(module, executions)
    return None if found.runs_unknown or found.size_unknown else found.known
