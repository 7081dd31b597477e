"""Costs of a compiled program, by parameter or by named scope."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from ..base.errors import UnsupportedValueError, require
from ..base.grouping import by_key
from ..base.quantities import counted, format_bytes, known_sum
from ..facts.pages.folds import folded
from ..facts.reports.layers import (
    FLOPS_CAVEATS,
    CostShare,
    Grouping,
    LayerRow,
    LayersReport,
    Parameter,
)
from ..facts.reports.program import ProgramReport, unknown_bytes
from ..facts.reports.program_values import ProgramValue, uncounted_words
from ..trees.files import read_report
from .program_report import program_report

_SENT = ("forward_sent_nbytes", "backward_sent_nbytes", "reduced_nbytes")
_FLOPS = ("forward_flops", "backward_flops", "recomputed_flops")
_COSTS = (*_SENT, "unknown_count", *_FLOPS, "saved_nbytes")
_REST = {"parameter": "not of a parameter", "scope": "in no scope"}
_OLDER = "What is sent, computed and saved is not divided in this report: an older version made it."
_NO_PARAMETER = (
    "No parameter was found: pass the weights that products read as an argument of their own, without data, "
    "and return their gradients or updates with the same keys."
)
_NO_GRADIENT = (
    "Gradients are not of a parameter here, because no output was found to be one or an update from one: "
    "return the gradients or the updated parameters, with the same keys."
)


def layers_report(
    f: Any,
    /,
    *args: Any,
    by: Grouping = "parameter",
    topology: str | None = None,
    dcn: Mapping[str, int] | None = None,
    explain: bool = True,
    **kwargs: Any,
) -> LayersReport:
    """Return what each parameter of a compiled function costs: bytes held, sent and saved, and FLOPs.

    The function is compiled as in ``program_report``. Nothing runs. Each figure of that report is divided, so
    that the rows and ``rest`` add up to it. Bytes held add up to those of the arguments, without the padding
    of XLA, which a caveat names.

    - Bytes sent belong to a parameter if its shards are gathered, or if its gradient is summed.
    - FLOPs belong to a parameter if a product reads it and no other one, or computes its gradient.
    - Bytes that a line saves for the backward pass belong to the parameters that this line multiplies by.

    Parameters whose paths differ only in indices, with one dtype, shape and sharding, share a row.

    A function with an argument that is called as one of the options itself is given as a
    ``functools.partial``.

    Args:
        f: A jitted or plain function; or a ``jax.stages.Traced``, ``Lowered`` or ``Compiled``, without
            arguments; or a ``ProgramReport``, or the path of one that was saved, alone.
        *args: Arguments of the function: arrays or ShapeDtypeStructs.
        by: ``"parameter"``, or ``"scope"`` for the names of ``jax.named_scope`` that linen, Haiku and
            Equinox set, and nnx does not.
        topology: TPU or GPU topology to compile for, as in ``program_report``. None compiles for the devices
            of the arguments.
        dcn: Number of slices along each mesh axis that spans the slices of ``topology``.
        explain: Whether Shardy propagates the shardings once more, in a process of its own. Without it, the
            bytes that are saved for the backward pass are not known.
        **kwargs: Keyword arguments of the function.

    Raises:
        UnsupportedValueError: (a ValueError) If ``f`` is neither a function nor a stage nor the report of a
            program, or has its arguments already; or if ``by`` is something else.
        TopologyError: (a ValueError) If the topology does not exist, has another number of devices than
            the mesh, or needs a package that is not installed.
        FileFormatError: (a ValueError) If a file is not a report.
        OSError: If a file cannot be read.

    An error of the function itself, or of its compilation, is raised unchanged.

    >>> import jax, jax.numpy as jnp
    >>> def loss(params, x):
    ...     return jnp.sum(jax.nn.relu(x @ params["wi"]) @ params["wo"])
    >>> w = jax.ShapeDtypeStruct((32, 32), jnp.float32)
    >>> report = layers_report(jax.grad(loss), {"wi": w, "wo": w}, jax.ShapeDtypeStruct((8, 32), jnp.float32))
    >>> [row.name for row in report.rows], report.total.parameter_count
    (['params/wi', 'params/wo'], 2048)
    """
    if by not in get_args(Grouping):
        raise UnsupportedValueError(f"by must be 'parameter' or 'scope', got {by!r}")
    if isinstance(f, str | os.PathLike):
        path, f = os.fspath(f), read_report(f)
        require(f, ProgramReport, f"the report of a program in {path}")
    if not isinstance(f, ProgramReport):
        return _layers(program_report(f, *args, topology=topology, dcn=dcn, explain=explain, **kwargs), by)
    if args or kwargs or topology or dcn or not explain:
        raise UnsupportedValueError("a ProgramReport has its arguments: remove the others")
    return _layers(f, by)


def _layers(report: ProgramReport, by: Grouping) -> LayersReport:
    """Return the costs of a program.

    By scope, a parameter is in that of its products, or without any, of its other costs, if they have one
    alone.
    """
    # Only a report that was written by hand has parameters that are no arguments, or without sizes.
    values = {one.path: one for one in report.arguments if all(isinstance(dim, int) for dim in one.shape)}
    parameters = [parameter for parameter in report.parameters or () if parameter.path in values]
    shares = report.costs or ()
    labels: dict[str, Any] = {parameter.path: _kind(values[parameter.path]) for parameter in parameters}
    scoped = by_key((path, share) for share in shares if share.scope for path in share.parameters)
    if by == "scope":
        labels = {share.scope: None for share in shares if share.scope}
    groups = folded([*labels], lambda label: labels[label], str)
    numbers = {label: number for number, (_, alike) in enumerate(groups) for label in alike}

    def number_of(share: CostShare) -> int | None:
        return _single(
            numbers.get(label) for label in ((share.scope,) if by == "scope" else share.parameters)
        )

    def number_of_parameter(path: str) -> int | None:
        used = scoped.get(path, ())
        return (
            numbers.get(path)
            if by == "parameter"
            else _single(map(number_of, [share for share in used if share.forward_flops] or used))
        )

    members = by_key((number_of_parameter(parameter.path), parameter) for parameter in parameters)
    costs = by_key((number_of(share), share) for share in shares)
    names: dict[int | None, str] = {number: name for number, (name, _) in enumerate(groups)}
    names[None] = _REST[by]
    *rows, rest = (
        _row(name, members.get(number, ()), costs.get(number, ()), values, _unknown(report))
        for number, name in names.items()
    )
    return LayersReport(
        name=report.name,
        origin=report.origin,
        mesh=report.mesh,
        device_count=report.device_count,
        platform=report.platform,
        topology=report.topology,
        by=by,
        rows=tuple(rows),
        rest=replace(rest, parameter_nbytes=_other_nbytes(report, rows, rest)),
        caveats=_caveats(report, by),
    )


def _single(numbers: Iterable[int | None]) -> int | None:
    """Return the number if all are the same; None if there are others, or none."""
    different = set(numbers)
    return different.pop() if len(different) == 1 else None


def _kind(value: ProgramValue) -> tuple[Any, ...]:
    """Return what parameters of one row have in common."""
    return value.dtype, value.shape, value.got or value.asked


def _row(
    name: str,
    parameters: Sequence[Parameter],
    shares: Sequence[CostShare],
    values: Mapping[str, ProgramValue],
    unknown: Sequence[str],
) -> LayerRow:
    """Return the row of some parameters and of some shares of the costs.

    Args:
        name: Name of the row.
        parameters: Its parameters.
        shares: Its shares.
        values: The arguments, by path.
        unknown: Fields of costs that are not known.
    """
    leaves = [values[parameter.path] for parameter in parameters]
    kinds = set(map(_kind, leaves))
    dtype, shape, sharding = kinds.pop() if len(kinds) == 1 else (None, None, None)
    moments = [values[path] for one in parameters for path in one.moments if path in values]
    gradients = [one.gradient_nbytes for one in parameters if one.gradient_nbytes is not None]
    return LayerRow(
        name=name,
        paths=tuple(parameter.path for parameter in parameters),
        dtype=dtype,
        shape=shape,
        sharding=sharding,
        parameter_count=sum(math.prod(map(int, leaf.shape)) for leaf in leaves),
        parameter_nbytes=known_sum(map(_device_nbytes, leaves)),
        moment_nbytes=known_sum(map(_device_nbytes, moments)),
        gradient_nbytes=sum(gradients) if gradients else None,
        **{field: sum(getattr(share, field) for share in shares) for field in _COSTS}
        | dict.fromkeys(unknown),
    )


def _device_nbytes(value: ProgramValue) -> int | None:
    """Return the bytes of an argument in the memory of a device."""
    return 0 if value.is_pruned or value.is_in_host_memory else value.nbytes


def _unknown(report: ProgramReport) -> list[str]:
    """Return the fields of costs that the report of a program does not have."""
    saved = None if report.memory is None else report.memory.saved
    known = (
        (report.sent is not None, _SENT),
        (report.known_dot_flops is not None, _FLOPS),
        (saved is not None and saved.nbytes is not None, ("saved_nbytes",)),
    )
    return [field for is_known, fields in known for field in fields if report.costs is None or not is_known]


def _other_nbytes(report: ProgramReport, rows: Sequence[LayerRow], rest: LayerRow) -> int | None:
    """Return the bytes of the arguments that are in no row, without padding where their sizes are known.

    The moments of the rest are not among them, its parameters are.
    """
    whole = known_sum(map(_device_nbytes, report.arguments))
    if whole is None and report.memory is not None:
        whole = report.memory.argument_nbytes
    inside = sum(filter(None, (*(row.held_nbytes for row in rows), rest.moment_nbytes)))
    return None if whole is None else max(whole - inside, 0)


def _padding(report: ProgramReport) -> str:
    """Return the words on the bytes by which XLA pads the arguments; empty without any."""
    whole = None if report.memory is None else report.memory.argument_nbytes
    sizes = known_sum(map(_device_nbytes, report.arguments))
    if whole is None or sizes is None or whole <= sizes:
        return ""
    tiles = ": TPU stores arrays in tiles" if report.platform == "tpu" else ""
    return f"without {format_bytes(whole - sizes)} by which XLA pads the arguments{tiles}"


def _unfound(report: ProgramReport) -> str:
    """Return the words on parameters or gradients that are not found in a program; empty if they are."""
    if report.parameters is None or report.costs is None or not report.arguments:
        return ""
    if not report.parameters:
        return _NO_PARAMETER
    saved = None if report.memory is None else report.memory.saved
    passes = (*_SENT[1:], *_FLOPS[1:])
    is_backward = bool(saved and saved.nbytes) or any(
        getattr(share, field) for share in report.costs for field in passes
    )
    return _NO_GRADIENT if is_backward and not any(one.is_trained for one in report.parameters) else ""


def _caveats(report: ProgramReport, by: Grouping) -> tuple[str, ...]:
    """Return what the figures lack, and why."""
    of_all, of_some = FLOPS_CAVEATS
    totals = report.dot_totals if report.dot_flops is None else None
    on_host = 0 if report.memory is None else report.memory.host_argument_nbytes or 0
    lines = counted(len(report.unread or ()), "line", "lines")
    is_older = report.is_known and report.costs is None and not report.lacks("costs")
    facts = (
        report.reason,
        report.out_of_memory and report.out_of_memory.answer,
        is_older and _OLDER,
        report.first_call,
        *(f"+ ?: {reason}" for reason in unknown_bytes(report)),
        by == "parameter" and _unfound(report),
        totals and f"{of_all}{totals.words}",
        *(f"{of_some}{words}" for words in uncounted_words(report.uncounted_flops or ())),
        report.unread and f"without {lines} of the program that could not be read",
        on_host and f"without {format_bytes(on_host)} of arguments in host memory",
        _padding(report),
        *report.caveats,
    )
    return tuple(fact for fact in facts if isinstance(fact, str) and fact)
