"""A program that compiles copies of a lowered program, with other shardings, and tells their figures.

``advice_report`` starts it: a failed check in C++ ends its process, and not the user's.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...arrays.origins.origins import UserLines
from ...compat.modules import FAST, CompiledModule, LoweredModule, compiled_module, parsed_module
from ...compat.programs import memory_analysis, program_record, xla_flops
from ...compat.topology_names import parse_topology
from ...facts.reports.advice import ProgramFigures
from ...facts.reports.program import ProgramReport
from ...xla.hlo.collectives import instruction_text, may_send
from ...xla.hlo.loops import executions
from ...xla.hlo.module import read_module
from ..collectives import collectives_of, totals_of
from ..control_flow import flops_of
from ..memory import memory_of
from .candidates import Axes
from .child import serve
from .search import figures_of
from .twins import sharding_key

Use = tuple[int, int | None]
"""Number of an operation in the module, and the number of its operand; None for its result."""


class Question(NamedTuple):
    """A copy of a program, with changes."""

    program: LoweredModule
    """The program."""

    axes: Axes = ()
    """The sharding of what changes: mesh axes of each dimension."""

    values: tuple[tuple[Use, ...], ...] = ()
    """The values that have a constraint: each as a result, or as the operands of operations that it is."""

    outputs: tuple[int, ...] = ()
    """The outputs of the module that have this sharding."""

    is_fast: bool = True
    """Whether it is compiled as fast as the backend can."""


def walk(operation: Any) -> Any:
    """Yield the operations inside one, in order. Their numbers are the same in every copy."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from walk(inner.operation)


def answer(question: Question, seen: set[Any]) -> ProgramFigures | None:
    """Return the figures of a changed program; None if it has the shardings of one before.

    Args:
        question: The program and its changes.
        seen: Keys of those that were compiled fast.
    """
    program = question.program
    module = parsed_module(program.bytecode)
    if question.values or question.outputs:
        program = changed(module, question)
    if question.is_fast:
        stream = io.BytesIO()
        module.operation.write_bytecode(stream)
        own = sharding_key(stream.getvalue()), program.free_arguments, program.free_outputs
        if own in seen:
            return None
        seen.add(own)
    options = FAST if question.is_fast and program.topology is None else {}
    platform = "cpu" if program.topology is None else parse_topology(program.topology).platform
    return figures(compiled_module(module, program, options), platform)


def changed(module: Any, question: Question) -> LoweredModule:
    """Change the shardings in a module, and return the program.

    Raises:
        ValueError: If the module has no mesh, or cannot have the sharding.
    """
    from jaxlib.mlir import ir

    meshes = [one.operation for one in module.body if one.operation.name == "sdy.mesh"]
    if not meshes:
        raise ValueError("the lowered program has no mesh")
    program = question.program
    with module.context, ir.Location.unknown():
        dims = ", ".join(f"{{{', '.join(map(json.dumps, names))}}}" for names in question.axes)
        name = ir.StringAttr(meshes[0].attributes["sym_name"]).value
        sharding = ir.Attribute.parse(f"#sdy.sharding<@{name}, [{dims}]>")
        operations = [*walk(module.operation)]
        for uses in question.values:
            _constrain(ir, [(operations[number], operand) for number, operand in uses], sharding)
        if question.outputs:
            free = _set_outputs(ir, module, question.outputs, sharding, program.free_outputs)
            program = program._replace(free_outputs=free)
        module.operation.verify()
    return program


def _constrain(ir: Any, uses: Sequence[tuple[Any, int | None]], sharding: Any) -> None:
    """Insert a constraint after a result, or before the first of the operations that use a value."""
    first, operand = uses[0]
    value = first.results[0] if operand is None else first.operands[operand]
    readers = [(use.owner, use.operand_number) for use in value.uses] if operand is None else uses
    new = ir.Operation.create(
        "sdy.sharding_constraint",
        results=[value.type],
        operands=[value],
        attributes={"sharding": sharding},
        ip=ir.InsertionPoint(first),
        loc=first.location,
    )
    if operand is None:
        new.move_after(first)
    for reader, number in readers:
        reader.operands[number] = new.results[0]


def _set_outputs(
    ir: Any, module: Any, outputs: Sequence[int], sharding: Any, free: tuple[bool, ...]
) -> tuple[bool, ...]:
    """Set the shardings of outputs, and return which of them XLA still chooses."""
    functions = (one.operation for one in module.body if one.operation.name == "func.func")
    main = next(one for one in functions if ir.StringAttr(one.attributes["sym_name"]).value == "main")
    count = len(ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value).results)
    rows: list[dict[str, Any]] = [{}] * count
    if "res_attrs" in main.attributes:
        rows = [
            {one.name: one.attr for one in ir.DictAttr(row)}
            for row in ir.ArrayAttr(main.attributes["res_attrs"])
        ]
    for place in outputs:
        rows[place] = {**rows[place], "sdy.sharding": sharding}
    main.attributes["res_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(row) for row in rows])
    return tuple(one and place not in outputs for place, one in enumerate(free))


def figures(compiled: CompiledModule, platform: str) -> ProgramFigures:
    """Return the figures of a compiled program.

    Args:
        compiled: The program.
        platform: Platform that it is compiled for.
    """
    record = program_record(compiled)
    if record is None:
        return ProgramFigures()
    module, lines = read_module(record), UserLines()
    times = module.once(executions)
    collectives, unread = collectives_of(module, times, None, {}, lines)
    report = ProgramReport(
        name=module.name,
        platform=platform,
        collectives=collectives,
        sent=totals_of(collectives),
        xla_flops=xla_flops(compiled),
        memory=memory_of(module, memory_analysis(compiled), platform, lines),
        unread=(*map(instruction_text, module.unknown_types), *unread),
        unread_local=tuple(instruction_text(one) for one in module.unknown_types if not may_send(one)),
        **flops_of(module, times, lines),
    )
    return figures_of(report)


def main() -> None:
    """Answer questions until the other process ends or closes the socket."""
    seen: set[Any] = set()
    serve(lambda question: answer(question, seen))


if __name__ == "__main__":
    main()
