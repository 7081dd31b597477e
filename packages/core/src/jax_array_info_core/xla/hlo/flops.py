"""Floating-point operations of a program: dots, convolutions, Fourier transforms and decompositions."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from .decompositions import decomposition
from .loops import Executions, Within
from .messages import FFTS, ArrayShape
from .module import Computation, Instruction, Module

_DOTS = frozenset(("dot", "scaled-dot"))
_REAL_PRODUCTS = 4
"""Real products in one of complex numbers. TPU has three, as separate instructions of real numbers."""

# Kernels of libraries, and those that users write. Others contract nothing, or decompose a matrix.
_KERNELS = re.compile(r"(?i)matmul|gemm|conv|fmha|attention|triton|mosaic|pallas|cutlass|tpu_custom_call")
_MATMULS = ("__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8", "__onednn$matmul")
_CONTRACTING = re.compile(r'"lhs_contracting_dimensions":\[([\d", ]*)\]')
_TRANSPOSED = re.compile(r'"transpose_a":true')

# Place of the input, the kernel and the output of a convolution among the operands; -1 is the result.
_CONVOLUTIONS = {
    "__cudnn$convForward": (0, 1, -1),
    "__cudnn$convForwardGraph": (0, 1, -1),
    "__cudnn$convBiasActivationForward": (0, 1, -1),
    "__cudnn$convBackwardInput": (-1, 1, 0),
    "__cudnn$convBackwardFilter": (0, -1, 1),
    "__onednn$convolution": (0, 1, -1),
}

# A convolution longer than this, in both its window and its output, is not counted.
_LONGEST = 1 << 16


class _Side(NamedTuple):
    """A spatial axis of a convolution."""

    input: int
    window: int
    output: int
    stride: int
    padding: int
    input_dilation: int
    window_dilation: int


def multiply_adds(instruction: Instruction, computation: Computation) -> int | None:
    """Return the multiply-adds of real numbers in an instruction: 0 if it is neither a dot nor a convolution.

    One of complex numbers counts as four. None if it is one whose count is not known, such as a kernel of the
    user or an attention of cuDNN.
    """
    products = _products(instruction, computation)
    is_complex = bool(products) and any(shape.dtype.startswith("complex") for shape in instruction.shapes)
    return _REAL_PRODUCTS * products if products and is_complex else products


def fft_flops(instruction: Instruction, computation: Computation) -> int:
    """Return the operations of the Fourier transforms of an instruction, 5 N log2 N each, rounded.

    N is the number of elements that are transformed together. Transforms of real numbers, or to them, have
    half. 0 for other instructions.
    """
    if instruction.opcode != "fft":
        return 0
    size, name = math.prod(instruction.op.fft_length), FFTS[instruction.op.fft_type]
    shape = _shape(instruction, computation, -1 if name == "IRFFT" else 0)
    # The batch times N is the number of elements of the side with real numbers, or of both.
    return round(5 * math.prod(shape.dims) * math.log2(max(size, 1)) / (2 if "R" in name else 1))


def _products(instruction: Instruction, computation: Computation) -> int | None:
    """Return the multiply-adds of an instruction, of complex numbers too."""
    opcode = instruction.opcode
    if opcode in _DOTS:
        return _dot(instruction, computation)
    if opcode == "convolution":
        return _convolution(instruction, computation, (0, 1, -1))
    if opcode == "ragged-dot":
        return None
    if opcode == "custom-call":
        target = instruction.custom_call_target
        if target in _MATMULS:
            return _library_dot(instruction, computation)
        if target in _CONVOLUTIONS:
            return _convolution(instruction, computation, _CONVOLUTIONS[target])
        return None if _KERNELS.search(target) else 0
    return 0


def _shape(instruction: Instruction, computation: Computation, place: int) -> ArrayShape:
    """Return the type of an operand; for -1 that of the result, without the scratch space of a library."""
    array = instruction if place < 0 else computation.by_name[instruction.operands[place]]
    return array.shapes[0]


def _contraction(operand: ArrayShape, result: ArrayShape, axes: Sequence[int]) -> int:
    """Return the multiply-adds of a dot: elements of the result times the contracted size."""
    return math.prod(result.dims) * math.prod(operand.dims[axis] for axis in axes)


def _dot(instruction: Instruction, computation: Computation) -> int | None:
    op = instruction.op
    # Without sparsity, its message is there and empty.
    if any(sparsity.ByteSize() for sparsity in (*op.dot_sparsity, op.sparsity_config)):
        return None
    axes = op.dot_dimension_numbers.lhs_contracting_dimensions
    return _contraction(_shape(instruction, computation, 0), _shape(instruction, computation, -1), axes)


def _library_dot(instruction: Instruction, computation: Computation) -> int | None:
    """Return the multiply-adds of a matmul of cuBLAS or oneDNN, whose axes are in the backend_config."""
    operand = _shape(instruction, computation, 0)
    config = instruction.backend_config
    match = _CONTRACTING.search(config)
    if match is not None:
        axes = [int(axis) for axis in re.findall(r"\d{1,9}", match[1])]
    elif len(operand.dims) > 1 and "onednn_matmul_config" in config:
        axes = [len(operand.dims) - (2 if _TRANSPOSED.search(config) else 1)]
    else:
        return None
    return _contraction(operand, _shape(instruction, computation, -1), axes)


def _convolution(
    instruction: Instruction, computation: Computation, places: tuple[int, int, int]
) -> int | None:
    """Return the multiply-adds of a convolution, without those with padding, as XLA counts them.

    TPU writes dots as convolutions: contracted axes are features or windows, batch axes are spatial.
    """
    op, axes = instruction.op, instruction.op.convolution_dimension_numbers
    shapes = [_shape(instruction, computation, place) for place in places]
    source, kernel, result = (shape.dims for shape in shapes)
    spatial = axes.input_spatial_dimensions, axes.kernel_spatial_dimensions, axes.output_spatial_dimensions
    windows = op.window.dimensions
    if any(len(shape.dims) != len(windows) + 2 for shape in shapes):
        return None  # oneDNN has no windows, cuDNN may have vectors as another axis
    lengths = [
        [dims[axis] for axis in named] for dims, named in zip((source, kernel, result), spatial, strict=True)
    ]
    positions = [
        _valid_positions(
            _Side(
                before,
                window.size,
                after,
                window.stride,
                window.padding_low,
                window.base_dilation,
                window.window_dilation,
            )
        )
        for before, after, window in zip(lengths[0], lengths[2], windows, strict=True)
    ]
    # Numbers of groups of 1 may be left out.
    features = source[axes.input_feature_dimension] // max(op.feature_group_count, 1)
    batches = source[axes.input_batch_dimension] // max(op.batch_group_count, 1)
    total = features * kernel[axes.kernel_output_feature_dimension] * batches
    return None if None in positions else total * math.prod(count for count in positions if count is not None)


@lru_cache(maxsize=256)
def _valid_positions(side: _Side) -> int | None:
    """Return the pairs of an element of the output and one of the window that meet an element of the input.

    The element of the input is ``output * stride + window * window_dilation - padding``, divided by the
    dilation of the input.
    """
    outer, outer_step, inner, inner_step = side.window, side.window_dilation, side.output, side.stride
    if outer > inner:
        outer, outer_step, inner, inner_step = inner, inner_step, outer, outer_step
    if outer > _LONGEST:
        return None
    return sum(_met(place * outer_step - side.padding, inner_step, inner, side) for place in range(outer))


def _met(start: int, step: int, count: int, side: _Side) -> int:
    """Return how many of the places ``start + step * k`` for ``k < count`` are elements of the input.

    These are multiples of its dilation.
    """
    dilation = side.input_dilation
    first = max(0, -(start // step))
    last = min(count - 1, ((side.input - 1) * dilation - start) // step)
    common = math.gcd(step, dilation)
    if start % common or side.input < 1:
        return 0
    period = dilation // common
    # The smallest k with start + step * k divisible by the dilation.
    offset = -(start // common) * pow(step // common, -1, period) % period if period > 1 else 0
    first += (offset - first) % period
    return max(0, (last - first) // period + 1)


class Flops(NamedTuple):
    """Operations of a program on one device.

    Those in loops of unknown length and on sides of conditionals count in one iteration, and if taken.
    """

    dots: Mapping[Within, int]
    """Operations of dots and convolutions by the loops and sides around them; by ``()``, of each call."""

    ffts: Mapping[Within, int]
    """Operations of Fourier transforms, in the same way."""

    decompositions: Mapping[str, Mapping[Within, int]]
    """Operations of each kind of decomposition, in the same way, by its name in JAX."""

    runs_unknown: tuple[Instruction, ...]
    """Those in parts of the program that run an unknown number of times."""

    size_unknown: tuple[Instruction, ...]
    """Kernels that may contain dots, such as one written in Pallas, and dots whose size depends on data."""

    @property
    def known(self) -> int:
        """Operations of dots and convolutions in each call, without those that are not counted."""
        return self.dots.get((), 0)


_Decomposition = tuple[str, int] | None


def costs(computation: Computation) -> list[tuple[int, int | None, int, _Decomposition]]:
    """Return what instructions contract, transform or decompose: place, multiply-adds, operations."""
    counts = (
        (
            multiply_adds(instruction, computation),
            fft_flops(instruction, computation),
            decomposition(instruction, computation),
        )
        for instruction in computation.instructions
    )
    return [(place, *cost) for place, cost in enumerate(counts) if cost != (0, 0, None)]


def counted_flops(module: Module, executions: Mapping[str, Executions]) -> Flops:
    """Return the operations of dots, convolutions, Fourier transforms and decompositions, on one device.

    A multiply-add of real numbers counts as two. A convolution counts as in XLA's cost analysis: without the
    products with padding. Unlike there, a loop counts as often as it turns, and complex numbers count more.
    """
    dots: Counter[Within] = Counter()
    ffts: Counter[Within] = Counter()
    decompositions: dict[str, Counter[Within]] = {}
    runs_unknown: list[Instruction] = []
    size_unknown: list[Instruction] = []
    for name, computation in module.computations.items():
        runs = executions[name].runs
        for place, products, transforms, decomposed in () if runs == {} else computation.once(costs):
            if products is None:
                size_unknown.append(computation.instructions[place])
            elif runs is None:
                runs_unknown.append(computation.instructions[place])
            else:
                for within, times in runs.items():
                    dots[within] += 2 * products * times
                    ffts[within] += transforms * times
                    if decomposed is not None:
                        kind, count = decomposed
                        decompositions.setdefault(kind, Counter())[within] += count * times
    return Flops(+dots, +ffts, decompositions, tuple(runs_unknown), tuple(size_unknown))
