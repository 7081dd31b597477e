"""Sharding constraints in a jaxpr, at any depth."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..base.grouping import by_key
from ..base.text import plain_shape
from .shardings import mesh_axis_types
from .values import is_sharding

_CONSTRAINT = "sharding_constraint"
_SHARD_MAP = "shard_map"
_NAME = "name"
"""The primitive of ``checkpoint_name``."""
_RESHARD = "reshard"
"""The primitive of ``jax.sharding.reshard``, for Explicit mesh axes (JAX 0.5.3 and later)."""


class JaxprConstraint(NamedTuple):
    """A sharding constraint."""

    shape: tuple[Any, ...]
    dtype: Any
    sharding: Any
    unconstrained: frozenset[int]
    """Array axes that are left to the compiler."""
    traceback: Any
    """Traceback of the call; None if JAX recorded none."""

    operations: tuple[tuple[str, Any], ...] = ()
    """Name and traceback of the constraint, and of the operations that compute and use its value."""

    is_boundary: bool = False
    """Whether the value is an argument or an output of the program."""

    is_gradient: bool = False
    """Whether it is a gradient, and the constraint is outside of the function that is differentiated."""


def jaxpr_constraints(jaxpr: Any) -> Iterator[JaxprConstraint]:
    """Yield the sharding constraints in a jaxpr and the jaxprs inside it, each jaxpr once."""
    program = getattr(jaxpr, "jaxpr", jaxpr)
    ends = {id(variable) for variable in (*program.invars, *program.outvars)}
    uses, of_gradients = _Uses(), set[int]()
    _gradients(program, [False] * len(program.invars), of_gradients)
    for program, equation in equations(jaxpr):
        constraint = _constraint(equation)
        if constraint is not None:
            variables = (equation.invars[0], equation.outvars[0])
            operations = [operation for variable in variables for operation in uses.of(program, variable)]
            yield constraint._replace(
                operations=tuple(
                    (operation.primitive.name, traceback_of(operation)) for operation in operations
                ),
                is_boundary=any(id(variable) in ends for variable in variables),
                is_gradient=id(equation) in of_gradients,
            )


def equations(jaxpr: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each equation of a jaxpr and the jaxprs inside it, with its own jaxpr, each jaxpr once."""
    seen: set[int] = set()
    waiting = [getattr(jaxpr, "jaxpr", jaxpr)]
    while waiting:
        program = waiting.pop()
        if id(program) not in seen:
            seen.add(id(program))
            yield from ((program, equation) for equation in program.eqns)
            waiting += reversed([inner for equation in program.eqns for inner in inner_jaxprs(equation)])


def requested_outputs(jaxpr: Any) -> list[JaxprConstraint | None]:
    """Return what each output of a jaxpr is requested to be, at any depth; None where that is left open.

    A sharding constraint and the ``out_specs`` of a ``shard_map`` request a sharding. In a scan, the value
    has another shape than the output.
    """
    program = getattr(jaxpr, "jaxpr", jaxpr)
    makers = {
        id(outvar): (equation, place)
        for equation in program.eqns
        for place, outvar in enumerate(equation.outvars)
    }
    inner: dict[int, list[JaxprConstraint | None]] = {}
    requested = []
    for variable in program.outvars:
        equation, place = makers.get(id(variable), (None, 0))
        if equation is not None and id(equation) not in inner:
            inner[id(equation)] = _requested(equation)
        requested.append(None if equation is None else inner[id(equation)][place])
    return requested


def _requested(equation: Any) -> list[JaxprConstraint | None]:
    """Return what each result of an equation is requested to be."""
    if equation.primitive.name == _SHARD_MAP:
        pairs = zip(equation.outvars, returned_shardings(equation.params), strict=True)
        return [
            JaxprConstraint(plain_shape(output.aval.shape), output.aval.dtype, sharding, frozenset(), None)
            for output, sharding in pairs
        ]
    programs = list(inner_jaxprs(equation))
    if len(programs) == 1 and len(programs[0].outvars) == len(equation.outvars):
        return requested_outputs(programs[0])
    constraint = _constraint(equation)
    is_whole = constraint is not None and not constraint.unconstrained
    return [constraint if is_whole else None] * len(equation.outvars)


def returned_shardings(parameters: Any) -> Iterator[Any]:
    """Yield the sharding of each result of a ``shard_map``. Up to JAX 0.6, it has names by array axis."""
    import jax

    specs = parameters.get("out_specs")
    if specs is None:
        specs = [
            jax.sharding.PartitionSpec(*map(names.get, range(1 + max(names, default=-1))))
            for names in parameters["out_names"]
        ]
    for spec in specs:
        yield jax.sharding.NamedSharding(parameters["mesh"], spec)


def jaxpr_names(jaxpr: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, dtype and traceback of each ``checkpoint_name`` in a jaxpr and the jaxprs inside it."""
    return (
        (str(equation.params["name"]), equation.invars[0].aval.dtype, traceback_of(equation))
        for _, equation in equations(jaxpr)
        if equation.primitive.name == _NAME
    )


def _constraint(equation: Any) -> JaxprConstraint | None:
    """Return the constraint in an equation; None for any other operation."""
    name, parameters = equation.primitive.name, equation.params
    sharding = parameters.get("sharding" if name == _CONSTRAINT else "dst_sharding")
    if name not in (_CONSTRAINT, _RESHARD) or not is_sharding(sharding):
        return None
    aval = equation.invars[0].aval
    if name == _RESHARD and not (aval.shape and "Explicit" in mesh_axis_types(sharding.mesh)):
        return None  # JAX inserts these itself
    return JaxprConstraint(
        plain_shape(aval.shape),
        aval.dtype,
        sharding,
        frozenset(parameters.get("unconstrained_dims") or ()),
        traceback_of(equation),
    )


class _Uses:
    """Equations that compute or use each variable of a jaxpr, also inside the functions that it calls."""

    def __init__(self) -> None:
        self._near: dict[int, dict[int, list[Any]]] = {}
        """Equations by ``id`` of the jaxpr and of the variable."""

    def of(self, program: Any, variable: Any) -> Iterator[Any]:
        """Yield the equations of a variable."""
        near = self._near.get(id(program))
        if near is None:
            near = self._near[id(program)] = by_key(
                (id(value), equation)
                for equation in program.eqns
                for value in (*equation.invars, *equation.outvars)
            )
        for equation in near.get(id(variable), ()):
            yield equation
            for inner in inner_jaxprs(equation):
                for outer, inside in ((equation.invars, inner.invars), (equation.outvars, inner.outvars)):
                    if len(outer) == len(inside):
                        for outside, other in zip(outer, inside, strict=True):
                            if outside is variable:
                                yield from self.of(inner, other)


def traceback_of(equation: Any) -> Any:
    """Return the traceback of an equation; None if JAX recorded none."""
    return getattr(equation.source_info, "traceback", None)


def inner_jaxprs(equation: Any) -> Iterator[Any]:
    """Yield the jaxprs in the parameters of an equation."""
    return _jaxprs(equation.params)


def _jaxprs(value: Any) -> Iterator[Any]:
    """Yield the jaxprs in a parameter."""
    if isinstance(value, list | tuple):
        for entry in value:
            yield from _jaxprs(entry)
    elif isinstance(value, dict):
        yield from _jaxprs(list(value.values()))
    else:
        program = getattr(value, "jaxpr", value)  # that of a ClosedJaxpr
        if hasattr(program, "eqns"):
            yield program


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


def jaxpr_gradients(jaxpr: Any) -> list[bool]:
    """Return whether each output of a jaxpr is a gradient, or computed from one without a sum."""
    program = getattr(jaxpr, "jaxpr", jaxpr)
    return _gradients(program, [False] * len(program.invars), set())


def _gradients(program: Any, inputs: list[bool], users: set[int]) -> list[bool]:
    """Return whether each output is a gradient, and add the ``id`` of each equation that uses one first."""
    known = {id(variable): is_gradient for variable, is_gradient in zip(program.invars, inputs, strict=True)}
    for equation in program.eqns:
        operands = [known.get(id(variable), False) for variable in equation.invars]
        name, inner = equation.primitive.name, inner_jaxpr(equation)
        if "transpose" in transforms_of(equation):
            results = [True] * len(equation.outvars)
        elif inner is not None:
            results = _gradients(inner, operands, users)
        else:
            is_kept = any(operands) and not name.startswith(("reduce_", "arg", "dot_general", "conv_"))
            results = [is_kept] * len(equation.outvars)
            if operands[:1] == [True]:
                users.add(id(equation))
        known.update(zip(map(id, equation.outvars), results, strict=False))
    return [known.get(id(variable), False) for variable in program.outvars]


def transforms_of(equation: Any) -> tuple[str, ...]:
    """Return the derivatives that an equation belongs to, the outermost first: ``jvp`` and ``transpose``.

    Not those of the equations around it. JAX makes the backward pass by transposing a linear program.
    """
    stack = getattr(getattr(equation.source_info, "name_stack", None), "stack", ())
    names = (transform.name for transform in stack if type(transform).__name__ == "Transform")
    return tuple(name for name in names if name in ("jvp", "transpose"))


def inner_jaxpr(equation: Any) -> Any:
    """Return the jaxpr that a call runs once; None for any other operation."""
    if equation.primitive.name not in _CALLS:
        return None
    inner = next((equation.params[key] for key in _BODIES if key in equation.params), None)
    program: Any = getattr(inner, "jaxpr", inner)
    fits = hasattr(program, "eqns") and len(program.invars) == len(equation.invars)
    return program if fits else None


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
    inner = inner_jaxpr(equation)
    return [] if inner is None else _outputs(inner, operands)


def _merged(operands: list[_Updates]) -> _Updates:
    merged: _Updates = {}
    for updates in operands:
        for number, update in updates.items():
            other = merged.get(number, update)
            merged[number] = Update(update.is_added or other.is_added, update.is_scaled and other.is_scaled)
    return merged


def _added(updates: _Updates) -> _Updates:
    return {number: update._replace(is_added=True) for number, update in updates.items()}


def _scaled(updates: _Updates) -> _Updates:
    return {number: update._replace(is_scaled=True) for number, update in updates.items()}
