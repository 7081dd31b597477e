"""An estimate of what a device sends, computes and holds, without a compilation.

Shardy makes the collectives of its propagation explicit. XLA sends less or more than these: an estimate
orders programs; a compilation decides which one is better.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from .module_edits import main_of
from .worker import PASSES

_PASSES = (
    *PASSES[:-1],
    "sdy-user-priority-propagate",
    "sdy-sink-data-flow-edges",  # else what enters a loop is gathered
    "sdy-insert-explicit-reshards{enable-full-version=true}",
    "sdy-drop-sharding-rules",
    "sdy-reshard-to-collectives",
)
_SENT: dict[str, Callable[[int], float]] = {
    "sdy.all_gather": lambda count: (count - 1) / count,
    "sdy.all_reduce": lambda count: 2 * (count - 1) / count,
    "sdy.reduce_scatter": lambda count: count - 1,
    "sdy.all_to_all": lambda count: (count - 1) / count,
    "sdy.collective_permute": lambda count: 1,
}
"""Bytes that a device sends for each byte of its result, by the number of devices in a group."""
_MOVED = ("gathering_axes", "reduction_axes", "reduce_scatter_axes", "params")
"""Attributes of collectives that have the mesh axes over which they send."""
_AXIS = re.compile(r'"((?:[^"\\]|\\.)*)"(?::\(\d+\)(\d+))?')
_NUMBER = re.compile(r"\d+")
_LIMIT = re.compile(r"dense<(\d+)>")


def estimate(parse: Callable[[str], Any], module: Any) -> list[int]:
    """Run the passes on a module, and return the fields of ``wire.Estimate``.

    Args:
        parse: The function from the name of a pass to the pass.
        module: The module, which changes.
    """
    for name in _PASSES:
        parse(name).run(module.operation)
    return _Sum(module).fields()


class _Sum:
    """Sums over the operations of a program whose collectives are explicit."""

    def __init__(self, module: Any) -> None:
        from jaxlib.mlir import ir
        from jaxlib.mlir.dialects import sdy, stablehlo

        self._ir, self._sdy, self._stablehlo = ir, sdy, stablehlo
        self._sizes = {
            axis.name: axis.size
            for mesh in module.body
            if mesh.operation.name == "sdy.mesh"
            for axis in map(sdy.MeshAxisAttr, sdy.MeshAttr(mesh.mesh).axes)
        }
        self._module = module
        self._values: dict[Any, tuple[int, ...]] = {}
        """Number of shards of each dimension, of values with a sharding."""
        self._shards = functools.cache(self._read_shards)
        self._all_shards = functools.cache(
            lambda given: [*map(self._shards, sdy.TensorShardingPerValueAttr(given).shardings)]
        )
        self._sent = self._flops = self._nbytes = 0.0

    def fields(self) -> list[int]:
        """Return the bytes sent, the FLOPs of products, and the bytes of all values."""
        ir = self._ir
        main = main_of(ir, self._module)
        given = main.attributes
        rows = map(ir.DictAttr, ir.ArrayAttr(given["arg_attrs"]) if "arg_attrs" in given else ())
        shards = [self._shards(row["sdy.sharding"]) if "sdy.sharding" in row else () for row in rows]
        block = main.regions[0].blocks[0]
        self._enter(block, shards, 1)
        self._nbytes += sum(map(self._nbytes_of, block.arguments))
        return [int(self._sent), int(self._flops), int(self._nbytes)]

    def _enter(self, block: Any, shards: Iterable[tuple[int, ...]], trips: int) -> None:
        """Add the operations of a block that runs so often."""
        self._values.update(zip(block.arguments, shards, strict=False))
        for operation in block:
            self._add(operation.operation, trips)

    def _add(self, operation: Any, trips: int) -> None:
        name, attributes, results = operation.name, operation.attributes, [*operation.results]
        shards = self._shards_of_results(attributes)
        self._values.update(zip(results, shards, strict=False))
        if name in _SENT:
            count = self._count(str(attributes[key]) for key in _MOVED if key in attributes)
            self._sent += _SENT[name](count) * self._nbytes_of(results[0]) * trips
        elif name == "stablehlo.dot_general":
            self._flops += self._flops_of(operation) * trips
        if name in _SENT or not name.startswith("sdy."):
            self._nbytes += sum(map(self._nbytes_of, results))
        if name == "stablehlo.while":
            self._enter(operation.regions[1].blocks[0], shards, trips * _trips(operation))
        elif name == "sdy.named_computation":
            entering = self._all_shards(attributes["in_shardings"]) if "in_shardings" in attributes else ()
            self._enter(operation.regions[0].blocks[0], entering, trips)
        elif name in ("sdy.manual_computation", "stablehlo.case", "stablehlo.if"):
            for region in operation.regions:
                self._enter(region.blocks[0], (), trips)

    def _shards_of_results(self, attributes: Any) -> list[tuple[int, ...]]:
        for key in ("sdy.sharding", "out_shardings"):
            if key in attributes:
                return self._all_shards(attributes[key])
        return [self._shards(attributes[key]) for key in ("sharding", "out_sharding") if key in attributes]

    def _read_shards(self, sharding: Any) -> tuple[int, ...]:
        dims = map(
            self._sdy.DimensionShardingAttr, self._sdy.TensorShardingAttr(sharding).dimension_shardings
        )
        return tuple(self._count(map(str, dim.axes)) for dim in dims)

    def _count(self, texts: Iterable[str]) -> int:
        """Return the number of devices along the mesh axes, and parts of them, that texts name."""
        axes = [axis for text in texts for axis in _AXIS.findall(text)]
        return math.prod(int(part) if part else self._sizes.get(name, 1) for name, part in axes)

    def _nbytes_of(self, value: Any) -> float:
        """Return the bytes of a value on a device."""
        return _nbytes(value.type) / math.prod(self._values.get(value, ()))

    def _flops_of(self, product: Any) -> float:
        """Return the FLOPs of a product on a device."""
        left, result = product.operands[0], product.results[0]
        numbers = self._stablehlo.DotDimensionNumbers(product.attributes["dot_dimension_numbers"])
        shards = self._values.get(left, ())
        flops: float = 2 * math.prod(result.type.shape) / math.prod(self._values.get(result, ()))
        for dim in numbers.lhs_contracting_dimensions:
            flops *= left.type.shape[dim] / (shards[dim] if shards else 1)
        return flops


def _trips(loop: Any) -> int:
    """Return the number that the condition of a loop compares with: the runs of a ``scan``; 1 if unknown."""
    attributes = (operation.operation.attributes for operation in loop.regions[0].blocks[0])
    limits = (_LIMIT.match(str(given["value"])) for given in attributes if "value" in given)
    return next((int(limit[1]) for limit in limits if limit), 1)


@functools.cache
def _nbytes(type_: Any) -> int:
    """Return the bytes of a whole value; 0 for a token."""
    if not getattr(type_, "has_static_shape", False):
        return 0
    text = str(type_.element_type)
    number = _NUMBER.search(text)
    bits = int(number[0]) if number else 32
    size: int = math.prod(type_.shape)
    return size * max(bits * (2 if text.startswith("complex") else 1), 8) // 8
