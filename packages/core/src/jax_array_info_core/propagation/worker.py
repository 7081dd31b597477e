"""A program that runs Shardy's passes on modules of MLIR. It imports jaxlib, and nothing of this package.

It is started with the seconds that a question may take, and the import path as JSON. Standard input is a
socket. A question is the number of bytes of a module, as 8 bytes, and the module as bytecode; the answer is
the number of bytes, and JSON. The program ends when the socket is closed, after a minute without a
question, and if a question takes too long.
"""

from __future__ import annotations

import importlib
import json
import signal
import socket
import sys
from typing import Any

IDLE_SECONDS = 60

PASSES = (
    "chlo-legalize-to-stablehlo",
    "sdy-lift-inlined-meshes",
    "sdy-remove-size-one-axes",
    "sdy-propagate-sharding-from-func-to-call",
    "sdy-constant-or-scalar-splitter",
    "symbol-dce",
    "sdy-manual-axes-cleanup",
    "sdy-add-data-flow-edges",
    "sdy-flatten-call-graph",
    "symbol-dce",
    "sdy-import-func-calls",
    "symbol-dce",
    "sdy-apply-sharding-constraints{debug-sharding-origins=true}",
    "sdy-sharding-group-import",
    "sdy-user-priority-propagate{debug-sharding-origins=true keep-sharding-rules=true}",
)
"""Passes up to the propagation, in the order of XLA. In the program after them, a called function stands at
each call, and an edge has the sharding of each value that enters or leaves a loop, a branch or a
function."""

_EDGE = "sdy.data_flow_edge"
_MANUAL = "sdy.manual_computation"
_REGIONS = (_MANUAL, "sdy.named_computation", "stablehlo.while", "stablehlo.case", "stablehlo.if")
"""Operations whose regions have values of arrays. Those of the others, such as a reduction, are scalars."""


class Walk:
    """The operations of a module after the passes, as plain values."""

    def __init__(self, ir: Any, dialect: Any) -> None:
        self._ir = ir
        self._dialect = dialect
        self._numbers: dict[Any, int] = {}
        self._places: dict[str, int] = {}
        self.values: list[dict[str, Any]] = []
        self.operations: list[dict[str, Any]] = []

    @property
    def places(self) -> list[str]:
        """Texts of the locations, by number."""
        return list(self._places)

    def function(self, function: Any) -> None:
        """Add the arguments of a function, its operations, and its results as the operands of its return."""
        attributes = function.attributes
        block = function.regions[0].blocks[0]
        for value in block.arguments:  # the first numbers
            self._number(value)
        for value, own in zip(block.arguments, self._dictionaries(attributes, "arg_attrs"), strict=False):
            self._set(value, *self._sharding_of(own))
        for operation in block:
            self._add(operation.operation)

    def results(self, function: Any) -> list[Any]:
        """Return the shardings of a function's results, with their origins."""
        return [*map(self._sharding_of, self._dictionaries(function.attributes, "res_attrs"))]

    def _dictionaries(self, attributes: Any, name: str) -> list[Any]:
        return [*map(self._ir.DictAttr, self._ir.ArrayAttr(attributes[name]))] if name in attributes else []

    def _number(self, value: Any) -> int:
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(_type(value.type))
        return found

    def _set(self, value: Any, axes: Any, origins: Any) -> None:
        row = self.values[self._number(value)]
        if axes is not None:
            row["axes"], row["origins"] = axes, origins

    def _add(self, operation: Any) -> int:
        """Add an operation, and those inside it. Return its number."""
        number = len(self.operations)
        attributes = operation.attributes
        row: dict[str, Any] = {
            "name": operation.name,
            "place": self._places.setdefault(str(operation.location), len(self._places)),
            "operands": [self._number(one) for one in operation.operands],
            "results": [self._number(one) for one in operation.results],
        }
        self.operations.append(row)
        if "sdy.sharding_origin_name" in attributes:
            row["origin"] = self._ir.StringAttr(attributes["sdy.sharding_origin_name"]).value
        if "sdy.sharding_rule" in attributes:
            row["rule"] = self._rule(self._dialect.OpShardingRuleAttr(attributes["sdy.sharding_rule"]))
        if "sharding" in attributes:  # of a constraint, a reshard or an edge
            found = self._axes(attributes["sharding"]), self._origins(attributes)
            self._set(operation.results[0], *found)
            if operation.name == _EDGE:
                self._set(operation.operands[0], *found)
        elif "sdy.sharding" in attributes:
            shardings = self._shardings(attributes["sdy.sharding"])
            origins = []
            if "sdy.sharding_origins" in attributes:
                origins = [*map(self._texts, self._ir.ArrayAttr(attributes["sdy.sharding_origins"]))]
            for position, (value, axes) in enumerate(zip(operation.results, shardings, strict=True)):
                self._set(value, axes, origins[position] if origins else {})
        if operation.name == _MANUAL:
            for key in ("in_shardings", "out_shardings"):
                row[key] = self._shardings(attributes[key])
        blocks = [block for region in operation.regions for block in region.blocks]
        row["blocks"] = [
            [[self._number(one) for one in block.arguments], [self._add(one.operation) for one in block]]
            for block in (blocks if operation.name in _REGIONS else ())
        ]
        return number

    def _sharding_of(self, attributes: Any) -> tuple[Any, dict[str, str]]:
        """Return the sharding of a function's argument or result, and its origins."""
        if "sdy.sharding" not in attributes:
            return None, {}
        return self._axes(attributes["sdy.sharding"]), self._origins(attributes)

    def _origins(self, attributes: Any) -> dict[str, str]:
        """Return the origin of each mesh axis of a single value."""
        name = "sdy.sharding_origins"
        return self._texts(attributes[name]) if name in attributes else {}

    def _texts(self, origins: Any) -> dict[str, str]:
        return {one.name: self._ir.StringAttr(one.attr).value for one in self._ir.DictAttr(origins)}

    def _shardings(self, attribute: Any) -> list[list[list[str]]]:
        return [*map(self._axes, self._dialect.TensorShardingPerValueAttr(attribute).shardings)]

    def _axes(self, sharding: Any) -> list[list[str]]:
        """Return the mesh axes of each dimension, a part of one as ``model:(1)8``."""
        sharding = self._dialect.TensorShardingAttr(sharding)
        return [
            [self._axis(axis) for axis in one.axes]
            for one in map(self._dimension, sharding.dimension_shardings)
        ]

    def _dimension(self, dimension: Any) -> Any:
        return self._dialect.DimensionShardingAttr(dimension)

    def _axis(self, axis: Any) -> str:
        axis = self._dialect.AxisRefAttr(axis)
        part = axis.sub_axis_info
        if part is None:
            return str(axis.name)
        part = self._dialect.SubAxisInfoAttr(part)
        return f"{axis.name}:({part.pre_size}){part.size}"

    def _rule(self, rule: Any) -> dict[str, Any]:
        """Return the factors of each dimension of the operands and results, and the kinds of factors."""

        def factors(mappings: Any) -> list[list[list[int]]]:
            tensors = map(self._dialect.TensorMappingAttr, mappings)
            return [
                [list(self._dialect.DimMappingAttr(one).factor_indices) for one in tensor.dim_mappings]
                for tensor in tensors
            ]

        return {
            "sizes": list(rule.factor_sizes),
            "operands": factors(rule.operand_mappings),
            "results": factors(rule.result_mappings),
            "reduction": list(rule.reduction_factors),
            "whole": list(rule.need_replication_factors),
        }


def _type(type_: Any) -> dict[str, Any]:
    """Return the shape and the element type; no shape for a token, or if a size is dynamic."""
    is_known = getattr(type_, "has_static_shape", False)
    return (
        {"shape": list(type_.shape), "dtype": str(type_.element_type)} if is_known else {"dtype": str(type_)}
    )


def answer(ir: Any, dialect: Any, parse: Any, bytecode: bytes) -> dict[str, Any]:
    """Run the passes on a module, and return what each value has."""
    module = ir.Module.parse(bytecode)
    for name in PASSES:
        parse(name).run(module.operation)
    walk = Walk(ir, dialect)
    main = next(
        one for one in module.body if one.operation.name == "func.func" and one.sym_name.value == "main"
    )
    walk.function(main.operation)
    meshes = [
        [[axis.name, axis.size] for axis in map(dialect.MeshAxisAttr, dialect.MeshAttr(one.mesh).axes)]
        for one in module.body
        if one.operation.name == "sdy.mesh"
    ]
    return {
        "meshes": meshes,
        "arguments": len(main.operation.regions[0].blocks[0].arguments),
        "results": walk.results(main.operation),
        "values": walk.values,
        "operations": walk.operations,
        "places": walk.places,
    }


def main(seconds: int) -> None:
    """Answer questions until the socket is closed."""
    from jaxlib.mlir import ir, passmanager
    from jaxlib.mlir.dialects import chlo, sdy, stablehlo

    registry = ir.DialectRegistry()
    importlib.import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext").register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    for dialect in (sdy, stablehlo, chlo):
        dialect.register_dialect(context)
    context.load_all_available_dialects()
    stablehlo.register_stablehlo_passes()
    passes: dict[str, Any] = {}

    def parse(name: str) -> Any:
        """Return a pass, which some versions nest in the functions of the module."""
        if name not in passes:
            try:
                passes[name] = passmanager.PassManager.parse(f"builtin.module({name})")
            except Exception:
                passes[name] = passmanager.PassManager.parse(f"builtin.module(func.func({name}))")
        return passes[name]

    # Without a handler, an alarm ends this process even in the middle of a pass.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    with context, socket.socket(fileno=0) as connection, connection.makefile("rwb") as stream:
        while True:
            signal.alarm(IDLE_SECONDS)
            size = stream.read(8)
            if len(size) < 8:
                return
            signal.alarm(seconds)
            bytecode = stream.read(int.from_bytes(size, "little"))
            try:
                found = answer(ir, sdy, parse, bytecode)
            except Exception as error:
                found = {"error": str(error) or type(error).__name__}
            reply = json.dumps(found).encode()
            stream.write(len(reply).to_bytes(8, "little") + reply)
            stream.flush()


if __name__ == "__main__":
    sys.path[:] = json.loads(sys.argv[2])
    main(int(sys.argv[1]))
