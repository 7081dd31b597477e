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
from .explanation import Explanation
from .graph import Axes, Graph, Value, read_place
from .helper import NoAnswerError, ask, start

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
    mesh = next((one.asked.mesh for one in (*arguments, *outputs) if one.asked and one.asked.mesh), None)
    try:
        graph, found = explanation_of(stages.lowered, arguments, outputs, lines)
    except NoAnswerError as error:
        return PropagationReport(
            name=name,
            mesh=mesh,
            device_count=1 if mesh is None else math.prod(mesh.sizes),
            platform=platform,
            arguments=tuple(_requested_leaf(one, "argument") for one in arguments),
            outputs=tuple(_requested_leaf(one, "output") for one in outputs),
            reason=str(error),
            ignored_codes=codes,
            min_nbytes=least,
        )
    if mesh is None and graph.sizes:
        mesh = MeshAxes(tuple(graph.sizes), tuple(graph.sizes.values()))
    inside = iter(graph.values[graph.argument_count - sum(not one.is_pruned for one in arguments) :])
    results = results_of(graph, len(outputs))
    conflicts, lost = found.conflicts(), found.lost()
    return PropagationReport(
        name=name,
        mesh=mesh,
        device_count=1 if mesh is None else math.prod(mesh.sizes),
        platform=platform,
        arguments=tuple(
            _leaf(one, None if one.is_pruned else next(inside, None), found) for one in arguments
        ),
        outputs=tuple(_leaf(one, value, found) for one, value in zip(outputs, results, strict=True)),
        values=found.values(),
        conflicts=conflicts,
        lost=lost,
        replicated=found.replicated(),
        caveats=(
            *([_REARRANGED] if conflicts or lost or graph.stops_at_call else []),
            *([_PARTS] if any(map(found.is_uneven, graph.outputs)) else []),
            *(f"{one} is opaque: it runs on shards inside a shard_map." for one in found.kernels()),
        ),
        unread=found.opaque(),
        ignored_codes=codes,
        min_nbytes=least,
    )


def explanation_of(
    lowered: Any, arguments: Sequence[ProgramValue], outputs: Sequence[ProgramValue], lines: UserLines
) -> tuple[Graph, Explanation]:
    """Return a lowered program after Shardy's propagation, and its explanation.

    Args:
        lowered: A ``jax.stages.Lowered``.
        arguments: Its arguments, with the pruned ones.
        outputs: Its outputs.
        lines: The search for the user's line.

    Raises:
        NoAnswerError: If Shardy gives no answer.
    """
    graph = Graph(ask(module_bytecode(lowered)))
    kept = [one for one in arguments if not one.is_pruned]
    hidden = graph.argument_count - len(kept)  # tokens and hoisted constants
    paths = [*[None] * hidden, *(one.path for one in kept)]
    requested = [*[()] * hidden, *map(_requested, kept)]
    names = [one.path for one in outputs]
    return graph, Explanation(graph, paths, requested, names, [*map(_requested, outputs)], lines)


def results_of(graph: Graph, count: int) -> list[Value | None]:
    """Return the values that the program returns, with the shardings that they are returned with.

    Args:
        graph: The program.
        count: Number of outputs. A value that the program lacks is None.
    """
    found: list[Value | None] = list(graph.outputs[max(len(graph.outputs) - count, 0) :])  # no tokens
    return found + [None] * (count - len(found))


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


def _leaf(leaf: ProgramValue, value: Value | None, found: Explanation) -> PropagatedLeaf:
    """Return an argument or an output; as it is requested if the program lacks it."""
    plain = _requested_leaf(leaf)
    if value is None:
        return plain
    return replace(plain, spec=Spec(value.axes), nbytes=found.nbytes(value), axes=found.origins(value))


def at_line(report: PropagationReport, line: str) -> PropagationReport:
    """Return a report with what is about one line, or one argument or output, alone.

    Args:
        report: The report.
        line: The line, such as ``model.py:42``, or a path, such as ``params/wi`` or ``outputs``.

    Raises:
        UnsupportedValueError: (a ValueError) If the report has no such line and no such path.
    """
    text = plain_text(line)
    found = replace(
        report,
        arguments=tuple(one for one in report.arguments if one.path == text),
        outputs=tuple(one for one in report.outputs if one.path == text),
        values=tuple(one for one in report.values if _is_at(one.origin, text)),
        conflicts=tuple(
            one
            for one in report.conflicts
            if _is_at(one.origin, text) or any(each.name == text for each in one.operands)
        ),
        lost=tuple(
            one
            for one in report.lost
            if _is_at(one.origin, text) or _is_at(one.constraint, text) or one.operand == text
        ),
        replicated=tuple(one for one in report.replicated if _is_at(one.origin, text)),
    )
    if found.arguments or found.outputs or found.values or found.conflicts or found.lost:
        return found
    places = {one.origin.place for one in report.values if one.origin is not None}
    known = [*sorted(places), *(one.path for one in (*report.arguments, *report.outputs))]
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
    over = [one for one in report.conflicts if mesh_axis is None or mesh_axis in one.mesh_axes]
    small = [one for one in over if one.nbytes is not None and one.nbytes < least]
    lines = [
        *([report.answer] if report.reason is not None else []),
        *(f"not understood: {one}" for one in report.unread),
        *(_words(one) for one in over if one not in small),
    ]
    if not lines:
        return
    if small:
        number = counted(sum(one.count for one in small), "conflict", "conflicts")
        size = format_bytes(sum((one.nbytes or 0) * one.count for one in small))
        lines.append(f"not counted, below {least:,} bytes each: {number}, {size}")
    what = "" if mesh_axis is None else f" over mesh axis {mesh_axis!r}"
    problem = f"conflicts{what} in {report.name}:"
    raise CheckError("\n".join(map(printable, [problem, *(f"- {line}" for line in lines)])), report)


def _words(one: Conflict) -> str:
    """Return a conflict in one line."""
    size = "unknown bytes" if one.nbytes is None else format_bytes(one.nbytes * one.count)
    times = "" if one.count == 1 else f" ×{one.count}"
    operands = ", ".join(
        f"{each.name} {each.spec} ({each.letter}: {each.axis_origin})" for each in one.operands
    )
    line = f", {one.origin}" if one.origin else ""
    return f"{one.mesh_axis}: {one.op} {one.rule}{times}: {size}: {operands}{line}"
