"""Floating-point operations of matrix decompositions and triangular solves, by the usual counts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from .messages import ArrayShape
from .module import Computation, Instruction

_ROUTINE = re.compile(
    r"(?:(?:lapack|blas)_[sdcz]|(?:cu|hip)(?:solver|blas)_|__cu(?:solver|blas)\$)([A-Za-z]+)(?:_|$)"
)
"""Target of a custom call with a routine: ``lapack_spotrf_ffi``, ``cusolver_syevd_ffi``."""

_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("cholesky", "potrf"), "cholesky"),
    "geev": "eig",
    **dict.fromkeys(("Eigh", "heevd", "syevd", "syevj"), "eigh"),
    "gehrd": "hessenberg",
    **dict.fromkeys(("ProductOfElementaryHouseholderReflectors", "orgqr", "ungqr"), "householder_product"),
    **dict.fromkeys(("LuDecomposition", "getrf"), "lu"),
    **dict.fromkeys(("Qr", "geqrf"), "qr"),
    "gees": "schur",
    **dict.fromkeys(("gesdd", "gesvd", "gesvdj", "gesvdp"), "svd"),
    **dict.fromkeys(("triangular-solve", "triangularSolve", "trsm"), "triangular_solve"),
    **dict.fromkeys(("hetrd", "sytrd"), "tridiagonal"),
}
"""Name of each decomposition in JAX, by its routine, its operation, or its target in a program for TPU."""

_COUNTS: Mapping[str, Callable[[int, int, int], int]] = {
    "cholesky": lambda _, least, __: least**3 // 3,
    "eig": lambda _, least, __: 25 * least**3,
    "eigh": lambda _, least, __: 9 * least**3,
    "hessenberg": lambda _, least, __: 10 * least**3 // 3,
    "householder_product": lambda most, least, size: (
        4 * most * least * size - 2 * (most + least) * size**2 + 4 * size**3 // 3
    ),
    "lu": lambda most, least, _: most * least**2 - least**3 // 3,
    "qr": lambda most, least, _: 2 * most * least**2 - 2 * least**3 // 3,
    "schur": lambda _, least, __: 25 * least**3,
    "svd": lambda most, least, _: 11 * most * least**2,
    "triangular_solve": lambda most, least, size: most * least * size,
    "tridiagonal": lambda _, least, __: 4 * least**3 // 3,
}
"""Operations on real numbers, from the longer and the shorter side of the matrix. Of a triangular solve and
of a product of Householder reflectors it is the result, and the size is that of the triangle, or their
number."""

_OF_RESULT = ("householder_product", "triangular_solve")


def decomposition(instruction: Instruction, computation: Computation) -> tuple[str, int] | None:
    """Return the name of a decomposition or a triangular solve, with its operations; None for others.

    Complex numbers have four times the operations of real ones.
    """
    target = instruction.custom_call_target
    match = _ROUTINE.match(target)
    name = _NAMES.get(match[1] if match else target or instruction.opcode)
    if name is None:
        return None
    operands = (computation.by_name[operand].shapes for operand in instruction.operands)
    arrays: list[ArrayShape] = [shapes[0] for shapes in operands if shapes and shapes[0].dims]
    matrices = [shape for shape in (instruction.shapes if name in _OF_RESULT else arrays) if shape.dims[1:]]
    if not arrays or not matrices:
        return None
    matrix = matrices[0]
    least, most = sorted(matrix.dims[-2:])
    size = arrays[-1 if name == "householder_product" else 0].dims[-1]
    count = _COUNTS[name](most, least, size) * math.prod(matrix.dims[:-2])
    return name, count * (4 if matrix.dtype.startswith("complex") else 1)
