"""The report on why each value of a program is sharded as it is."""

from __future__ import annotations

import difflib
import math
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...arrays.origins.origins import UserLines
from ...arrays.stage_leaves import argument_values, output_values
from ...base.errors import CheckError, UnsupportedValueError, require_report
from ...base.quantities import counted, format_bytes
from ...base.text import plain_text, printable
from ...compat.lowering import lowered_for_propagation, require_shardy
from ...compat.programs import argument_locations, module_bytecode, module_name, program_name
from ...compat.stages import argument_leaves, array_leaves, output_leaves, stages_of, with_object_keys
from ...facts.reports.codes import known_codes
from ...facts.reports.findings import MIN_NBYTES
from ...facts.reports.origin import Origin
from ...facts.reports.program_values import ProgramValue
from ...facts.reports.propagation import (
    AxisOrigin,
    Conflict,
    Loss,
    OriginKind,
    PropagatedLeaf,
    PropagatedValue,
    PropagationReport,
    ReplicatedValue,
)
from ...geometry.layouts.notation import as_nbytes
from ...geometry.layouts.spec import MIN_SHARD_ELEMENTS, MeshAxes, Spec, advised_axes
from .axis_origins import Named, Propagated, line_of, origins_of
from .batch import lost_batches
from .conflicts import conflicts, losses_of, lost_axes, most_first, where
from .graph import Axes, Graph, Operation, Value, has_axis, nbytes, read_place, remembered, shard_of
from .helper import NoAnswerError, ask_edited, start
from .ways import MOST_STEPS, batch_axes, is_fused, is_returned
from .wire import read_graph


def propagated_values(program: Propagated) -> tuple[PropagatedValue, ...]:
    """Return what the operations compute, the most bytes first."""
    alike = [_fields(program, value) for value in _results(program.graph)]
    rows = {id(fields): PropagatedValue(**fields) for fields in program.fields.values()}
    return most_first(rows[id(fields)] for fields in alike)


def opaque(program: Propagated) -> tuple[str, ...]:
    """Return the operations on sharded values that have no rule, each with its line."""
    operations = filter(_is_opaque, program.graph.computing)
    return tuple(dict.fromkeys(_named_line(program, operation) for operation in operations))


def kernels(program: Propagated) -> tuple[str, ...]:
    """Return the kernels, callbacks and other calls inside of a ``shard_map``, each with its line."""
    calls = (call for call in program.graph.computing if call.name == "stablehlo.custom_call")
    return tuple(dict.fromkeys(_named_line(program, call) for call in calls if call.is_manual))


def _named_line(program: Propagated, operation: Operation) -> str:
    line = line_of(program, operation.place) or "an unknown line"
    return f"{operation.place.op or operation.name} of {line}"


def replicated(program: Propagated) -> tuple[ReplicatedValue, ...]:
    """Return the values that could be sharded over more mesh axes, the most avoidable bytes first."""
    graph = program.graph
    known: dict[Hashable, ReplicatedValue] = {}
    rows = []
    for value in (*filter(program.path, graph.values[: graph.argument_count]), *_results(graph)):
        size, path = nbytes(graph, value), program.path(value)
        is_manual = value.definer is not None and value.definer.is_manual
        if not size or value.shape is None or is_manual or (path and any(value.axes)):
            continue
        batch = batch_axes(graph, value) if path else frozenset[str]()
        names, count = _finer(graph, value.shape, value.axes, batch)
        loss = _explaining(program, value, names) if names and not path else None
        if names and (path or _is_named(graph, value, names, loss)):
            fields = _fields(program, value)
            key = path or id(fields), id(loss)
            if key not in known:
                known[key] = ReplicatedValue(
                    **{**fields, "op": "argument" if path else fields["op"]},
                    mesh_axes=names,
                    avoidable_nbytes=size - size // count,
                    loss=loss,
                    path=path,
                )
            rows.append(known[key])
    return tuple(sorted(most_first(rows), key=lambda row: -row.avoidable_nbytes * row.count))


def _is_named(graph: Graph, value: Value, names: Collection[str], loss: Loss | None) -> bool:
    """Return whether a replicated value is more than a consequence of a choice that is named elsewhere.

    A form of an argument is its consequence, and so is what operations compute of replicated values, the
    sums over the devices of a sharded dimension, and what follows a constraint. Named is what an
    operation without a rule makes of sharded values; what one makes of nothing, unless a replicated
    argument has its shape, as for its gradients; what loses a mesh axis otherwise; and the gradient that
    is returned without a mesh axis of its argument.
    """
    arguments = graph.values[: graph.argument_count]
    alike = [argument.axes for argument in arguments if argument.shape == value.shape]
    if loss is None:
        if value.definer is not None and _is_opaque(value.definer):
            return True
        operands = () if value.definer is None else value.definer.operands
        is_made = all(math.prod(operand.shape or ()) < MIN_SHARD_ELEMENTS for operand in operands)
        is_new = is_made and not any(value.axes) and all(map(any, alike))
        return is_new and not is_fused(graph, value, names)
    if loss.reason != "contracted":
        return loss.reason != "constraint"
    has = (has_axis(graph, axes, name) for axes in alike for name in names)
    return is_returned(graph, value) and any(has)


@remembered
def _finer(
    graph: Graph, shape: tuple[int, ...], axes: Axes, batch: frozenset[str]
) -> tuple[tuple[str, ...], int]:
    """Return the mesh axes that should shard a value further, and the number of their devices."""
    unused = tuple(
        (name, size)
        for name, size in graph.sizes.items()
        if not (name in batch or has_axis(graph, axes, name))
    )
    further = advised_axes(shard_of(shape, axes, graph.sizes), unused)
    names = tuple(name for dim in further for name in dim)
    return names, math.prod(graph.sizes[name] for name in names)


def _explaining(program: Propagated, value: Value, names: Collection[str]) -> Loss | None:
    """Return the nearest loss of some mesh axes before a value."""
    waiting, seen = deque([value]), {value}
    while waiting and len(seen) < MOST_STEPS:
        value = waiting.popleft()
        before = [value.outer] if value.outer is not None else []
        if value.definer is not None:
            for loss in losses_of(program, value.definer):
                if program.graph.part(loss.mesh_axis).name in names:
                    return loss
            before += [] if before else value.definer.operands
        waiting += [earlier for earlier in before if earlier not in seen]
        seen.update(before)
    return None


def _fields(program: Propagated, value: Value) -> dict[str, Any]:
    """Return the fields of a value that an operation computes. Those of equal ones are one object."""
    place, definer, axes = where(program, value.place), value.definer, origins_of(program, value)
    manual = () if definer is None else definer.manual_here
    key = (
        *(value.shape, value.dtype, value.axes, value.place.op, *map(id, axes), manual, value.varying),
        *(id(place["origin"]), place["columns"], place["phase"]),
    )
    if key not in program.fields:
        sizes = program.graph.sizes
        program.fields[key] = {
            "shape": value.shape,
            "dtype": value.dtype,
            "spec": Spec(value.axes),
            "nbytes": nbytes(program.graph, value),
            "op": value.place.op,
            "axes": axes,
            "in_shard_map": definer is not None and definer.is_manual,
            "manual_axes": MeshAxes(manual, tuple(map(sizes.__getitem__, manual))) if manual else None,
            "invariant_axes": None
            if value.varying is None
            else tuple(name for name in manual if name not in value.varying),
            **place,
        }
    return program.fields[key]


@remembered
def _results(graph: Graph) -> list[Value]:
    """Return what the operations of the user compute: of those into which JAX divides one, the last."""
    values: list[Value] = []
    for operation in graph.computing:
        users = [user for result in operation.results for user in graph.users(result)]
        inside = [
            user
            for user in users
            # Equal operations of one line in a row have one place, too.
            if user.place is operation.place
            and user.name != operation.name
            and not user.name.startswith("sdy.")
        ]
        if not users or len(inside) < len(users):
            values += (result for result in operation.results if result.shape is not None)
    return values


def is_uneven(graph: Graph, value: Value) -> bool:
    """Return whether a sharded dimension is empty, does not divide, or has a part of a mesh axis."""
    counts = [math.prod(graph.part(name).size for name in names) for names in value.axes]
    has_parts = any(name not in graph.sizes for names in value.axes for name in names)
    shards = zip(value.shape or (), counts, strict=False)
    return has_parts or any(dim % count or (not dim and count > 1) for dim, count in shards)


def _is_opaque(operation: Operation) -> bool:
    """Return whether sharded values go into an operation without a rule, and none comes out."""
    given, made = (
        any(any(value.axes) for value in values) for values in (operation.operands, operation.results)
    )
    return operation.rule is None and given and not made


_REARRANGED = (
    "XLA rearranges the program before it propagates: near a conflict, a loss or a call, it may choose"
    " another sharding. print_program shows those of the compiled program."
)
_PARTS = "JAX returns an output whose dimension is empty or does not divide by its mesh axes as P()."


def propagation_report(
    f: Any,
    /,
    *args: Any,
    ignore_codes: str | Iterable[str] = (),
    min_nbytes: int | str = MIN_NBYTES,
    **kwargs: Any,
) -> PropagationReport:
    """Return why each value of a program is sharded as it is: its origins, conflicts and lost mesh axes.

    The function is traced and lowered, and Shardy propagates the shardings of its arguments, outputs and
    constraints. Nothing is compiled, run, allocated or donated, and the mesh can be an AbstractMesh of any
    size: no devices are needed. Shardy runs in a process of its own.

    Args:
        f: A jitted or plain function; or a ``jax.stages.Traced`` or ``Lowered``, without arguments.
        *args: Arguments of the function: arrays or ShapeDtypeStructs.
        ignore_codes: Codes of findings to leave out, such as ``"JAI301"``.
        min_nbytes: Bytes per device, or a size such as ``"1MiB"``, below which replicated values are no
            finding. 0 accepts none.
        **kwargs: Keyword arguments of the function.

    Raises:
        UnsupportedValueError: (a ValueError) Before JAX 0.10.1, or if ``jax_use_shardy_partitioner`` is off;
            or if ``f`` is neither a function nor a stage that can be lowered, or another argument is invalid.

    An error of the function itself is raised unchanged. If Shardy fails, ``reason`` of the report tells why.

    >>> import jax, jax.numpy as jnp
    >>> report = propagation_report(lambda x: x @ x.T, jax.ShapeDtypeStruct((64, 32), jnp.float32))
    >>> report.answer
    'nothing is sharded: there is no mesh'
    """
    lines, codes = UserLines(has_code=True), known_codes(ignore_codes)
    least = as_nbytes("min_nbytes", min_nbytes)
    values = array_leaves(args, kwargs)
    require_shardy()
    start()
    stages, platform = lowered_for_propagation(stages_of(f, args, kwargs), values)
    places = [] if stages.traced else map(read_place, argument_locations(stages.lowered))
    labels = [place.name or None for place in places]
    given, returned = argument_leaves(stages, values, labels), output_leaves(stages)
    given, returned = with_object_keys(f, args, kwargs, given, returned)
    arguments, outputs = argument_values(given, None), output_values(returned, None)
    name = program_name(f"module @{stages.traced.fun_name if stages.traced else module_name(stages.lowered)}")
    mesh = next((leaf.asked.mesh for leaf in (*arguments, *outputs) if leaf.asked and leaf.asked.mesh), None)
    try:
        program = propagated(stages.lowered, arguments, outputs, lines)
    except NoAnswerError as error:
        return PropagationReport(
            name=name,
            mesh=mesh,
            device_count=1 if mesh is None else math.prod(mesh.sizes),
            platform=platform,
            arguments=tuple(_requested_leaf(leaf, "argument") for leaf in arguments),
            outputs=tuple(_requested_leaf(leaf, "output") for leaf in outputs),
            reason=str(error),
            ignored_codes=codes,
            min_nbytes=least,
        )
    graph = program.graph
    if mesh is None and graph.sizes:
        mesh = MeshAxes(tuple(graph.sizes), tuple(graph.sizes.values()))
    inside = iter(graph.values[graph.argument_count - sum(not leaf.is_pruned for leaf in arguments) :])
    results = results_of(graph, len(outputs))
    excluding, lost = conflicts(program), lost_axes(program)
    return PropagationReport(
        name=name,
        mesh=mesh,
        device_count=1 if mesh is None else math.prod(mesh.sizes),
        platform=platform,
        arguments=tuple(
            _leaf(leaf, None if leaf.is_pruned else next(inside, None), program) for leaf in arguments
        ),
        outputs=tuple(_leaf(leaf, value, program) for leaf, value in zip(outputs, results, strict=True)),
        values=propagated_values(program),
        conflicts=excluding,
        lost=lost,
        replicated=replicated(program),
        lost_batches=lost_batches(program),
        caveats=(
            *([_REARRANGED] if excluding or lost or graph.stops_at_call else []),
            *([_PARTS] if any(is_uneven(graph, value) for value in graph.outputs) else []),
            *(f"{kernel} is opaque: it runs on shards inside a shard_map." for kernel in kernels(program)),
        ),
        unread=opaque(program),
        ignored_codes=codes,
        min_nbytes=least,
    )


def propagated(
    lowered: Any,
    arguments: Sequence[ProgramValue],
    outputs: Sequence[ProgramValue],
    lines: UserLines,
    edits: Sequence[Any] = (),
) -> Propagated:
    """Return a lowered program after Shardy's propagation.

    Args:
        lowered: A ``jax.stages.Lowered``.
        arguments: Its arguments, with the pruned ones.
        outputs: Its outputs.
        lines: The search for the user's line.
        edits: Edits that are made before, as ``module_edits.py`` has them.

    Raises:
        NoAnswerError: If Shardy gives no answer.
    """
    graph = read_graph(ask_edited(module_bytecode(lowered), edits))
    kept, returned = (
        [Named(leaf.path, _requested(leaf)) for leaf in leaves if not leaf.is_pruned]
        for leaves in (arguments, outputs)
    )
    # Tokens and hoisted constants come first.
    return Propagated(
        graph,
        [*[Named()] * (graph.argument_count - len(kept)), *kept],
        [*[Named()] * (len(graph.outputs) - len(returned)), *returned],
        lines,
    )


def results_of(graph: Graph, count: int) -> list[Value | None]:
    """Return the values that the program returns, with the shardings that they are returned with.

    Args:
        graph: The program.
        count: Number of outputs. A value that the program lacks is None.
    """
    results = graph.outputs[max(len(graph.outputs) - count, 0) :]  # no tokens
    return [*results, *[None] * (count - len(results))]


def _requested(leaf: ProgramValue) -> Axes:
    """Return the mesh axes that the user requested."""
    return leaf.asked.spec.axes if leaf.asked and leaf.asked.spec else ()


def _requested_leaf(leaf: ProgramValue, kind: OriginKind | None = None) -> PropagatedLeaf:
    """Return an argument or an output as it is requested; without its sharding if no kind is given."""
    axes = _requested(leaf) if kind is not None else ()
    return PropagatedLeaf(
        path=leaf.path,
        shape=leaf.shape,
        dtype=leaf.dtype,
        bits=leaf.bits,
        spec=leaf.asked.spec if leaf.asked and kind is not None else None,
        nbytes=leaf.nbytes,
        axes=tuple(AxisOrigin(mesh_axis=name, kind=kind, path=leaf.path) for names in axes for name in names),
    )


def _leaf(leaf: ProgramValue, value: Value | None, program: Propagated) -> PropagatedLeaf:
    """Return an argument or an output; as it is requested if the program lacks it."""
    plain = _requested_leaf(leaf)
    if value is None:
        return plain
    size, origins = nbytes(program.graph, value), origins_of(program, value)
    return replace(plain, spec=Spec(value.axes), nbytes=size, axes=origins)


def at_line(report: PropagationReport, line: str) -> PropagationReport:
    """Return a report with what is about one line, or one argument or output, alone.

    Args:
        report: The report.
        line: The line, such as ``model.py:42``, or a path, such as ``params/wi`` or ``outputs``.

    Raises:
        UnsupportedValueError: (a ValueError) If the report has no such line and no such path.
    """
    text = plain_text(line)
    chosen = replace(
        report,
        arguments=tuple(leaf for leaf in report.arguments if leaf.path == text),
        outputs=tuple(leaf for leaf in report.outputs if leaf.path == text),
        values=tuple(value for value in report.values if _is_at(value.origin, text)),
        conflicts=tuple(
            conflict
            for conflict in report.conflicts
            if _is_at(conflict.origin, text) or any(operand.name == text for operand in conflict.operands)
        ),
        lost=tuple(
            loss
            for loss in report.lost
            if _is_at(loss.origin, text) or _is_at(loss.constraint, text) or loss.operand == text
        ),
        replicated=tuple(value for value in report.replicated if _is_at(value.origin, text)),
        lost_batches=tuple(
            row
            for row in report.lost_batches
            if _is_at(row.origin, text) or _is_at(row.loop, text) or row.path == text
        ),
    )
    if chosen.arguments or chosen.outputs or chosen.values or chosen.conflicts or chosen.lost:
        return chosen
    places = {value.origin.place for value in report.values if value.origin is not None}
    known = [*sorted(places), *(leaf.path for leaf in (*report.arguments, *report.outputs))]
    near = difflib.get_close_matches(text, known, 5, 0.5) or known[:5]
    raise UnsupportedValueError(
        f"the program has no line and no argument or output {text!r}: there are {', '.join(near)}"
    )


def _is_at(origin: Origin | None, text: str) -> bool:
    """Return whether a line is the one in a text, which can have the folders of the file."""
    if origin is None:
        return False
    return text in (origin.place, f"{origin.file}:{origin.line}") or f"{origin.file}:{origin.line}".endswith(
        f"/{text}"
    )


def assert_no_conflict(
    report: PropagationReport, *, mesh_axis: str | None = None, min_nbytes: int | str = 0
) -> None:
    """Raise CheckError if operands of an operation are sharded in ways that exclude each other.

    What is unknown fails the assertion: a program for which Shardy gave no answer, parts that were not
    understood, and conflicts of an unknown number of bytes.

    Args:
        report: A report from ``propagation_report``.
        mesh_axis: Mesh axis. If given, only conflicts over this axis count, also over a part of it, or
            between it and another axis.
        min_nbytes: Bytes per device of the smallest operand, or of the values that follow, from which a
            conflict counts.

    Raises:
        CheckError: (an AssertionError) If there are any. The message lists each with its bytes and line, and
            the number of those below ``min_nbytes``.
        UnsupportedValueError: (a ValueError) If the mesh of the program has no such axis, or ``min_nbytes``
            is not an integer or a size.

    A gather of weights that are sharded over the axis of the batch, as in FSDP, is a conflict.

    >>> from jax_array_info.reports import PropagationReport
    >>> assert_no_conflict(PropagationReport(name="step", platform="tpu"))
    """
    __tracebackhide__ = True  # pytest then shows the line of the test
    require_report(report, PropagationReport)
    names = report.mesh.names if report.mesh is not None else ()
    if mesh_axis is not None and report.mesh is not None and mesh_axis not in names:
        known = ", ".join(map(repr, names))
        raise UnsupportedValueError(f"{mesh_axis!r} is not a mesh axis: the mesh has {known}")
    least = as_nbytes("min_nbytes", min_nbytes)
    over = [row for row in report.conflicts if mesh_axis is None or mesh_axis in row.mesh_axes]
    small = [row for row in over if row.cost_nbytes is not None and row.cost_nbytes < least * row.count]
    lines = [
        *([report.answer] if report.reason is not None else []),
        *(f"not understood: {operation}" for operation in report.unread),
        *(_words(row) for row in over if row not in small),
    ]
    if not lines:
        return
    if small:
        number = counted(sum(row.count for row in small), "conflict", "conflicts")
        size = format_bytes(sum(row.cost_nbytes or 0 for row in small))
        lines.append(f"not counted, below {least:,} bytes each: {number}, {size}")
    what = "" if mesh_axis is None else f" over mesh axis {mesh_axis!r}"
    problem = f"conflicts{what} in {report.name}:"
    raise CheckError("\n".join(map(printable, [problem, *(f"- {line}" for line in lines)])), report)


def _words(conflict: Conflict) -> str:
    """Return a conflict in one line."""
    size = "unknown bytes" if conflict.cost_nbytes is None else format_bytes(conflict.cost_nbytes)
    times = "" if conflict.count == 1 else f" ×{conflict.count}"
    operands = ", ".join(
        f"{operand.name} {operand.spec} ({operand.letter}: {operand.axis_origin})"
        for operand in conflict.operands
    )
    line = f", {conflict.origin}" if conflict.origin else ""
    return f"{conflict.mesh_axis}: {conflict.op} {conflict.rule}{times}: {size}: {operands}{line}"
