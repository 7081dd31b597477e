"""Parameters among the arguments of a compiled program, and the products and gradients of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from ..base.grouping import by_key, sums_by_key
from ..compat.jaxprs import jaxpr_gradients
from ..compat.residuals import passes_are_named
from ..facts.reports.layers import Parameter
from ..facts.reports.origin import Phase
from ..xla.hlo.buffers import is_elementwise
from ..xla.hlo.collectives import COLLECTIVES, Movement
from ..xla.hlo.dataflow import ASYNC_COLLECTIVE, REDUCTIONS, Dataflow, Value
from ..xla.hlo.flops import costs
from ..xla.hlo.liveness import highest_buffers
from ..xla.hlo.loops import executions
from ..xla.hlo.module import PASSING, Instruction, Module
from ..xla.hlo.source import REMATTED, pass_of
from .collectives import computes
from .donations import common_end
from .lost_axes import Flow, moments_of_arguments
from .updates import Interface, alike_arguments, by_kind

_WAY = COLLECTIVES.union(
    PASSING,
    ("async", "call", "concatenate", "conditional", "dynamic-update-slice", "fusion", "get-tuple-element"),
    ("parameter", "tuple", "while"),
)
"""Operations on the way of a gradient to an output, besides those on single elements."""
_LABELS = ("int32", "int64")
"""Dtypes of labels and tokens, which are next to other data."""


class Product(NamedTuple):
    """A dot or a convolution of a program."""

    value: Value
    """The result."""

    instruction: Instruction
    """The instruction."""

    flops: int
    """Operations in one call, as far as ``known_dot_flops`` has them."""

    reads: tuple[int | None, ...]
    """Number of the argument that each operand is a form of; None for one that is computed."""


class Parameters:
    """Parameters of a program by the number of the argument, and what belongs to each of them.

    - An argument is trained if an output with its shape, dtype and keys is computed from a gradient, and if
      its first use is in a derivative. Among several, the output is an update of the one that it contains.
      Moments of an optimizer are not trained, and neither is a moving average of the model.
    - An argument that a product reads, with another operand that is computed or data, is a weight. It is a
      parameter also where it is not trained, and so are the floating arguments below the same name; in an
      argument with data, those in its part without data.
    - Not among them are data, from which a product computes a gradient of a parameter; integers; and
      arguments that return changed, such as a cache.

    Args:
        module: The compiled program.
        interface: Its arguments and outputs.
        traced: The ``jax.stages.Traced`` that it is compiled from; None if it is not known.
    """

    def __init__(self, module: Module, interface: Interface, traced: Any) -> None:
        self._module, self._dataflow = module, module.once(Dataflow)
        self._arguments, self._outputs = interface.arguments, interface.outputs
        self._flow = Flow(module, self._outputs, self._arguments)
        self.tells_passes = passes_are_named(traced)
        """Whether the names of operations contain their pass."""
        gradients = [] if traced is None else jaxpr_gradients(traced.jaxpr)
        self._gradients = gradients if len(gradients) == len(self._outputs) else [False] * len(self._outputs)
        self._moments = moments_of_arguments(self._arguments)
        self._ways: dict[int, list[tuple[Value, Instruction]]] = {}

    @cached_property
    def products(self) -> list[Product]:
        """The products that run."""
        runs, found = self._module.once(executions), []
        for name, computation in self._module.computations.items():
            for place, products, *_ in () if runs[name].runs == {} else computation.once(costs):
                if products:
                    instruction = computation.instructions[place]
                    operands = [Value(name, operand) for operand in instruction.operands]
                    times = (runs[name].runs or {}).get((), 0)
                    reads = tuple(map(self._argument, operands))
                    value = Value(name, instruction.name, 0 if instruction.groups else None)
                    found.append(Product(value, instruction, 2 * products * times, reads))
        return found

    def _argument(self, value: Value) -> int | None:
        """Return the number of the argument that a value is a form of."""
        argument = self._dataflow.argument(value)
        return None if argument is None else self._flow.number(argument)

    @cached_property
    def _by_type(self) -> dict[Any, list[int]]:
        """Numbers of the floating arguments by shape and dtype."""
        return by_key(
            ((argument.shape, argument.dtype), number)
            for number, argument in enumerate(self._arguments)
            if _is_floating(argument.dtype)
        )

    @cached_property
    def _alike(self) -> list[list[int]]:
        """Numbers of the arguments that each output may replace or be the gradient of."""
        kinds = by_kind(
            (number, argument)
            for number, argument in enumerate(self._arguments)
            if _is_floating(argument.dtype)
        )
        return [alike_arguments(output, kinds, self._arguments) for output in self._outputs]

    def _like(self, place: int) -> list[int]:
        """Return the arguments that an output is most like: those of its shape, dtype and keys.

        Without any, those of its shape and dtype whose path has the most keys in common with its end, which
        are not all indices.
        """
        if self._alike[place]:
            return self._alike[place]
        output = self._outputs[place]
        alike = self._by_type.get((output.shape, output.dtype), ())
        ends = {number: common_end(self._arguments[number].path, output.path) for number in alike}
        longest = max(ends.values(), default=0)
        is_named = not all(map(str.isdecimal, output.path.split("/")[::-1][:longest]))
        return [number for number, end in ends.items() if end == longest and is_named]

    def _way(self, place: int) -> list[tuple[Value, Instruction]]:
        """Return the values on the way of a gradient to an output, nearest to the output first."""
        if place not in self._ways:
            self._ways[place] = self._walk(self._flow.start(place))
        return self._ways[place]

    def _walk(self, value: Value) -> list[tuple[Value, Instruction]]:
        """Return the values on the way of a gradient to a value. Those of the forward pass are none."""
        way = [*self._dataflow.walk(value, stops=self._ends)]
        for at, instruction in way:
            if instruction.opcode == "scatter":  # of a lookup, added to the gradient of another use
                added = Value(at.computation, instruction.operands[0])
                way += self._dataflow.walk(added, stops=self._ends)
        return [(at, instruction) for at, instruction in way if not _is_forward(instruction)]

    @cached_property
    def _is_of_derivative(self) -> dict[int, bool]:
        """Whether each product is of a derivative, by the ``id`` of its instruction."""
        return {id(product.instruction): self.is_of_derivative(product) for product in self.products}

    def is_of_derivative(self, product: Product) -> bool:
        """Return whether a product is of a derivative, and not of the optimizer, as in Muon.

        Products lose their names where XLA transposes them. Those of a derivative depend on no moments.
        """
        name = product.instruction.op_name
        if name or not self.tells_passes:
            return not self.tells_passes or pass_of(name) is not None
        way = self._dataflow.walk(product.value, stops=lambda one: pass_of(one.op_name) is not None)
        return self._moments.keys().isdisjoint(self._flow.number(value) for value, _ in way)

    def _ends(self, instruction: Instruction) -> bool:
        """Return whether an operation computes a gradient from other values, or is none of a gradient."""
        if _is_forward(instruction):
            return True
        if id(instruction) in self._is_of_derivative:
            return self._is_of_derivative[id(instruction)]
        plain = instruction.opcode.removesuffix("-start").removesuffix("-done")
        is_passed = plain in _WAY or ASYNC_COLLECTIVE in instruction.custom_call_target
        return not (is_passed or instruction.opcode in _WAY or is_elementwise(instruction))

    @cached_property
    def trained(self) -> dict[int, list[int]]:
        """Places of the outputs of each trained argument, which replace it or are its gradient."""
        places = [place for place in range(len(self._outputs)) if self._is_from_gradient(place)]
        changed = {place: self._changed_by(place) for place in places}
        alone = {numbers[0] for numbers in changed.values() if len(numbers) == 1}
        trained: dict[int, list[int]] = {}
        for place, numbers in changed.items():
            like = self._candidates(self._like(place))
            near = [number for number in like or numbers if number in numbers] or like
            is_average = len(numbers) > 1 and not alone.isdisjoint({*numbers} - {*near})
            if len(near) == 1 and not is_average:
                trained.setdefault(near[0], []).append(place)
        return trained

    def _changed_by(self, place: int) -> list[int]:
        """Return the arguments that an output may be the update of: it is computed from them one by one.

        Several for an average, as of a target network. None for a gradient.
        """
        way, output = self._way(place), self._outputs[place]
        read = set() if self._is_gradient(way) else {self._flow.number(value) for value, _ in way}
        alike = self._by_type.get((output.shape, output.dtype), ())
        return self._candidates(number for number in alike if number in read)

    def _candidates(self, numbers: Iterable[int]) -> list[int]:
        return [number for number in numbers if number not in self._moments and self._is_derived(number)]

    def _is_from_gradient(self, place: int) -> bool:
        # A combined collective has the names of all its arrays.
        return self._gradients[place] or any(
            computes(instruction)
            and instruction.opcode.removesuffix("-start") not in COLLECTIVES
            and pass_of(instruction.op_name) == "backward"
            for _, instruction in self._way(place)
        )

    def _is_derived(self, number: int) -> bool:
        """Return whether what an argument is first used for belongs to a derivative.

        Where names do not tell, all counts that is not on the way of an output, unlike the use of a moment.
        """
        argument = self._flow.argument(number)
        if argument is None or number in self._multiplied:
            return argument is not None
        users = self._dataflow.consumers(argument, is_end=_is_first_use)
        return any(_is_first_use(user) and self._is_used_in_derivative(user) for user in users)

    def _is_used_in_derivative(self, user: Instruction) -> bool:
        return pass_of(user.op_name) is not None if self.tells_passes else id(user) not in self._on_ways

    @cached_property
    def _on_ways(self) -> set[int]:
        """The ``id`` of each operation on the way of a gradient."""
        return {
            id(instruction)
            for place in range(len(self._outputs))
            if self._is_from_gradient(place)
            for _, instruction in self._way(place)
        }

    @cached_property
    def _multiplied(self) -> set[int | None]:
        """Numbers of the arguments that products of a derivative read."""
        derived = (product for product in self.products if pass_of(product.instruction.op_name) is not None)
        return {number for product in derived for number in product.reads}

    @cached_property
    def _of_gradient(self) -> dict[Value, int | None]:
        """The trained argument whose gradient a value is on the way of; None for several."""
        found: dict[Value, int | None] = {}
        for number, places in self.trained.items():
            for place in places:
                for value, _ in self._way(place):
                    found[value] = number if found.get(value, number) == number else None
        return found

    @cached_property
    def _parts(self) -> dict[bool, list[Product]]:
        """The products of gradients and of the optimizer, and the others."""
        return by_key((product.value in self._of_gradient, product) for product in self.products)

    @cached_property
    def _models(self) -> set[int]:
        """Numbers of the leaves of other models that are like those of the trained one.

        Such are a reference and a teacher, which look like moments, and a target network, which returns
        changed. Products read some leaves of each.
        """
        keys = [argument.path.split("/") for argument in self._arguments]
        ends = {
            (self._arguments[number].shape, *keys[number][first:])
            for number in self.trained
            for first in range(len(keys[number]))
        }
        roots: dict[int, list[str]] = {}
        for number, argument in enumerate(self._arguments):
            for first, _ in enumerate(keys[number] if number not in self.trained else ()):
                if (argument.shape, *keys[number][first:]) in ends:
                    roots.setdefault(number, keys[number][:first])
        read = {number for product in self._parts.get(False, ()) for number in product.reads}
        models = self._containers(read - self.trained.keys())
        return {number for number, root in roots.items() if tuple(root) in models}

    def _containers(self, numbers: Iterable[int | None]) -> set[tuple[str, ...]]:
        """Return the beginnings of the paths of some arguments, without the whole paths of several keys."""
        paths = [self._arguments[number].path.split("/") for number in numbers if number is not None]
        return {tuple(keys[:end]) for keys in paths for end in range(1, max(len(keys), 2))}

    @cached_property
    def numbers(self) -> Mapping[int, None]:
        """Numbers of the parameters, in the order of the arguments."""
        gradients, others = self._parts.get(True, ()), self._parts.get(False, ())
        data = {number for product in gradients for number in product.reads}
        weights = {
            number
            for product in others
            if not {None, *data}.isdisjoint(product.reads)
            and pass_of(product.instruction.op_name) != "backward"
            for number in product.reads
        }
        labels = {number for number, one in enumerate(self._arguments) if one.dtype in _LABELS and one.shape}
        of_trained = self._containers(self.trained)
        of_weights = {root for root in self._containers(weights) if len(root) == 1 or root[:1] in of_trained}
        below = (of_trained | of_weights) - self._containers({*data, *labels} - self.trained.keys())
        never = {*data, *({*self._changed, *self._moments} - self._models)}
        frozen = {
            number
            for number, argument in enumerate(self._arguments)
            if not below.isdisjoint(self._containers((number,)))
            and _is_floating(argument.dtype)
            and number not in never
            and (number in self._models or self._is_derived(number) or not self.trained)
        }
        return dict.fromkeys(sorted(frozen | self.trained.keys()))

    @cached_property
    def _changed(self) -> set[int]:
        """Numbers of the arguments that may return with other values."""
        return {
            number
            for place, alike in enumerate(self._alike)
            if not (self._is_from_gradient(place) and self._is_gradient(self._way(place)))
            for number in alike
            if self._argument(self._flow.start(place)) != number
        }

    def of_product(self, product: Product) -> int | None:
        """Return the only parameter that a product reads, or whose gradient it computes."""
        read = self.numbers.keys() & product.reads
        return read.pop() if len(read) == 1 else None if read else self._of_gradient.get(product.value)

    def is_sum(self, moved: Movement, passed: Phase | None) -> bool:
        """Return whether a collective on the way of a gradient sums it, and is not one of the optimizer.

        The user's own sum, such as a ``psum`` after ``jax.grad``, is of no pass.
        """
        is_backward = passed == "backward" or not self.tells_passes
        is_own = passed is None and self._is_gradient(self._walk(moved.value))
        return moved.kind in REDUCTIONS and (is_backward or is_own)

    def of_gradient(self, value: Value) -> int | None:
        """Return the parameter whose gradient a value is on the way of."""
        return None if self._argument(value) in self.numbers else self._of_gradient.get(value)

    def rows(self) -> tuple[Parameter, ...]:
        """Return the parameters as rows of a report."""
        moments = by_key(
            (self._owners.get(number, of), self._arguments[number].path)
            for number, of in self._moments.items()
            if number not in self._models
        )
        held = sums_by_key(self._held_gradients())
        return tuple(
            Parameter(
                path=self._arguments[number].path,
                is_trained=number in self.trained,
                moments=tuple(moments.get(number, ())),
                gradient_nbytes=held.get(number),
            )
            for number in self.numbers
        )

    @cached_property
    def _owners(self) -> dict[int, int]:
        """The parameter of each moment that is read for the update of one parameter only.

        Names do not tell the moments of two models with the same tree.
        """
        read = by_key(
            (self._flow.number(value), number)
            for number, places in self.trained.items()
            for place in places
            for value, _ in self._way(place)
        )
        return {
            moment: numbers[0]
            for moment, numbers in read.items()
            if moment is not None and len(set(numbers)) == 1
        }

    def _held_gradients(self) -> Iterator[tuple[int, int]]:
        """Yield the parameter and the bytes of each gradient that is an output or live at the peak."""
        for number, places in self.trained.items():
            for place in places:
                nbytes = self._outputs[place].nbytes
                if nbytes is not None and self._is_gradient(self._way(place)):
                    yield number, nbytes
        for buffer in highest_buffers(self._module):
            of = {
                of_writer
                for writer in buffer.writers
                if (of_writer := self._of_gradient.get(writer.value)) is not None
                and self._is_gradient(self._walk(writer.value))
            }
            if len(of) == 1:
                yield of.pop(), buffer.shape.nbytes

    def _is_gradient(self, way: list[tuple[Value, Instruction]]) -> bool:
        """Return whether a value is a gradient, and not an update or a moment.

        The operation that computes it is of the backward pass, or it depends neither on an argument nor on a
        product of the optimizer.

        Args:
            way: The way of the gradient to the value.
        """
        computed = [instruction for _, instruction in way if _is_first_use(instruction)]
        if computed and pass_of(computed[0].op_name) == "backward":
            return True
        products = (one for one in computed if id(one) in self._is_of_derivative)
        return all(self._flow.number(value) is None for value, _ in way) and all(map(self._ends, products))


def _is_first_use(instruction: Instruction) -> bool:
    """Return whether an operation computes something of an array, and does not only store or send it."""
    is_stored = instruction.opcode == "dynamic-update-slice"
    return computes(instruction) and not (is_stored or ASYNC_COLLECTIVE in instruction.custom_call_target)


def _is_forward(instruction: Instruction) -> bool:
    """Return whether an operation computes something in the forward pass, which the backward pass may repeat.

    A combined collective has the names of all its arrays.
    """
    name = instruction.op_name or ""
    is_named = REMATTED in name or pass_of(name) == "forward"
    return is_named and computes(instruction) and not instruction.groups


def _is_floating(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))
