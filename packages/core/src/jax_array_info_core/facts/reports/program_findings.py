"""Findings about compiled programs and logs, from the facts of their reports."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ...base.grouping import by_key
from ...base.quantities import counted, format_bytes
from ...geometry.layouts.spec import MeshAxes
from .codes import FindingKind
from .findings import Finding, FindingLeaf, most_first
from .program_memory import OutOfMemory
from .program_values import Constraint, Donation, ProgramValue, Rematerialization

_ONE_DEVICE = re.compile(r"\{(?:maximal|single_device)\b")
"""Start of XLA's text of a sharding on one device."""
_CONSTRAIN = "Constrain the value to one of the two shardings where it is made: then none is needed."
_AS_ARGUMENT = (
    "What runs on one device, as a callback, makes a value that no constraint shards: compute it before the "
    "call, and pass it as an argument with the sharding that is needed."
)


def full_replication(
    found: Sequence[Rematerialization], mesh: MeshAxes | None, *, is_log: bool = False
) -> Iterator[Finding]:
    """Yield the finding on values that XLA replicates to reshard them, if there are any.

    Args:
        found: The values.
        mesh: The mesh of their specs.
        is_log: Whether they are those of any functions, so that names of operations keep the function.
    """
    if not found:
        return
    leaves = tuple(
        FindingLeaf(
            path=(one.op if is_log else _operation(one.op)) or "unknown operation",
            shape=one.whole_shape or one.shape,
            dtype=one.dtype,
            nbytes=one.nbytes,
            change=", ".join(filter(None, (_part(one), one.change(mesh)))),
            origin=one.origin,
            count=one.count,
        )
        for one in found
    )
    count = sum(one.count for one in found)
    largest = max((one.nbytes for one in found if one.nbytes is not None), default=None)
    # A callback runs on one device, whatever its value is constrained to.
    on_one = [bool(_ONE_DEVICE.match(one.before_text)) for one in found]
    fixes = ([_CONSTRAIN] if not all(on_one) else []) + ([_AS_ARGUMENT] if any(on_one) else [])
    yield Finding(
        kind="full replication",
        problem=(
            f"{counted(count, 'value is', 'values are')} resharded by full replication (XLA: involuntary "
            "full rematerialization): each device holds the whole array for a while"
            f"{_largest(found, largest) if count > 1 else ''}"
            f"{_sent_for(found, 'if each runs once' if is_log else 'per call')}."
        ),
        remedy=" ".join(fixes),
        nbytes=largest,
        leaves=leaves,
    )


def _largest(found: Sequence[Rematerialization], nbytes: int | None) -> str:
    """Return the bytes of the largest of several values, as far as they are known."""
    least = "at least " if any(one.nbytes is None for one in found) else ""
    return f" (the largest takes {least}{format_bytes(nbytes)})" if nbytes else ""


def _part(one: Rematerialization) -> str:
    """Return whether a shape is that of the whole value or of a shard."""
    if not one.whole_shape:
        return "the shard" if one.shape else ""
    return f"the whole of shards {one.type}"


def _sent_for(found: Sequence[Rematerialization], when: str) -> str:
    """Return the bytes that a device sends for values, as far as they are known."""
    known = [one.sent_nbytes * one.count for one in found if one.sent_nbytes is not None]
    least = "" if len(known) == len(found) else "at least "
    return f", and sends {least}{format_bytes(sum(known))} {when}" if known else ""


def _operation(name: str) -> str:
    """Return an operation in the user's words: ``layer/dot_general (backward)`` of a name that XLA prints.

    The names of transformations are left out. It is empty for a name that XLA made up.
    """
    parts = [part for part in name.split("/") if part and "(" not in part and not part.startswith("%")]
    backward = " (backward)" if "transpose(" in name else ""
    return "/".join(parts) + backward if parts else ""


def unread_lines(lines: Sequence[str], one: str, several: str, what: str = "") -> Iterator[Finding]:
    """Yield the finding on lines that could not be read, if there are any.

    Args:
        lines: The lines.
        one: Sentence on a single line.
        several: Sentence on more than one.
        what: Text after their number.
    """
    if lines:
        consequence = one if len(lines) == 1 else several
        yield Finding(
            kind="unread lines",
            problem=f"{counted(len(lines), 'line', 'lines')}{what} could not be read. {consequence}",
            remedy="Update jax-array-info, or report the lines with your version of JAX.",
            leaves=tuple(FindingLeaf(path=line.strip(), shape=(), dtype="") for line in lines),
        )


def not_handed_out(reason: str | None) -> Iterator[Finding]:
    """Yield the finding on a program that is not known, if there is a reason."""
    if reason is not None:
        yield Finding(
            kind="unread lines",
            problem=f"{reason[:1].upper()}{reason[1:]}: what it sends, its memory and its FLOPs are unknown.",
            remedy="Compile the function for CPU devices, or for a topology of TPUs or GPUs.",
        )


def refusal(error: OutOfMemory | None) -> Iterator[Finding]:
    """Yield the finding on a program or an allocation that does not fit, with the largest buffers."""
    if error is None:
        return
    needed, available = error.required_nbytes, error.available_nbytes
    missing = None if needed is None or available is None else max(needed - available, 0)
    if error.requested_nbytes is not None and error.free_nbytes is not None:
        missing = max(error.requested_nbytes - error.free_nbytes, 0)
    times = "" if error.count == 1 else f" ({error.count} times)"
    yield Finding(
        kind="program memory",
        problem=f"{error.answer[0].upper()}{error.answer[1:]}{times}. {error.message}",
        remedy=_first_change(error),
        nbytes=missing,
        leaves=tuple(
            FindingLeaf(
                path=one.op or "unknown operation",
                shape=one.shape,
                dtype=one.dtype,
                nbytes=one.nbytes,
                origin=one.origin,
                count=count,
            )
            for one, count in Counter(sorted(error.buffers, key=lambda one: -one.nbytes)).items()
        ),
    )


def _first_change(error: OutOfMemory) -> str:
    """Return what to change first, or how to find it."""
    if error.buffers:
        first = max(error.buffers, key=lambda one: one.nbytes)
        place = f" at {first.origin.place}" if first.origin else f" of {first.op}" if first.op else ""
        buffer = f"{first.type}{place}"
        return f"Shard or recompute {buffer} first, use smaller batches, or use more devices."
    if error.requested_nbytes is None:
        return "print_program(function, *arguments) shows what the program allocates."
    return "Free or shard arrays: jai-cli run prints those that are live when an allocation fails."


def lost_axes(values: Sequence[ProgramValue]) -> Iterator[Finding]:
    """Yield the finding on outputs with fewer mesh axes than their arguments, if there are any."""
    if not values:
        return
    axes = tuple(dict.fromkeys(name for value in values for name in value.lost_axes))
    outputs = counted(len(values), "output is", "outputs are")
    arguments = "the argument that it replaces is"
    if len(values) > 1:
        arguments = "the arguments that they replace are"
    leaves = tuple(_leaf(value, value.reason or _like_words(value)) for value in values)
    yield Finding(
        kind="lost mesh axes",
        problem=f"{outputs} replicated over {', '.join(axes)}; {arguments} sharded over {_them(axes)}.",
        remedy=(
            "Request the sharding of the argument: with out_shardings of jax.jit, or with "
            "jax.lax.with_sharding_constraint where the output is made."
        ),
        nbytes=_sum(leaves),
        leaves=leaves,
        mesh_axes=axes,
    )


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
            problem=problem.format(counted(sum(one.count for one in constraints), *nouns)),
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
                path=one.replaces or "",
                shape=one.shape,
                dtype=one.dtype,
                nbytes=one.nbytes,
                change=(
                    f"passed as {given.get(one.replaces or '') or 'unknown'}, "
                    f"returned as {one.got or 'unknown'}"
                ),
            )
            for one in moved
        ),
    )


def shared(donations: Sequence[Donation]) -> Iterator[Finding]:
    """Yield the finding on donated arguments that share a buffer, if there are any."""
    if donations:
        arguments = counted(len(donations), "donated argument", "donated arguments")
        verb = "shares" if len(donations) == 1 else "share"
        leaves = [(one, f"shares its buffer with {', '.join(one.shares_with)}") for one in donations]
        yield Finding(
            kind="shared donation",
            problem=f"A call fails: {arguments} {verb} a buffer with another argument.",
            remedy="Pass jax.numpy.copy of all but one of the arguments that share it.",
            leaves=most_first(
                FindingLeaf(path=one.path, shape=(), dtype="", nbytes=one.nbytes, remedy=reason)
                for one, reason in leaves
            ),
        )


def unused(donations: Sequence[Donation]) -> Iterator[Finding]:
    """Yield the finding on donated arguments whose memory is not reused, if there are any."""
    if donations:
        nbytes = sum(one.nbytes for one in donations)
        arguments, it = counted(len(donations), "argument", "arguments"), _them(donations)
        yield Finding(
            kind="unused donation",
            problem=f"Donating {arguments} of {format_bytes(nbytes)} per device saves no memory.",
            remedy=f"Do not donate {it}, or return outputs of the same shape, dtype and sharding.",
            nbytes=nbytes,
            leaves=most_first(
                FindingLeaf(
                    path=one.path,
                    shape=(),
                    dtype="",
                    nbytes=one.nbytes,
                    remedy=one.reason or "not reused, for an unknown reason",
                )
                for one in donations
            ),
        )


def missing(donatable: Sequence[Donation]) -> Iterator[Finding]:
    """Yield the finding on arguments whose memory outputs could reuse, if there are any."""
    if not donatable:
        return
    nbytes = sum(one.nbytes for one in donatable)
    by_argument = by_key((one.path.partition("/")[0], one) for one in donatable)
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
                nbytes=sum(one.nbytes for one in ones),
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
    )


def _constraint(one: Constraint) -> FindingLeaf:
    return FindingLeaf(
        path="",
        shape=one.shape,
        dtype=one.dtype,
        change=f"requested {one.asked}",
        remedy=one.reason or "",
        origin=one.origin,
        count=one.count,
    )


def _sum(leaves: Iterable[FindingLeaf]) -> int | None:
    """Return the bytes of leaves; None if none of them is known."""
    known = [leaf.nbytes for leaf in leaves if leaf.nbytes is not None]
    return sum(known) if known else None


def _them(things: Sequence[object]) -> str:
    return "it" if len(things) == 1 else "them"
