"""Programs that also return values that a traced program saves for its backward pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .jaxprs import inner_jaxpr, inner_jaxprs
from .residuals import SavedValue, scan_parts
from .shardings import is_named

Saved = Mapping[int, SavedValue]
"""Saved values by number."""


def with_further_outputs(
    traced: Any, shardings: Sequence[Any], out_shardings: Sequence[Any], values: Saved
) -> tuple[Any, list[Any], dict[int, int]]:
    """Return a copy of a traced program whose further outputs are saved values.

    Args:
        traced: A ``jax.stages.Traced``.
        shardings: The requested sharding of each argument; None where it is not known.
        out_shardings: That of each output.
        values: The values. One in the body of a scan is an output that the scan stacks.

    Returns:
        The copy, a ``jax.stages.Traced``; its arguments; and the number of stacked axes of each value that is
        returned, in the order of the outputs, by its number.
    """
    import jax

    closed = traced.jaxpr
    stacked: dict[int, int] = {}

    def run(*arguments: Any) -> Any:
        outputs, found = _run(closed.jaxpr, closed.consts, arguments, (), values)
        stacked.update((number, one.ndim - len(values[number].shape)) for number, one in found.items())
        return tuple(outputs), tuple(found.values())

    structs = [
        jax.ShapeDtypeStruct(one.shape, one.dtype, weak_type=one.weak_type, **_given(sharding))
        for one, sharding in zip(closed.in_avals, shardings, strict=True)
    ]
    copy = jax.jit(run, out_shardings=(tuple(out_shardings), None)).trace(*structs)
    return copy, structs, stacked


def _given(sharding: Any) -> dict[str, Any]:
    """Return the keyword for a sharding, unless it may be one that JAX would change, on a single device."""
    return {"sharding": sharding} if is_named(sharding) and sharding.mesh.size > 1 else {}


def _run(
    program: Any, constants: Sequence[Any], arguments: Sequence[Any], path: tuple[int, ...], values: Saved
) -> tuple[list[Any], dict[int, Any]]:
    """Return the results of a body, and the saved values in it that can be returned, by number."""
    variables = (*program.constvars, *program.invars)
    known = dict(zip(map(id, variables), (*constants, *arguments), strict=True))

    def read(variable: Any) -> Any:
        return variable.val if hasattr(variable, "val") else known[id(variable)]

    found: dict[int, Any] = {}
    for number, equation in enumerate(program.eqns):
        operands, here = [*map(read, equation.invars)], (*path, number)
        with equation.ctx.manager:
            results = None
            if any(one.path[: len(here)] == here for one in values.values()):
                results, inside = _run_inside(equation, operands, here, values)
                found |= inside
            if results is None:
                primitive = equation.primitive
                results = primitive.bind(*operands, **primitive.get_bind_params(equation.params))
                results = results if primitive.multiple_results else [results]
        known.update(zip(map(id, equation.outvars), results, strict=True))
    own = {number: known[id(one.variable)] for number, one in values.items() if one.path == path}
    return [*map(read, program.outvars)], found | own


def _run_inside(
    equation: Any, operands: list[Any], path: tuple[int, ...], values: Saved
) -> tuple[list[Any] | None, dict[int, Any]]:
    """Return the results of a call or a scan, and the saved values in its body; None for another equation."""
    import jax

    is_scan = equation.primitive.name == "scan"
    body = next(inner_jaxprs(equation), None) if is_scan else inner_jaxpr(equation)
    if body is None:
        return None, {}
    closed = next(one for one in equation.params.values() if getattr(one, "jaxpr", one) is body)
    constants = getattr(closed, "consts", ())
    if not is_scan:
        return _run(body, constants, operands, path, values)
    first, count = scan_parts(equation, body)

    def turn(carried: Any, sliced: Any) -> Any:
        given = [*operands[:first], *carried, *sliced]
        outputs, inside = _run(body, constants, given, path, values)
        return outputs[:count], (outputs[count:], inside)

    initial, rest = operands[first : first + count], operands[first + count :]
    options = {name: equation.params[name] for name in ("length", "reverse")}
    carried, (outputs, inside) = jax.lax.scan(turn, initial, rest, **options)
    return [*carried, *outputs], inside
