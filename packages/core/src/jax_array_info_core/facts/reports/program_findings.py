"""Findings about compiled programs and logs, from the facts of their reports."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ...base.grouping import by_key
from ...base.quantities import counted, format_bytes, known_sum
from ...geometry.layouts.dtypes import bits_of_name, packed_nbytes
from ...geometry.layouts.spec import MeshAxes, shard_dims
from .codes import FindingKind
from .collectives import Collective
from .findings import Finding, FindingLeaf, most_first
from .program_values import Constraint, Donation, ProgramValue


def not_handed_out(reason: str | None) -> Iterator[Finding]:
    """Yield the finding on a program that is not known, if there is a reason."""
    if reason is not None:
        yield Finding(
            kind="unread lines",
            problem=f"{reason[:1].upper()}{reason[1:]}: what it sends, its memory and its FLOPs are unknown.",
            remedy="Compile the function for CPU devices, or for a topology of TPUs or GPUs.",
        )


def lost_axes(values: Sequence[ProgramValue]) -> Iterator[Finding]:
    """Yield the finding on outputs with fewer mesh axes than their arguments, if there are any."""
    if not values:
        return
    axes = tuple(dict.fromkeys(name for value in values for name in value.lost_axes))
    outputs = counted(len(values), "output is", "outputs are")
    arguments = (
        "the argument that it replaces is" if len(values) == 1 else "the arguments that they replace are"
    )
    leaves = tuple(_leaf(value, value.reason or _like_words(value)) for value in values)
    sent = known_sum(value.lost_sent_nbytes for value in values) or None
    yield Finding(
        kind="lost mesh axes",
        problem=(
            f"{outputs} replicated over {', '.join(axes)}; {arguments} sharded over {_them(axes)}."
            f"{_sent_words(sent)}"
        ),
        remedy=(
            "Request the sharding of the argument: with out_shardings of jax.jit, or with "
            "jax.lax.with_sharding_constraint where the output is made."
        ),
        nbytes=_sum(leaves),
        sent_nbytes=sent,
        leaves=leaves,
        mesh_axes=axes,
    )


def lost_gradients(constraints: Sequence[Constraint], collectives: Iterable[Collective]) -> Iterator[Finding]:
    """Yield the finding on gradients that are requested with fewer mesh axes than their parameters.

    Args:
        constraints: The constraints of such gradients.
        collectives: The collectives of the program.
    """
    if not constraints:
        return
    leaves = most_first(map(_gradient, constraints))
    lines = {leaf.origin for leaf in leaves}
    gathers = (
        collective.total_nbytes
        for collective in collectives
        if collective.because
        and all(reason.kind == "constraint" and reason.origin in lines for reason in collective.because)
    )
    sent = known_sum(gathers) or None
    axes = tuple(dict.fromkeys(name for constraint in constraints for name in constraint.lost_axes))
    count = sum(constraint.count for constraint in constraints)
    yield Finding(
        kind="lost mesh axes",
        problem=(
            f"{counted(count, 'gradient is', 'gradients are')} requested replicated over {', '.join(axes)}; "
            f"the {'parameter is' if count == 1 else 'parameters are'} sharded over {_them(axes)}."
            f"{_sent_words(sent)}"
        ),
        remedy="Constrain each gradient to the sharding of its parameter.",
        nbytes=leaves[0].nbytes,
        sent_nbytes=sent,
        leaves=leaves,
        mesh_axes=axes,
    )


def _gradient(constraint: Constraint) -> FindingLeaf:
    """Return a gradient, with the bytes of a device that the sharding of its parameter would save."""
    spec, mesh = constraint.asked.spec, constraint.asked.mesh
    saved = None
    if spec is not None and mesh is not None:
        nbytes = packed_nbytes(shard_dims(constraint.shape, spec, mesh.shape), bits_of_name(constraint.dtype))
        parts = math.prod(mesh.shape.get(name, 1) for name in constraint.lost_axes)
        saved = None if nbytes is None else nbytes - nbytes // parts
    return replace(_constraint(constraint), nbytes=saved)


def moments(values: Sequence[ProgramValue], mesh: MeshAxes | None) -> Iterator[Finding]:
    """Yield the finding on optimizer state with fewer mesh axes than its parameters, if there is any."""
    if not values or mesh is None:
        return
    sizes = mesh.shape
    parts = [math.prod(sizes.get(name, 1) for name in value.lost_axes) for value in values]
    pairs = [(value.nbytes or 0, part) for value, part in zip(values, parts, strict=True)]
    now, then = sum(nbytes for nbytes, _ in pairs), sum(nbytes // part for nbytes, part in pairs)
    sent = known_sum(value.lost_sent_nbytes for value in values) or None
    leaves = counted(len(values), "argument has", "arguments have")
    yield Finding(
        kind="moments",
        problem=(
            f"{leaves} fewer mesh axes than the parameter with the same path: {format_bytes(now)} per "
            f"device, {format_bytes(then)} if sharded like it.{_sent_words(sent)}"
        ),
        remedy=(
            "Give the optimizer state the shardings of its parameters: in the call that creates it, and in "
            "out_shardings and sharding constraints."
        ),
        nbytes=now - then,
        sent_nbytes=sent,
        leaves=most_first(_leaf(value, value.reason or _like_words(value)) for value in values),
        mesh_axes=tuple(dict.fromkeys(name for value in values for name in value.lost_axes)),
    )


def _sent_words(nbytes: int | None) -> str:
    return "" if nbytes is None else f" Gathering sends {format_bytes(nbytes)} per device and call."


def _like_words(value: ProgramValue) -> str:
    return f"{value.like or 'its argument'} is sharded over {', '.join(value.lost_axes)}"


def not_as_requested(values: Sequence[ProgramValue]) -> Iterator[Finding]:
    """Yield the finding on values with another sharding than requested, if there are any."""
    if values:
        leaves = tuple(_leaf(value, value.reason or "") for value in values)
        yield Finding(
            kind="not as requested",
            problem=f"{counted(len(values), 'value has', 'values have')} another sharding than requested.",
            remedy="Request a sharding whose mesh axes divide the shape, or the one that the value has.",
            nbytes=_sum(leaves),
            leaves=leaves,
        )


def constrained(
    constraints: Sequence[Constraint],
    *,
    kind: FindingKind,
    problem: str,
    nouns: tuple[str, str],
    remedy: str,
) -> Iterator[Finding]:
    """Yield the finding on some sharding constraints, if there are any.

    Args:
        constraints: The constraints.
        kind: Kind of the finding.
        problem: The problem, with ``{}`` for their number.
        nouns: What follows this number: of one, and of several.
        remedy: The remedy.
    """
    if constraints:
        yield Finding(
            kind=kind,
            problem=problem.format(counted(sum(constraint.count for constraint in constraints), *nouns)),
            remedy=remedy,
            leaves=tuple(map(_constraint, constraints)),
        )


def changed(moved: Sequence[ProgramValue], arguments: Iterable[ProgramValue]) -> Iterator[Finding]:
    """Yield the finding on outputs that replace arguments with another sharding, if there are any."""
    if not moved:
        return
    given = {argument.path: argument.got for argument in arguments}
    returns = counted(len(moved), "argument returns", "arguments return")
    yield Finding(
        kind="changed sharding",
        problem=f"{returns} with another sharding: the next call compiles again.",
        remedy="Set out_shardings to the shardings of the arguments, or pass the arguments as they return.",
        leaves=tuple(
            FindingLeaf(
                path=value.replaces or "",
                shape=value.shape,
                dtype=value.dtype,
                nbytes=value.nbytes,
                change=(
                    f"passed as {given.get(value.replaces or '') or 'unknown'}, "
                    f"returned as {value.got or 'unknown'}"
                ),
                origin=value.lost_at,
            )
            for value in moved
        ),
    )


def shared(donations: Sequence[Donation]) -> Iterator[Finding]:
    """Yield the finding on donated arguments that share a buffer, if there are any."""
    if donations:
        arguments = counted(len(donations), "donated argument", "donated arguments")
        verb = "shares" if len(donations) == 1 else "share"
        leaves = [
            (donation, f"shares its buffer with {', '.join(donation.shares_with)}") for donation in donations
        ]
        yield Finding(
            kind="shared donation",
            problem=f"A call fails: {arguments} {verb} a buffer with another argument.",
            remedy="Pass jax.numpy.copy of all but one of the arguments that share it.",
            leaves=most_first(
                FindingLeaf(path=donation.path, shape=(), dtype="", nbytes=donation.nbytes, remedy=reason)
                for donation, reason in leaves
            ),
        )


def unused(donations: Sequence[Donation]) -> Iterator[Finding]:
    """Yield the finding on donated arguments whose memory is not reused, if there are any."""
    if donations:
        nbytes = sum(donation.nbytes for donation in donations)
        arguments, it = counted(len(donations), "argument", "arguments"), _them(donations)
        yield Finding(
            kind="unused donation",
            problem=f"Donating {arguments} of {format_bytes(nbytes)} per device saves no memory.",
            remedy=f"Do not donate {it}, or return outputs of the same shape, dtype and sharding.",
            nbytes=nbytes,
            leaves=most_first(
                FindingLeaf(
                    path=donation.path,
                    shape=(),
                    dtype="",
                    nbytes=donation.nbytes,
                    remedy=donation.reason or "not reused, for an unknown reason",
                )
                for donation in donations
            ),
        )


def missing(donatable: Sequence[Donation]) -> Iterator[Finding]:
    """Yield the finding on arguments whose memory outputs could reuse, if there are any."""
    if not donatable:
        return
    nbytes = sum(donation.nbytes for donation in donatable)
    by_argument = by_key((donation.path.partition("/")[0], donation) for donation in donatable)
    yield Finding(
        kind="missing donation",
        problem=f"Outputs could reuse {format_bytes(nbytes)} per device of arguments that are not donated.",
        remedy="Add the arguments to donate_argnames of jax.jit, if no code uses them after the call.",
        nbytes=nbytes,
        leaves=most_first(
            FindingLeaf(
                path=path,
                shape=(),
                dtype="",
                nbytes=sum(donation.nbytes for donation in ones),
                type_name=counted(len(ones), "leaf", "leaves"),
            )
            for path, ones in by_argument.items()
        ),
    )


def _leaf(value: ProgramValue, reason: str) -> FindingLeaf:
    """Return a value with the sharding that it has, and the requested one if there is one."""
    requested = "" if value.asked is None else f"requested {value.asked}, "
    return FindingLeaf(
        path=value.path,
        shape=value.shape,
        dtype=value.dtype,
        bits=value.bits,
        nbytes=value.nbytes,
        change=f"{requested}{'got ' if requested else ''}{value.got or 'unknown'}",
        remedy=reason,
        origin=value.lost_at,
    )


def _constraint(constraint: Constraint) -> FindingLeaf:
    return FindingLeaf(
        path="",
        shape=constraint.shape,
        dtype=constraint.dtype,
        change=f"requested {constraint.asked}",
        remedy=constraint.reason or "",
        origin=constraint.origin,
        count=constraint.count,
    )


def _sum(leaves: Iterable[FindingLeaf]) -> int | None:
    """Return the bytes of leaves; None if none of them is known."""
    known = [leaf.nbytes for leaf in leaves if leaf.nbytes is not None]
    return sum(known) if known else None


def _them(things: Sequence[object]) -> str:
    return "it" if len(things) == 1 else "them"
