"""The report on why each value of a program is sharded as it is."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
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
from ...facts.reports.floors import MIN_NBYTES
from ...facts.reports.origin import Origin
from ...facts.reports.program_values import (
    ProgramValue,
)
from ...facts.reports.propagation import AxisOrigin, Conflict, OriginKind, PropagatedLeaf, PropagationReport
from ...geometry.layouts.notation import as_nbytes
from ...geometry.layouts.spec import MeshAxes, Spec
from .axis_origins import Named, Propagated, origins_of
from .conflicts import conflicts, lost_axes
from .graph import Axes, Graph, Value, nbytes, read_place
from .helper import NoAnswerError, ask, start
from .values import is_uneven, kernels, opaque, propagated_values, replicated
from .wire import read_graph

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
    lowered: Any, arguments: Sequence[ProgramValue], outputs: Sequence[ProgramValue], lines: UserLines
) -> Propagated:
    """Return a lowered program after Shardy's propagation.

    Args:
        lowered: A ``jax.stages.Lowered``.
        arguments: Its arguments, with the pruned ones.
        outputs: Its outputs.
        lines: The search for the user's line.

    Raises:
        NoAnswerError: If Shardy gives no answer.
    """
    graph = read_graph(ask(module_bytecode(lowered)))
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
        min_nbytes: Bytes per device of the smallest operand from which a conflict counts.

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
    small = [row for row in over if row.nbytes is not None and row.nbytes < least]
    lines = [
        *([report.answer] if report.reason is not None else []),
        *(f"not understood: {operation}" for operation in report.unread),
        *(_words(row) for row in over if row not in small),
    ]
    if not lines:
        return
    if small:
        number = counted(sum(row.count for row in small), "conflict", "conflicts")
        size = format_bytes(sum((row.nbytes or 0) * row.count for row in small))
        lines.append(f"not counted, below {least:,} bytes each: {number}, {size}")
    what = "" if mesh_axis is None else f" over mesh axis {mesh_axis!r}"
    problem = f"conflicts{what} in {report.name}:"
    raise CheckError("\n".join(map(printable, [problem, *(f"- {line}" for line in lines)])), report)


def _words(conflict: Conflict) -> str:
    """Return a conflict in one line."""
    size = "unknown bytes" if conflict.nbytes is None else format_bytes(conflict.nbytes * conflict.count)
    times = "" if conflict.count == 1 else f" ×{conflict.count}"
    operands = ", ".join(
        f"{operand.name} {operand.spec} ({operand.letter}: {operand.axis_origin})"
        for operand in conflict.operands
    )
    line = f", {conflict.origin}" if conflict.origin else ""
    return f"{conflict.mesh_axis}: {conflict.op} {conflict.rule}{times}: {size}: {operands}{line}"
