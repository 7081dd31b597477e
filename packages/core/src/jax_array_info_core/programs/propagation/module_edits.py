"""Edits of the shardings in a module of MLIR, with jaxlib's bindings alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

_SHARDING = "sdy.sharding"
_CONSTRAINT = "sdy.sharding_constraint"
_PART = re.compile(r"(.*):\((\d+)\)(\d+)", re.DOTALL)
"""A part of a mesh axis, such as ``model:(1)8``."""


def operations(operation: Any) -> Iterator[Any]:
    """Yield the operations inside of one in order, each before those in its regions.

    Args:
        operation: An ``ir.Operation``, such as that of a module.
    """
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from operations(inner.operation)


def main_of(ir: Any, module: Any) -> Any:
    """Return the operation of the function ``main``."""
    functions = (operation.operation for operation in module.body)
    return next(
        function
        for function in functions
        if function.name == "func.func" and ir.StringAttr(function.attributes["sym_name"]).value == "main"
    )


def edited(ir: Any, module: Any, edits: Iterable[Sequence[Any]]) -> None:
    """Apply edits to a module in the dialect of Shardy, all at once.

    The numbers of operations are those of the module as it is.

    Args:
        ir: The module ``jaxlib.mlir.ir``.
        module: The module of the program.
        edits: The fields of an ``Edit`` each: kind, number, axes, place.

    Raises:
        ValueError: If an edit is not one of this module, or no mesh of it has the axes.
        IndexError: If it has no such operation, argument, result or operand.
    """
    with module.context, ir.Location.unknown():
        meshes = _Meshes(ir, module)
        main, every = main_of(ir, module), [*operations(module.operation)]
        removed = []
        for kind, number, axes, place in edits:
            if kind == "argument":
                _set_sharding(ir, meshes, main, "arg_attrs", number, axes)
            elif kind == "output":
                _set_sharding(ir, meshes, main, "res_attrs", number, axes)
            elif kind in ("result", "operand"):
                _constrain(ir, meshes, every[number], axes, place, is_operand=kind == "operand")
            elif every[number].name != _CONSTRAINT:
                raise ValueError(f"operation {number} is not a constraint: {every[number].name}")
            elif axes is None:
                removed.append(every[number])
            else:
                old = every[number].attributes["sharding"]
                every[number].attributes["sharding"] = meshes.sharding(axes, old)
        for constraint in removed:  # last: other edits may be about it
            constraint.results[0].replace_all_uses_with(constraint.operands[0])
            constraint.erase()


class _Meshes:
    """The meshes of a module, for new shardings."""

    def __init__(self, ir: Any, module: Any) -> None:
        from jaxlib.mlir.dialects import sdy

        self._ir, self._sdy = ir, sdy
        rows = [
            (ir.StringAttr(one.operation.attributes["sym_name"]).value, sdy.MeshAttr(one.mesh).axes)
            for one in module.body
            if one.operation.name == "sdy.mesh"
        ]
        self._axes = {name: {sdy.MeshAxisAttr(axis).name for axis in axes} for name, axes in rows}

    def sharding(self, axes: Sequence[Sequence[str]], old: Any = None) -> Any:
        """Return the attribute of a sharding, on the mesh of an old one if that has the axes."""
        needed = {self._parts(axis)[0] for dim in axes for axis in dim}
        names = [name for name, known in self._axes.items() if known and needed <= known]
        if old is not None and isinstance(
            mesh := self._sdy.TensorShardingAttr(old).mesh_or_ref, self._ir.Attribute
        ):
            names = [name for name in names if str(mesh) == f"@{name}"] or names
        if not names:
            raise ValueError(f"no mesh of the program has the axes {', '.join(sorted(needed))}")
        dims = [self._sdy.DimensionShardingAttr.get([*map(self._axis, dim)], is_closed=True) for dim in axes]
        return self._sdy.TensorShardingAttr.get(names[0], dims)

    @staticmethod
    def _parts(axis: str) -> tuple[str, tuple[int, int] | None]:
        match = _PART.fullmatch(axis)
        return (axis, None) if match is None else (match[1], (int(match[2]), int(match[3])))

    def _axis(self, axis: str) -> Any:
        name, part = self._parts(axis)
        return self._sdy.AxisRefAttr.get(name, None if part is None else self._sdy.SubAxisInfoAttr.get(*part))


def _set_sharding(
    ir: Any, meshes: _Meshes, main: Any, key: str, number: int, axes: Sequence[Sequence[str]] | None
) -> None:
    """Change the sharding of an argument or an output of ``main``."""
    type_ = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
    count = len(type_.inputs if key == "arg_attrs" else type_.results)
    known = [*ir.ArrayAttr(main.attributes[key])] if key in main.attributes else [ir.DictAttr.get({})] * count
    row = {item.name: item.attr for item in ir.DictAttr(known[number])}
    old = row.pop(_SHARDING, None)
    if axes is not None:
        row[_SHARDING] = meshes.sharding(axes, old)
    known[number] = ir.DictAttr.get(row)
    main.attributes[key] = ir.ArrayAttr.get(known)


def _constrain(
    ir: Any, meshes: _Meshes, operation: Any, axes: Sequence[Sequence[str]], place: int, *, is_operand: bool
) -> None:
    """Add a constraint on a result of an operation, or on an operand before it."""
    value = operation.operands[place] if is_operand else operation.results[place]
    uses = [(use.owner, use.operand_number) for use in value.uses]
    new = ir.Operation.create(
        _CONSTRAINT,
        results=[value.type],
        operands=[value],
        attributes={"sharding": meshes.sharding(axes)},
        loc=operation.location,
        ip=ir.InsertionPoint(operation),
    )
    if is_operand:
        operation.operands[place] = new.results[0]
        return
    new.move_after(operation)
    for user, operand in uses:
        user.operands[operand] = new.results[0]
