"""Outputs of a jaxpr that are updates of its inputs: an input to which something is added."""

from __future__ import annotations

from typing import Any, NamedTuple

_KEEPING = {
    "convert_element_type",
    "copy",
    "copy_p",
    "optimization_barrier",
    "reduce_precision",
    "reshard",
    "sharding_constraint",
}
"""Primitives whose outputs are their operands, in this order."""

_CALLS = {
    "checkpoint",
    "closed_call",
    "core_call",
    "custom_jvp_call",
    "custom_vjp_call",
    "custom_vjp_call_jaxpr",
    "jit",
    "pjit",
    "remat",
    "remat2",
}
"""Primitives that run a jaxpr once."""

_BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")
"""Names of the parameter of a call that is its jaxpr."""

_BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")
"""Names of the parameter of a call that is its jaxpr."""

_MOST = 16
"""Number of inputs in a sum, above which it is an update of none."""


class Update(NamedTuple):
    """How an output is computed from an input of the same shape."""

    is_added: bool
    """Whether something is added to it, or part of it is replaced. Else it is a copy."""

    is_scaled: bool
    """Whether it is multiplied on the way, as in a moving average and in the gradient of a penalty."""


_Updates = dict[int, Update]


def jaxpr_updates(jaxpr: Any) -> list[_Updates]:
    """Return the inputs that each output of a jaxpr updates element by element, by their numbers.

    A sum has no scaled part if one of the two paths from an input has none: a gradient, which is linear in
    the cotangents, contains an argument only in products with them.
    """
    program = getattr(jaxpr, "jaxpr", jaxpr)
    return _outputs(program, [{number: Update(False, False)} for number in range(len(program.invars))])


def _outputs(program: Any, inputs: list[_Updates]) -> list[_Updates]:
    known = {id(variable): updates for variable, updates in zip(program.invars, inputs, strict=True)}
    for equation in program.eqns:
        operands = [known.get(id(variable), {}) for variable in equation.invars]
        if any(operands):
            for variable, updates in zip(equation.outvars, _results(equation, operands), strict=False):
                if 0 < len(updates) <= _MOST:
                    known[id(variable)] = updates
    return [known.get(id(variable), {}) for variable in program.outvars]


def _results(equation: Any, operands: list[_Updates]) -> list[_Updates]:
    """Return the inputs that each result of an equation updates."""
    name = equation.primitive.name
    if name in _KEEPING:
        return operands
    if name in ("add", "add_any"):
        return [_added(_merged(operands))]
    if name in ("sub", "dynamic_update_slice", "scatter", "scatter-add"):
        return [_added(operands[0])]
    if name == "mul":
        return [_scaled(_merged(operands))]
    if name == "div":
        return [_scaled(operands[0])]
    if name == "select_n":
        return [_merged(operands[1:])]
    if name in _CALLS:
        parameters = equation.params
        inner = next((parameters[key] for key in _BODIES if key in parameters), None)
        program: Any = getattr(inner, "jaxpr", inner)
        if hasattr(program, "eqns") and len(program.invars) == len(operands):
            return _outputs(program, operands)
    return []


def _merged(operands: list[_Updates]) -> _Updates:
    found: _Updates = {}
    for updates in operands:
        for number, one in updates.items():
            other = found.get(number, one)
            found[number] = Update(one.is_added or other.is_added, one.is_scaled and other.is_scaled)
    return found


def _added(updates: _Updates) -> _Updates:
    return {number: one._replace(is_added=True) for number, one in updates.items()}


def _scaled(updates: _Updates) -> _Updates:
    return {number: one._replace(is_scaled=True) for number, one in updates.items()}
