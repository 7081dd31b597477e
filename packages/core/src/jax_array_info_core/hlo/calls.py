"""Calls of one computation from another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from .module import Instruction

Role = Literal["body", "condition", "branch", "callee", "unknown"]
"""Part of a computation in the instruction that calls it:

- ``body`` and ``condition`` of a loop;
- ``branch`` of a conditional;
- ``callee``: it runs once in each execution of the instruction, such as the computation of a fusion;
- ``unknown``: a computation of a custom call.
"""

_NAME = re.compile(r"%([^\s,{}]+)")
_ROLES: dict[str, Role] = {
    "body": "body",
    "condition": "condition",
    "branch_computations": "branch",
    "true_computation": "branch",
    "false_computation": "branch",
    "calls": "callee",
    "called_computations": "callee",
}
_ATTRIBUTES = frozenset(("to_apply", *_ROLES))


class Call(NamedTuple):
    """A computation that an instruction executes."""

    name: str
    """Name of the computation."""

    role: Role
    """Its part in the instruction."""


def calls_of(instruction: Instruction) -> Sequence[Call]:
    """Return the computations that an instruction executes.

    Computations of single elements are left out, such as the ``to_apply`` of a reduce or an all-reduce.
    """
    # Most instructions execute none.
    if not instruction.attributes or _ATTRIBUTES.isdisjoint(instruction.attributes):
        return ()
    opcode = instruction.opcode
    if opcode.endswith(("-update", "-done")):
        return ()  # They repeat the computation of their start.
    found: list[Call] = []
    for attribute, text in instruction.attributes.items():
        role = _ROLES.get(attribute)
        if attribute == "to_apply" and opcode == "call":
            role = "callee"
        if role is not None:
            for name in names_in(text):
                found.append(Call(name, "unknown" if opcode == "custom-call" else role))
    return found


def called(instruction: Instruction, attribute: str) -> str | None:
    """Return the name of the computation in an attribute; None if there is none."""
    return next(iter(names_in(instruction.attributes.get(attribute, ""))), None)


def names_in(text: str) -> list[str]:
    """Return the names of the computations in the text of an attribute."""
    return _NAME.findall(text)
