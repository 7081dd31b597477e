"""The places in a schedule at which the backward pass begins, and what is live there."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Sequence

from .buffers import Buffer
from .dataflow import Dataflow, Value
from .module import Instruction, Module, Passing, calls_of, operations
from .op_names import REMATTED, pass_of
from .schedule import Schedule

_PRODUCTS = frozenset(
    {
        *("cholesky", "convolution", "custom-call", "dot", "fft", "gather", "reduce-window", "scatter"),
        *("sort", "triangular-solve"),
    }
)
"""The main operations of a fusion; without one, its reductions."""
_SEVERAL = frozenset({"call", "conditional", "while"})
_COUNTED = _SEVERAL | _PRODUCTS | {"fusion"}
"""The operations that are counted on both sides of a turn."""
_FORMS = operations(Passing.MOVE) | {"bitcast-convert"}
_UNNAMED_FORMS = _FORMS | {"convert", "reduce-precision"}
_SPREADING = frozenset({"broadcast", "constant", "copy", "fusion", "iota"})
_FILLED = ("broadcast", "constant", "iota", "parameter")
"""Operations whose results are not values of the forward pass: arguments and constants."""
_Pass = str | None
"""``forward``, ``backward`` or, of a loop with operations of each, ``both``; None if its name has none."""


def live_at_turn(schedule: Schedule, dataflow: Dataflow) -> list[Buffer] | None:
    """Return the temporary values that are live where the backward pass begins.

    The turn of a computation is where the fewest operations are on the wrong side: XLA moves some of the
    forward pass behind it. A value that the backward pass computes is none of them, nor is a copy of an
    argument. Of the turns of several computations, that with the most bytes.

    Returns:
        The values, also those outside of the main memory; None if there is no turn.
    """
    turns = _turns(schedule, dataflow.module)
    found: dict[str, list[Buffer]] = {name: [] for name in turns}
    for buffer in schedule.buffers:
        if not (buffer.is_temporary and buffer.writers and buffer.shape.nbytes):
            continue
        scope = buffer.writers[-1].scope
        while scope.computation.name not in turns and scope.outer is not None:
            scope = scope.outer
        turn = turns.get(scope.computation.name)
        is_live = turn is not None and any(start < turn <= end for start, end in buffer.spans)
        if is_live and _is_held(buffer, dataflow):
            found[scope.computation.name].append(buffer)
    return max(found.values(), key=lambda held: sum(one.shape.nbytes for one in held), default=None)


def _is_held(buffer: Buffer, dataflow: Dataflow) -> bool:
    """Return whether the value of a buffer is computed, and not by the backward pass."""
    maker = _maker(buffer.writers[-1].value, dataflow)
    if maker.opcode in _FILLED or _pass_of(maker) == "backward":
        return False
    return maker.opcode != "custom-call" or bool(maker.op_name)  # memory of an asynchronous operation


def _maker(value: Value, dataflow: Dataflow) -> Instruction:
    """Return the instruction that computes a value, which copies, fusions and loops may pass on."""
    while True:
        one = dataflow.instruction(value)
        source = dataflow.same(value, _FORMS if one.op_name else _UNNAMED_FORMS)
        if source is None:
            return one
        value = source


def _pass_of(one: Instruction) -> _Pass:
    """Return the pass of an instruction by its name; None for what ``jax.checkpoint`` computes again.

    XLA may merge that with what the forward pass has computed, such as on CPU up to JAX 0.10.
    """
    return None if REMATTED in (one.op_name or "") else pass_of(one.op_name)


def _turns(schedule: Schedule, module: Module) -> dict[str, int]:
    """Return the time at which the backward pass begins in each computation that has both passes."""
    main_pass = _main_passes(module)
    marks: dict[str, list[tuple[int, _Pass]]] = {}
    # Computed from constants only, such as the zeros that a loop begins with: XLA puts it anywhere.
    constant: set[tuple[str, str]] = set()
    for time, (one, name) in enumerate(zip(schedule.operations, schedule.computations, strict=True), 1):
        if one.opcode in _SPREADING and all((name, operand) in constant for operand in one.operands):
            constant.add((name, one.name))
        is_counted = one.opcode in _COUNTED and (name, one.name) not in constant
        of = main_pass(one) if is_counted else None
        marks.setdefault(name, []).append((time, of))
    both = {"forward", "backward"}
    return {name: _turn(found) for name, found in marks.items() if both <= {of for _, of in found}}


def _main_passes(module: Module) -> Callable[[Instruction], _Pass]:
    """Return a function that returns the pass of an instruction, by its main operations."""

    def inside(one: Instruction, opcodes: Collection[str]) -> set[_Pass]:
        computations = (module.computations[call.name] for call in calls_of(one))
        parts = (each for computation in computations for each in computation.instructions)
        return {main_pass(each) for each in parts if each.opcode in opcodes} - {None}

    @functools.cache
    def main_pass(one: Instruction) -> _Pass:
        if one.opcode in _SEVERAL:
            found = inside(one, _COUNTED)
            return "both" if len(found) > 1 else next(iter(found), None)
        for opcodes in (_PRODUCTS, {"fusion"}, {"reduce"}):
            if found := inside(one, opcodes):
                return "backward" if found == {"backward"} else "forward"
        return _pass_of(one)

    return main_pass


def _turn(marks: Sequence[tuple[int, _Pass]]) -> int:
    """Return the time of the first operation behind the turn, from the time and the pass of each.

    It is behind some operation of a pass, the first of several such places.
    """
    wrong = sum(of == "forward" for _, of in marks)
    turns = []
    for (_, of), (following, _) in itertools.pairwise(marks):
        wrong += (of == "backward") - (of == "forward")
        if of in ("forward", "backward"):
            turns.append((wrong, following))
    return min(turns)[1]
