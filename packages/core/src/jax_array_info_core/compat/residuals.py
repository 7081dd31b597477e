"""Values that a traced program saves for its backward pass, and programs that also return them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from ..base.text import plain_shape
from ..geometry.layouts.dtypes import bits_per_element, packed_nbytes
from .jaxprs import equations, inner_jaxpr, inner_jaxprs, returned_shardings, transforms_of
from .shardings import is_named

_NAME, _DEVICE_PUT, _SCAN, _SHARD_MAP = "name", "device_put", "scan", "shard_map"
_SOLVE = "custom_linear_solve"
_MOVES = (_NAME, _DEVICE_PUT, "reduce_precision")
"""Primitives whose result has the line and the ``checkpoint_name`` of their operand."""


class NestedDerivativesError(Exception):
    """A program differentiates a derivative: what is saved for which backward pass is not known."""


class Manual(NamedTuple):
    """The mesh of a ``shard_map``."""

    sizes: Mapping[str, int]
    """Size of each mesh axis."""

    axes: frozenset[str]
    """The manual mesh axes; with those of a ``shard_map`` around it."""

    @property
    def is_whole(self) -> bool:
        """Whether a value inside has its shape on a device: no other mesh axis can shard it further."""
        return all(size == 1 for name, size in self.sizes.items() if name not in self.axes)

    @property
    def part_count(self) -> int:
        """Number of the parts of a value inside."""
        return math.prod(self.sizes[name] for name in self.axes)


class SavedValue(NamedTuple):
    """A value that the forward pass computes and the backward pass reads."""

    shape: tuple[int | str, ...]
    """Shape; inside of a ``shard_map``, that of a part."""

    dtype: Any
    """JAX's dtype."""

    name: str | None
    """The name that ``checkpoint_name`` gives it."""

    equations: tuple[Any, ...]
    """The operation that computes it, then those that return it from where that is, the innermost first."""

    is_in_host_memory: bool
    """Whether a remat policy offloads it."""

    is_stacked: bool
    """Whether a scan stacks it over its iterations."""

    sharding: Any
    """Sharding with which a ``shard_map`` returns it, if no other mesh axis can shard it; else None."""

    manual: Manual | None
    """The mesh of the ``shard_map`` that it is in; None outside of one."""

    path: tuple[int, ...]
    """The body that computes it: the numbers of the equations around it, from the program on."""

    variable: Any
    """Its variable there."""

    @property
    def part_nbytes(self) -> int | None:
        """Bytes of its shape; None if they are not known."""
        return packed_nbytes(self.shape, bits_per_element(self.dtype))

    @property
    def global_nbytes(self) -> int | None:
        """Bytes of all of it, without copies; None if they are not known."""
        nbytes = self.part_nbytes
        return nbytes if nbytes is None or self.manual is None else nbytes * self.manual.part_count


def saved_values(jaxpr: Any) -> list[SavedValue] | None:
    """Return what is saved for the backward pass at the place in a program where it is most.

    An equation is of the backward pass if it is made by transposing a derivative, and of the forward pass if
    it is of a derivative otherwise. Saved is what an equation of the forward pass computes and one of the
    backward pass reads. Equations that differentiated functions call are those of one pass as a whole.

    Args:
        jaxpr: The traced program.

    Returns:
        The values; None if there is no backward pass.

    Raises:
        NestedDerivativesError: If the program differentiates a derivative.
    """
    program = getattr(jaxpr, "jaxpr", jaxpr)
    return _Body(program, (), None).most() if "backward" in _passes(program) else None


def passes_are_named(traced: Any) -> bool:
    """Return whether the names of the operations of each derivative contain its transformations.

    Up to JAX 0.6, only those inside of a ``jax.named_scope`` do.

    Args:
        traced: A ``jax.stages.Traced``; None if it is not known: then the version of JAX decides.
    """
    import jax

    if traced is None:
        return bool(jax.__version_info__ >= (0, 7))
    return all(
        f"{name}(" in str(equation.source_info.name_stack)
        for _, equation in equations(traced.jaxpr)
        for name in transforms_of(equation)
    )


def _pass(stack: Sequence[str]) -> str | None:
    """Return the pass of an equation from the derivatives that it belongs to, the outermost first."""
    if "transpose" not in stack:
        return "forward" if stack else None
    if stack[0] == "jvp":
        raise NestedDerivativesError
    return "backward"  # also the derivatives that a custom_vjp takes there


def _passes(program: Any) -> set[str | None]:
    """Return the passes of the equations of a program, at any depth."""
    names: set[str | None] = set()
    seen: set[tuple[int, tuple[str, ...]]] = set()
    waiting: list[tuple[Any, tuple[str, ...]]] = [(program, ())]
    while waiting:
        body, around = waiting.pop()
        if (id(body), around) not in seen:
            seen.add((id(body), around))
            for equation in body.eqns:
                stack = (*around, *transforms_of(equation))
                names.add(_pass(stack))
                if equation.primitive.name != _SOLVE:  # it holds the transpose of its own solver
                    waiting += ((inner, stack) for inner in inner_jaxprs(equation))
    return names


class _Body:
    """A body of a program.

    Args:
        program: Its jaxpr.
        path: The numbers of the equations around it.
        manual: The mesh of the ``shard_map`` around it.
    """

    def __init__(self, program: Any, path: tuple[int, ...], manual: Manual | None) -> None:
        self._program = program
        self._path = path
        self._manual = manual

    @cached_property
    def _makers(self) -> dict[int, tuple[int, int]]:
        """The number of the equation that computes each value, and the place among its results."""
        return {
            id(variable): (number, place)
            for number, equation in enumerate(self._program.eqns)
            for place, variable in enumerate(equation.outvars)
        }

    @cached_property
    def _inside(self) -> list[list[_Body]]:
        """The bodies of each equation."""
        return [
            [
                _Body(jaxpr, (*self._path, number), _manual(equation, self._manual))
                for jaxpr in inner_jaxprs(equation)
            ]
            for number, equation in enumerate(self._program.eqns)
        ]

    def most(self) -> list[SavedValue]:
        """Return the values that are saved at the place where they have the most bytes.

        A body inside that is of no pass itself adds its own most, once: also that of a loop.
        """
        passes = [_pass(transforms_of(equation)) for equation in self._program.eqns]
        last: dict[int, tuple[int, Any]] = {}
        inside: dict[int, list[SavedValue]] = {}
        for number, equation in enumerate(self._program.eqns):
            if passes[number] == "backward":
                last.update((id(root), (number, root)) for root in map(self._root, equation.invars))
            elif passes[number] is None:
                inside[number] = max(
                    (program.most() for program in self._inside[number]), key=_sum, default=[]
                )
        spans = []
        steps = [0] * (len(self._program.eqns) + 1)
        for key, (end, variable) in last.items():
            start, _ = self._makers.get(key, (end, 0))
            value = self._value(variable) if passes[start] == "forward" else None
            # A literal in another shape is not stored.
            if value is not None and not _is_filled(value.equations[0]):
                spans.append((start, end, value))
                steps[start + 1] += _sum([value])
                steps[end + 1] -= _sum([value])
        totals = [*accumulate(steps)]
        places = sorted({end for _, end, _ in spans} | inside.keys())
        most = max(places, key=lambda place: totals[place] + _sum(inside.get(place, ())), default=-1)
        return [*(value for start, end, value in spans if start < most <= end), *inside.get(most, ())]

    @cached_property
    def _names(self) -> dict[int, str]:
        """The names that ``checkpoint_name`` gives, by what they are given to."""
        named = (eqn for eqn in self._program.eqns if eqn.primitive.name == _NAME)
        return {id(self._root(equation.invars[0])): str(equation.params["name"]) for equation in named}

    def _root(self, variable: Any) -> Any:
        """Return what a value is: ``checkpoint_name`` returns its operand, and a call may do so."""
        while (maker := self._makers.get(id(variable))) is not None:
            equation = self._program.eqns[maker[0]]
            inner = inner_jaxpr(equation)
            given = list(map(id, inner.invars)) if inner else []
            if equation.primitive.name == _NAME:
                variable = equation.invars[0]
            elif inner is not None and id(inner.outvars[maker[1]]) in given:
                variable = equation.invars[given.index(id(inner.outvars[maker[1]]))]
            else:
                break
        return variable

    def _value(self, variable: Any) -> SavedValue | None:
        """Return a value; None for an argument of the body, and for one without data."""
        if id(variable) not in self._makers or not hasattr(variable.aval, "dtype"):
            return None
        number, place = self._makers[id(variable)]
        equation = self._program.eqns[number]
        primitive, before, is_stacked, sharding = equation.primitive.name, None, False, None
        if primitive in _MOVES:
            before = self._value(equation.invars[0])
        elif inner_jaxpr(equation) is not None or primitive in (_SCAN, _SHARD_MAP):
            body = self._inside[number][0]
            before, is_stacked = body._result(equation, place)
            if primitive == _SHARD_MAP and body._manual is not None and body._manual.is_whole:
                sharding = [*returned_shardings(equation.params)][place]
        value = SavedValue(
            shape=plain_shape(variable.aval.shape),
            dtype=variable.aval.dtype,
            name=self._names.get(id(self._root(variable))),
            equations=(equation,),
            is_in_host_memory=False,
            is_stacked=is_stacked,
            sharding=sharding,
            manual=self._manual,
            path=self._path,
            variable=variable,
        )
        if before is not None:
            value = value._replace(
                name=value.name or before.name,
                equations=(*before.equations, equation),
                is_in_host_memory=before.is_in_host_memory,
                is_stacked=is_stacked or before.is_stacked,
            )
        is_put = primitive == _DEVICE_PUT
        return value._replace(is_in_host_memory=_is_to_host(equation)) if is_put else value

    def _result(self, call: Any, place: int) -> tuple[SavedValue | None, bool]:
        """Return what the body of a call returns at a place, and whether a scan stacks it."""
        given, returned = self._program.invars, self._program.outvars
        if len(returned) != len(call.outvars):
            return None, False
        variable = returned[place]
        if call.primitive.name != _SCAN:
            return self._value(variable), False
        # What the loop carries into an iteration, the iteration before has computed.
        first, count = scan_parts(call, self._program)
        carried = dict(zip(map(id, given[first : first + count]), returned[:count], strict=True))
        return self._value(carried.get(id(variable), variable)), place >= count


def _is_filled(equation: Any) -> bool:
    """Return whether an equation makes an array of one literal."""
    return equation.primitive.name == "broadcast_in_dim" and hasattr(equation.invars[0], "val")


def scan_parts(scan: Any, body: Any) -> tuple[int, int]:
    """Return the number of the first value that a scan carries among its operands, and their count.

    Operands of each iteration come after them, and stacked results after those that are carried.

    Args:
        scan: The equation.
        body: Its jaxpr.
    """

    def longer(outer: Sequence[Any], inner: Sequence[Any]) -> int:
        pairs = zip(outer, inner, strict=True)
        return sum(len(variable.aval.shape) > len(other.aval.shape) for variable, other in pairs)

    count = len(body.outvars) - longer(scan.outvars, body.outvars)
    return len(body.invars) - longer(scan.invars, body.invars) - count, count


def _sum(values: Sequence[SavedValue]) -> int:
    return sum(value.global_nbytes or 0 for value in values)


def _manual(equation: Any, around: Manual | None) -> Manual | None:
    """Return the mesh inside of an equation. Versions of JAX name its manual mesh axes, or the others."""
    if equation.primitive.name != _SHARD_MAP:
        return around
    sizes, parameters = dict(equation.params["mesh"].shape), equation.params
    names = parameters.get("newly_manual_axes", parameters.get("manual_axes"))
    axes = sizes.keys() - parameters.get("auto", ()) if names is None else names
    return Manual(sizes, frozenset(axes) | (around.axes if around else frozenset()))


def _is_to_host(equation: Any) -> bool:
    """Return whether a ``device_put`` is one to host memory."""
    targets = equation.params.get("devices") or ()
    return any("host" in str(getattr(target, "memory_kind", None) or target).lower() for target in targets)


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
        outputs, saved = _run(closed.jaxpr, closed.consts, arguments, (), values)
        stacked.update((number, array.ndim - len(values[number].shape)) for number, array in saved.items())
        return tuple(outputs), tuple(saved.values())

    structs = [
        jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type, **_given(sharding))
        for aval, sharding in zip(closed.in_avals, shardings, strict=True)
    ]
    return jax.jit(run, out_shardings=(tuple(out_shardings), None)).trace(*structs), structs, stacked


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

    saved: dict[int, Any] = {}
    for number, equation in enumerate(program.eqns):
        operands, here = [*map(read, equation.invars)], (*path, number)
        with equation.ctx.manager:
            results = None
            if any(value.path[: len(here)] == here for value in values.values()):
                results, inside = _run_inside(equation, operands, here, values)
                saved |= inside
            if results is None:
                primitive = equation.primitive
                results = primitive.bind(*operands, **primitive.get_bind_params(equation.params))
                results = results if primitive.multiple_results else [results]
        known.update(zip(map(id, equation.outvars), results, strict=True))
    here_saved = {number: known[id(value.variable)] for number, value in values.items() if value.path == path}
    return [*map(read, program.outvars)], saved | here_saved


def _run_inside(
    equation: Any, operands: list[Any], path: tuple[int, ...], values: Saved
) -> tuple[list[Any] | None, dict[int, Any]]:
    """Return the results of a call or a scan, and the saved values in its body; None for another equation."""
    import jax

    is_scan = equation.primitive.name == "scan"
    body = next(inner_jaxprs(equation), None) if is_scan else inner_jaxpr(equation)
    if body is None:
        return None, {}
    closed = next(param for param in equation.params.values() if getattr(param, "jaxpr", param) is body)
    constants = getattr(closed, "consts", ())
    if not is_scan:
        return _run(body, constants, operands, path, values)
    first, count = scan_parts(equation, body)

    def turn(carried: Any, sliced: Any) -> Any:
        outputs, inside = _run(body, constants, [*operands[:first], *carried, *sliced], path, values)
        return outputs[:count], (outputs[count:], inside)

    initial, stacked = operands[first : first + count], operands[first + count :]
    options = {name: equation.params[name] for name in ("length", "reverse")}
    carried, (outputs, inside) = jax.lax.scan(turn, initial, stacked, **options)
    return [*carried, *outputs], inside
