"""A program that runs Shardy's passes on modules of MLIR. It imports this package when a question needs it.

``watcher.py`` starts it with the seconds that a reply may take, and the import path as JSON. Standard input
is a socket. A question is its number of bytes, as 8 bytes, and a module as bytecode, or an expression as
JSON. A line of JSON before the module has edits of it: ``{"edits": [...]}``, or
``{"estimates": [[...], ...]}`` for a reply to each list. A reply is its number of bytes, and JSON, which
``wire.py`` reads. The program ends when the socket is closed, after a minute without a question, and if a
reply takes too long.
"""

from __future__ import annotations

import functools
import importlib
import json
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

IDLE_SECONDS = 60
_PACKAGE = "jax_array_info_core.programs.propagation"

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
    "sdy-apply-sharding-constraints",
    "sdy-sharding-group-import",
    "sdy-user-priority-propagate{debug-sharding-origins=true keep-sharding-rules=true}",
)
"""Passes up to the propagation, in the order of XLA. In the program after them, a called function stands at
each call, and an edge has the sharding of each value that enters or leaves a loop, a branch or a
function.

Only the propagation records origins, those of constraints among them. The pass that applies constraints adds
one for a value that enters or leaves a region, where a ``shard_map`` takes it; with origins of its own, it
then reads the name of that constraint, which has none, and crashes."""

_MARK = "number_in_module"
"""The attribute of an operation with its number in the module as it is read. No pass takes it away."""
_SHARDING, _ORIGINS = "sdy.sharding", "sdy.sharding_origins"
_NAME, _RULE = "sdy.sharding_origin_name", "sdy.sharding_rule"
_EDGE = "sdy.data_flow_edge"
_MANUAL = "sdy.manual_computation"
_REQUESTED = ("sharding", "in_shardings", "out_shardings")
"""The attribute of a constraint, and those of a ``shard_map``, that have what it requests."""
_REGIONS = (_MANUAL, "sdy.named_computation", "stablehlo.while", "stablehlo.case", "stablehlo.if")
"""Operations whose regions have values of arrays. Those of the others, such as a reduction, are scalars."""


class Table:
    """The plain values of objects of MLIR, each once: it numbers equal objects alike.

    Args:
        read: The function from an object to a plain value.
    """

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read
        self._numbers: dict[Any, int] = {}
        self.rows: list[Any] = []

    def __call__(self, key: Any) -> int:
        """Return the number of an object."""
        if key not in self._numbers:
            self._numbers[key] = len(self.rows)
            self.rows.append(self._read(key))
        return self._numbers[key]


class Walk:
    """The operations of a module after the passes, as plain values.

    Types, shardings, origins, rules and locations are read once: others refer to them by number, in rows as
    ``wire.py`` has them.
    """

    def __init__(self, ir: Any, dialect: Any) -> None:
        self._ir = ir
        self._dialect = dialect
        self.places = Table(str)
        self.types = Table(_type)
        self.shardings = Table(self._axes)
        self.requests = Table(self._requested)
        self.origins = Table(self._texts)
        self.rules = Table(self._rule)
        self._per_value = functools.cache(
            lambda attribute: [*map(self.shardings, dialect.TensorShardingPerValueAttr(attribute).shardings)]
        )
        self._origins_per_value = functools.cache(
            lambda attribute: [*map(self.origins, ir.ArrayAttr(attribute))]
        )
        self._numbers: dict[Any, int] = {}
        self.values: list[list[Any]] = []
        self.operations: list[list[Any]] = []
        self.manual: dict[int, list[str]] = {}

    def function(self, function: Any) -> None:
        """Add the arguments of a function, its operations, and its results as the operands of its return."""
        block = function.regions[0].blocks[0]
        for value in block.arguments:  # the first numbers
            self._number(value)
        for value, given in zip(block.arguments, self._given(function, "arg_attrs"), strict=False):
            self._set(value, *given)
        for operation in block:
            self._add(operation.operation)

    def results(self, function: Any) -> list[int | None]:
        """Return the shardings of a function's results."""
        return [sharding for sharding, _ in self._given(function, "res_attrs")]

    def _given(self, function: Any, name: str) -> Iterator[tuple[int | None, int | None]]:
        """Yield the sharding of each argument or result of a function, and its origins."""
        attributes = function.attributes
        for row in map(self._ir.DictAttr, self._ir.ArrayAttr(attributes[name]) if name in attributes else ()):
            yield (self.shardings(row[_SHARDING]) if _SHARDING in row else None, self._origins_of(row))

    def _origins_of(self, attributes: Any) -> int | None:
        """Return the origins of a single value."""
        return self.origins(attributes[_ORIGINS]) if _ORIGINS in attributes else None

    def _number(self, value: Any) -> int:
        if value not in self._numbers:
            self._numbers[value] = len(self.values)
            self.values.append([self.types(value.type), None, None])
        return self._numbers[value]

    def _set(self, value: Any, sharding: int | None, origins: int | None) -> None:
        if sharding is not None:
            self.values[self._number(value)][1:] = sharding, origins

    def _add(self, operation: Any) -> int:
        """Add an operation, and those inside it. Return its number."""
        number = len(self.operations)
        name, attributes, results = operation.name, operation.attributes, [*operation.results]
        row: list[Any] = [
            name,
            self.places(operation.location.attr),  # which can be compared
            [*map(self._number, operation.operands)],
            [*map(self._number, results)],
            self.rules(attributes[_RULE]) if _RULE in attributes else None,
            *self._named(attributes),
            self._ir.IntegerAttr(attributes[_MARK]).value if _MARK in attributes else None,
        ]
        self.operations.append(row)
        if name == _MANUAL:
            self.manual[number] = [*self._dialect.ManualAxesAttr(attributes["manual_axes"])]
        if "sharding" in attributes:  # of a constraint, a reshard or an edge
            given = self.shardings(attributes["sharding"]), self._origins_of(attributes)
            self._set(results[0], *given)
            if name == _EDGE:
                self._set(operation.operands[0], *given)
        elif _SHARDING in attributes:
            shardings = self._per_value(attributes[_SHARDING])
            none = [None] * len(results)
            origins = self._origins_per_value(attributes[_ORIGINS]) if _ORIGINS in attributes else none
            # A callback without results has one sharding.
            for facts in zip(results, shardings, origins, strict=bool(results)):
                self._set(*facts)
        row.append(
            [
                [[*map(self._number, block.arguments)], [self._add(inner.operation) for inner in block]]
                for region in (operation.regions if name in _REGIONS else ())
                for block in region.blocks
            ]
        )
        return number

    def _named(self, attributes: Any) -> tuple[str | None, int | None]:
        """Return the name of a constraint or a ``shard_map`` in origins, and its own mesh axes."""
        if _NAME not in attributes:
            return None, None
        requested = tuple(attributes[key] for key in _REQUESTED if key in attributes)
        return self._ir.StringAttr(attributes[_NAME]).value, self.requests(requested)

    def _requested(self, attributes: tuple[Any, ...]) -> list[list[str]]:
        """Return the axes of closed dimensions: an open one has those that were propagated to it.

        A ``shard_map`` has those of the arrays that enter and leave it.
        """
        if len(attributes) > 1:
            of_values = map(self._dialect.TensorShardingPerValueAttr, attributes)
            return [dim for row in of_values for sharding in row.shardings for dim in self._axes(sharding)]
        (sharding,) = attributes
        dims = map(
            self._dialect.DimensionShardingAttr,
            self._dialect.TensorShardingAttr(sharding).dimension_shardings,
        )
        return [[*map(self._axis, dim.axes)] for dim in dims if dim.is_closed]

    def _texts(self, origins: Any) -> dict[str, str]:
        return {item.name: self._ir.StringAttr(item.attr).value for item in self._ir.DictAttr(origins)}

    def _axes(self, sharding: Any) -> list[list[str]]:
        """Return the mesh axes of each dimension, a part of one as ``model:(1)8``."""
        sharding = self._dialect.TensorShardingAttr(sharding)
        return [
            [self._axis(axis) for axis in self._dialect.DimensionShardingAttr(dim).axes]
            for dim in sharding.dimension_shardings
        ]

    def _axis(self, axis: Any) -> str:
        axis = self._dialect.AxisRefAttr(axis)
        part = axis.sub_axis_info
        if part is None:
            return str(axis.name)
        part = self._dialect.SubAxisInfoAttr(part)
        return f"{axis.name}:({part.pre_size}){part.size}"

    def _rule(self, rule: Any) -> list[Any]:
        """Return the factors: their sizes, those of operands, those of results, and the whole ones."""
        rule = self._dialect.OpShardingRuleAttr(rule)

        def factors(mappings: Any) -> list[list[list[int]]]:
            tensors = map(self._dialect.TensorMappingAttr, mappings)
            return [
                [[*self._dialect.DimMappingAttr(dim).factor_indices] for dim in tensor.dim_mappings]
                for tensor in tensors
            ]

        operands, results = factors(rule.operand_mappings), factors(rule.result_mappings)
        kept = {factor for tensor in results for dim in tensor for factor in dim}
        used = {factor for tensor in operands for dim in tensor for factor in dim}
        # An operation such as a decomposition neither sums a dimension nor has it in its result.
        whole = {*rule.need_replication_factors} | (used - kept - {*rule.reduction_factors})
        return [[*rule.factor_sizes], operands, results, sorted(whole)]


def _type(type_: Any) -> list[Any]:
    """Return the element type and the shape; no shape for a token, or if a size is dynamic."""
    is_known = getattr(type_, "has_static_shape", False)
    return [str(type_.element_type), [*type_.shape]] if is_known else [str(type_), None]


def read_module(ir: Any, bytecode: bytes, edits: list[Any]) -> Any:
    """Return a module with edits, ready for the passes. Each operation has its number in ``_MARK``."""
    module_edits = importlib.import_module(f"{_PACKAGE}.module_edits")
    module = ir.Module.parse(bytecode)
    kind = ir.IntegerType.get_signless(64)
    for number, operation in enumerate(module_edits.operations(module.operation)):
        operation.attributes[_MARK] = ir.IntegerAttr.get(kind, number)
    module_edits.edited(ir, module, edits)
    _reshape_broadcasts(ir, module.operation)
    return module


def _reshape_broadcasts(ir: Any, outside: Any) -> None:
    """Replace broadcasts that only add dimensions of size 1 by reshapes, inside an operation.

    XLA does so before it propagates. The two propagate in other ways: through a lookup such as
    ``table[ids]``, whose indices JAX broadcasts, the sharding of ``ids`` comes first.
    """
    for region in outside.regions:
        for block in region.blocks:
            for inner in [operation.operation for operation in block.operations]:
                if inner.name == "stablehlo.broadcast_in_dim":
                    (operand,), (result,) = inner.operands, inner.results
                    before, after = operand.type.shape, result.type.shape
                    dims = [*ir.DenseI64ArrayAttr(inner.attributes["broadcast_dimensions"])]
                    kept = dims == sorted(dims) and [after[dim] for dim in dims] == [*before]
                    if (
                        kept
                        and len(after) > len(before)
                        and sum(dim != 1 for dim in after) == sum(dim != 1 for dim in before)
                    ):
                        new = ir.Operation.create(
                            "stablehlo.reshape",
                            results=[result.type],
                            operands=[operand],
                            attributes={
                                name: inner.attributes[name] for name in (_MARK,) if name in inner.attributes
                            },
                            loc=inner.location,
                            ip=ir.InsertionPoint(inner),
                        )
                        result.replace_all_uses_with(new.results[0])
                        inner.erase()
                else:
                    _reshape_broadcasts(ir, inner)


def answer(
    ir: Any, dialect: Any, parse: Callable[[str], Any], bytecode: bytes, edits: list[Any]
) -> dict[str, Any]:
    """Run the passes on a module with edits, and return the fields of ``wire.Answer``."""
    module = read_module(ir, bytecode, edits)
    for name in PASSES:
        parse(name).run(module.operation)
    walk = Walk(ir, dialect)
    main = importlib.import_module(f"{_PACKAGE}.module_edits").main_of(ir, module)
    walk.function(main)
    meshes = [
        [[axis.name, axis.size] for axis in map(dialect.MeshAxisAttr, dialect.MeshAttr(mesh.mesh).axes)]
        for mesh in module.body
        if mesh.operation.name == "sdy.mesh"
    ]
    return {
        "meshes": meshes,
        "arguments": len(main.regions[0].blocks[0].arguments),
        "results": walk.results(main),
        "values": walk.values,
        "operations": walk.operations,
        "manual": walk.manual,
        **{
            name: getattr(walk, name).rows
            for name in ("places", "types", "shardings", "requests", "origins", "rules")
        },
    }


def asked(
    ir: Any, dialect: Any, parse: Callable[[str], Any], question: bytes
) -> Iterator[Callable[[], dict[str, Any]]]:
    """Yield a function for each reply to a question, which computes it."""
    header, bytecode = b"{}", question
    if question.startswith(b"{"):
        header, _, bytecode = question.partition(b"\n")
    fields = json.loads(header)
    if "code" in fields:
        expressions = importlib.import_module("jax_array_info_core.programs.expressions")
        yield lambda: {"sent_nbytes": expressions.sent_nbytes(fields)}
    elif "estimates" in fields:
        estimate = importlib.import_module(f"{_PACKAGE}.estimates").estimate
        for edits in fields["estimates"]:
            module = functools.partial(read_module, ir, bytecode, edits)
            yield functools.partial(lambda module: {"estimate": estimate(parse, module())}, module)
    else:
        yield lambda: {"answer": answer(ir, dialect, parse, bytecode, fields.get("edits", []))}


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
            passes[name].enable_verifier(False)  # the module is verified when it is read
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
            for compute in asked(ir, sdy, parse, stream.read(int.from_bytes(size, "little"))):
                signal.alarm(seconds)
                try:
                    reply = compute()
                except Exception as error:
                    reply = {"error": str(error) or type(error).__name__}
                data = json.dumps(reply).encode()
                stream.write(len(data).to_bytes(8, "little") + data)
                stream.flush()


if __name__ == "__main__":
    sys.path[:] = json.loads(sys.argv[2])
    main(int(sys.argv[1]))
