"""Signatures of calls: functions, arrays, static arguments and the structures of trees."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from inspect import Parameter
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from ...arrays.origins.origins import code_of, wrapped_functions
from ...arrays.paths import SlashNotation, key_text
from ...base.quantities import format_devices
from ...base.text import plain_shape, plain_text
from ...compat.arrays import is_committed
from ...compat.compiled_calls import CompiledCall, Kind, jit_options, jit_parameters
from ...compat.jax_stack import ContextValue, trace_context
from ...compat.shardings import host_memory_kind, sharding_facts
from ...compat.stages import slash_names
from ...compat.values import is_array, is_sharding, type_name
from ...geometry.layouts.spec import MeshAxes, effective_spec
from .statics import PYTHON, Part, Reader, Serials, Static, identity_of

_MOST_NODES = 10_000


class Tree(NamedTuple):
    """The structure of an argument."""

    shape: Hashable
    """A value that differs where the nesting or the classes of the nodes differ."""

    nodes: tuple[tuple[str, Static], ...]
    """Class and static fields of each node of a class outside Python."""


def tree_of(value: Any, serials: Serials) -> Tree:
    """Return the structure of an argument."""
    import jax

    structure: Any = jax.tree_util.tree_structure(value)
    # The hashes of equal structures differ: JAX has other entries for classes in its own calls.
    kinds: list[Hashable] = [structure.num_nodes]
    try:
        nodes = tuple(_nodes(structure, Reader(serials), kinds))
    except Exception:
        # The static fields are of the user's classes.
        nodes = ()
    return Tree(hash(tuple(kinds)), nodes)


def _nodes(structure: Any, reader: Reader, kinds: list[Hashable]) -> Iterator[tuple[str, Static]]:
    """Yield class and static fields of the nodes, and add the class and the children of each to ``kinds``."""
    waiting = [structure]
    for _ in range(_MOST_NODES):
        if not waiting:
            return
        node = waiting.pop()
        data = node.node_data()
        if data is None:
            kinds.append(None)
            continue
        kind, fields = data
        children = node.children()
        kinds.append((kind, len(children)))
        if kind not in PYTHON:
            yield kind.__qualname__, reader.static(fields, kind)
        waiting += reversed(children)


class SharedOver(NamedTuple):
    """The sharding of a committed array."""

    text: str
    """Its spec, or another short form."""

    mesh: str
    """The mesh, such as ``data=4, model=2``; empty without one."""

    devices: str
    layout: Hashable
    """Equal for shardings that place an array of one rank alike; None where it is unknown."""

    axes: MeshAxes | None = None
    """The axes of the mesh, with their types; None without a mesh."""


class CallLeaf(NamedTuple):
    """One leaf of an argument: an array, a scalar, None or another object."""

    shape: tuple[int | str, ...] | None
    """None for a value that is not an array."""

    dtype: str
    """For a value that is not an array, the name of its class."""

    weak_type: bool = False
    is_committed: bool = False
    sharding: SharedOver | None = None
    """The sharding, if the array is committed or the program has one for it."""


class Leaves:
    """Reader of the leaves of one call. Equal shardings are read once."""

    def __init__(self) -> None:
        self._shardings: dict[tuple[int, int], SharedOver | None] = {}

    def of_argument(self, name: str, value: Any) -> Iterator[tuple[str, CallLeaf]]:
        """Yield the path and the facts of each leaf of an argument."""
        import jax

        leaves, _ = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda node: node is None)
        if len(leaves) == 1 and not leaves[0][0]:
            yield name, self.of_value(value)
            return
        paths = SlashNotation().children([keys for keys, _ in leaves])
        for path, (_, leaf) in zip(paths, leaves, strict=True):
            yield name + path, self.of_value(leaf)

    def of_value(self, value: Any) -> CallLeaf:
        """Return the facts of one value. Its elements are not read."""
        if is_array(value):
            committed = is_committed(value)
            sharding = self.of_sharding(value.sharding, value.shape) if committed else None
            weak = bool(getattr(value, "weak_type", False))
            return CallLeaf(plain_shape(value.shape), plain_text(value.dtype), weak, committed, sharding)
        if type(value) in (bool, int, float, complex):
            return CallLeaf((), self._canonical(np.dtype(type(value))), type(value) is not bool)
        if issubclass(type(value), np.ndarray | np.generic):
            return CallLeaf(plain_shape(value.shape), self._canonical(value.dtype))
        if value is None:
            return CallLeaf(None, "None")
        return self.of_type(value)

    def of_type(self, value: Any, sharding: Any = None) -> CallLeaf:
        """Return the facts of an abstract value, with the sharding that a program has for it."""
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        if shape is None or dtype is None:
            return CallLeaf(None, type_name(value))
        layout = self.of_sharding(sharding, shape) if is_sharding(sharding) else None
        weak = bool(getattr(value, "weak_type", False))
        return CallLeaf(plain_shape(shape), plain_text(dtype), weak, layout is not None, layout)

    def of_sharding(self, sharding: Any, shape: Any) -> SharedOver | None:
        """Return the facts of a sharding; None if they cannot be read."""
        key = (id(sharding), len(shape))
        if key not in self._shardings:
            self._shardings[key] = _shared_over(sharding, shape)
        return self._shardings[key]

    def _canonical(self, dtype: np.dtype[Any]) -> str:
        """Return the name of the dtype that JAX gives to a value of the host."""
        import jax

        return str(jax.dtypes.canonicalize_dtype(dtype))


def _shared_over(sharding: Any, shape: Any) -> SharedOver | None:
    try:
        facts = sharding_facts(sharding, plain_shape(shape))
    except Exception:
        # A sharding may be a class of the user's, and this runs inside the user's call.
        return None
    description, layout = facts.description, facts.layout
    devices = format_devices(None, facts.devices.ids)
    text, mesh, axes = devices, "", None
    if description is not None and description.spec is not None and description.mesh is not None:
        axes, sizes = description.mesh, description.mesh.shape
        text = str(effective_spec(description.spec, sizes))
        mesh = ", ".join(f"{name}={size}" for name, size in sizes.items())
    elif description is not None and description.text:
        text = description.text
    if facts.memory_kind and host_memory_kind(sharding):
        text += f" in {facts.memory_kind}"
    key = None if layout is None else (layout.device_ids.shape, hash(layout.device_ids.tobytes()))
    return SharedOver(text, mesh, devices, None if key is None else (key, facts.memory_kind), axes)


COMPILER_OPTION = "compiler option"
"""Beginning of the name of an option of ``compile()`` in the context."""
_MOST_STATIC_VALUES = 1000


class Signature(NamedTuple):
    """A compiled call. It holds no array, and no object of the user's."""

    kind: Kind
    group: Hashable
    """Equal for the calls of one function, and of other function objects of the same line."""

    functions: tuple[int, ...]
    """Numbers of the function object, and of the user's in it; empty if it was not on the stack."""

    codes: tuple[int, ...]
    """Numbers of their code."""

    bound: Part
    """The values that are bound to them, as by ``partial``."""

    leaves: dict[str, CallLeaf]
    """The arrays and scalars, by path."""

    statics: dict[str, Static]
    """The static arguments, by name."""

    trees: dict[str, Tree]
    """The structure of each other argument, by name."""

    keywords: tuple[str, ...]
    """The arguments that were passed by name."""

    context: dict[str, ContextValue]
    """Settings of JAX, the mesh, and the arguments of ``jax.jit``."""


def signature_of(call: CompiledCall, serials: Serials, function: Any = None) -> Signature:
    """Return the signature of a call.

    Args:
        call: The call.
        serials: Numbers of the objects of one watch.
        function: The user's function, if a library passes it as an argument of its own jitted function.
    """
    functions = [candidate for candidate in (call.function, function) if candidate is not None]
    context = trace_context()
    layers = [layer for function in functions for layer in wrapped_functions(function)]
    leaves, reader = Leaves(), Reader(serials)
    signature = Signature(
        kind=call.kind,
        group=_group(call, layers),
        functions=tuple(map(serials.of, functions)),
        codes=tuple(identity_of(code) for code in map(code_of, layers) if code is not None),
        bound=reader.bound(layers),
        leaves={},
        statics={},
        trees={},
        keywords=tuple(sorted(map(plain_text, call.kwargs))),
        context=context,
    )
    if call.kind in ("call", "pmap"):
        for name, value, is_static in _arguments(call):
            if is_static:
                signature.statics[name] = reader.static(value)
            else:
                signature.leaves.update(leaves.of_argument(name, value))
                signature.trees[name] = tree_of(value, serials)
        context.update((name, ContextValue(text)) for name, text in jit_options(call.options).items())
    else:
        names = dict(enumerate(slash_names(call.names)))
        for number, aval in enumerate(call.avals):
            path = names.get(number) or f"input {number}"
            signature.leaves[path] = leaves.of_type(aval, call.shardings.get(number))
        for name, text in call.compiler_options.items():
            context[f"{COMPILER_OPTION} {name}"] = ContextValue(text)
    return signature


def functions_of(call: CompiledCall) -> Iterator[Any]:
    """Yield the function of a call, then those in its static arguments, as of ``equinox.filter_jit``."""
    if call.function is None:
        return
    yield call.function
    waiting = [value for _, value, is_static in _arguments(call) if is_static]
    for _ in range(_MOST_STATIC_VALUES):
        if not waiting:
            return
        value = waiting.pop(0)
        if type(value) is FunctionType:
            yield value
        elif type(value) is tuple:
            waiting += value


def _group(call: CompiledCall, layers: Sequence[Any]) -> Hashable:
    if call.kind == "transformed" and call.source is not None:
        # The backward pass runs after the call, and its program has other inputs.
        return call.source.name, call.source.file, call.function is None
    codes = [code_of(layer) for layer in layers]
    lines = [(code.co_filename, code.co_firstlineno, code.co_name) for code in codes if code is not None]
    return tuple(lines) or call.source


def _arguments(call: CompiledCall) -> Iterator[tuple[str, Any, bool]]:
    """Yield name, value and whether it is static of each argument."""
    parameters, static_numbers, static_names = jit_parameters(call.options, call.function)
    positional = [
        parameter.name
        for parameter in parameters
        if parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    ]
    variadic = next(
        (parameter.name for parameter in parameters if parameter.kind is Parameter.VAR_POSITIONAL), "args"
    )
    for number, value in enumerate(call.args):
        is_named = number < len(positional)
        name = positional[number] if is_named else f"{variadic}/{number - len(positional)}"
        yield name, value, number in static_numbers or (is_named and name in static_names)
    for keyword, value in call.kwargs.items():
        yield key_text(keyword), value, keyword in static_names
