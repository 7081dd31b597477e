"""Live jitted functions, their compiled programs, and other objects, from Python's garbage collector."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import itertools
import operator
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from inspect import Parameter, Signature
from itertools import repeat
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from . import private
from .processes import has_backends

module_names = vars(ModuleType)["__dict__"].__get__
"""Returns the dict of a module's variables, even if the module's class overrides ``__dict__``."""


def referents(*things: Any) -> list[Any]:
    """Return the objects to which some objects refer, as ``gc.get_referents`` does.

    For a module, only its dict of variables is returned, not the references in its C state. In CPython
    3.12.0 to 3.12.5, the C state of ``_asyncio`` lists freed objects: ``gc.get_referents`` revives them, and
    the next collection never ends (gh-122695).
    """
    if not _have_modules(things):
        return gc.get_referents(*things)
    modules = [thing for thing in things if type(thing) is ModuleType]
    others = [thing for thing in things if type(thing) is not ModuleType]
    return [*map(module_names, modules), *gc.get_referents(*others)]


def referents_of_each(things: Sequence[Any]) -> Iterator[list[Any]]:
    """Return an iterator over the referents of each object."""
    return map(referents if _have_modules(things) else gc.get_referents, things)


def attribute_dicts(*things: Any) -> list[dict[str, Any]]:
    """Return the dicts to which some objects refer, such as their ``__dict__``. Modules are not supported.

    Unlike ``vars``, this does not create a ``__dict__``.
    """
    return [part for part in gc.get_referents(*things) if type(part) is dict]


def _have_modules(things: Sequence[Any]) -> bool:
    return any(map(operator.is_, map(type, things), repeat(ModuleType)))


@functools.cache
def jitted_types() -> tuple[type, ...]:
    """Return the types of functions returned by ``jax.jit`` and, before JAX 0.8, by ``jax.pmap``."""
    import jax

    types = type(jax.jit(len)), type(jax.pmap(len))
    # Since JAX 0.8, pmap returns a plain function that calls a jitted one.
    return tuple(cls for cls in types if cls is not FunctionType)


def live_jitted_functions() -> list[Any]:
    """Return all live jitted functions, from Python's garbage collector.

    Each refers to its type. One C call collects them, so no other thread runs meanwhile: CPython cannot
    finish a tuple that another thread is building while a list of objects refers to it.
    """
    functions: list[Any] = []
    for cls in jitted_types():
        instances = filter(cls.__instancecheck__, itertools.chain.from_iterable(map(gc.get_referrers, [cls])))
        functions.extend(instances)
    # Another thread may be building a function that does not refer to the user's yet.
    return [function for function in functions if hasattr(function, "__wrapped__")]


JIT_INFO = "_jit_info"
"""Attribute of a jitted function with the arguments of ``jax.jit``, since JAX 0.6."""


def donated_parameters(function: Any) -> frozenset[int]:
    """Return the positions of the arguments that a jitted function donates; none where it is not recorded."""
    is_jitted = type(function) in jitted_types()
    return frozenset(getattr(getattr(function, JIT_INFO, None), "donate_argnums", ()) if is_jitted else ())


def is_pmapped(function: Any) -> bool:
    """Return whether a function was returned by ``jax.pmap``; since JAX 0.8 this is always False."""
    return type(function) in jitted_types()[1:]


def cache_entries(function: Any) -> int | None:
    """Return the number of entries in a jitted function's call cache; None if it is not available."""
    try:
        size = function._cache_size
        return int(size() if callable(size) else size)
    except (AttributeError, TypeError):
        return None


def empty_cache(function: Any) -> None:
    """Clear the caches of a jitted function. Up to JAX 0.7, the method of pmap has another name."""
    (function._cache_clear if is_pmapped(function) else function.clear_cache)()


class CompiledPrograms:
    """Live executables by jitted function.

    JAX caches traced programs by function, with weak keys, and lowered programs by traced program. Since
    JAX 0.6, a lowered program has its executable. The cache contents are read through Python's garbage
    collector: a lookup through JAX could trace a function and would change the eviction order.
    """

    def __init__(self) -> None:
        # A reference to each executable keeps its id from being reused.
        self._alive = _live_executables()
        self._by_function: dict[int, dict[int, Any]] | None
        try:
            self._by_function = _executables_by_function()
        except (ImportError, AttributeError, TypeError, LookupError):
            self._by_function = None

    def count_of(self, functions: Iterable[Any]) -> int | None:
        """Return the number of programs of some functions; None where JAX does not record it."""
        executables = self._of(functions)
        return None if executables is None else len(executables)

    def count_of_others(self, functions: Iterable[Any]) -> int | None:
        """Return the number of programs outside some functions; None where JAX does not record it."""
        executables = self._of(functions)
        if executables is None or self._alive is None:
            return None
        return sum(id(executable) not in executables for executable in self._alive)

    def _of(self, functions: Iterable[Any]) -> dict[int, Any] | None:
        if self._by_function is None:
            return None
        executables: dict[int, Any] = {}
        for function in functions:
            if is_pmapped(function):
                return None
            executables.update(self._by_function.get(id(function.__wrapped__), {}))
        return executables


def _live_executables() -> list[Any] | None:
    """Return the live executables of all backends; None where JAX does not list them."""
    if not has_backends():
        return []
    try:
        backends = private("xla_bridge").backends().values()
        return [executable for backend in backends for executable in backend.live_executables()]
    except (ImportError, AttributeError, RuntimeError):
        return None


def _executables_by_function() -> dict[int, dict[int, Any]]:
    """Return the executables of each jitted function, by the function's id and the executables' ids.

    Raises:
        ImportError, AttributeError, TypeError, LookupError: this version of JAX has other caches.
    """
    pjit = private("pjit")
    lowered = getattr(pjit, "_pjit_lower_cached", None) or pjit._pjit_lower  # _pjit_lower_cached: JAX 0.6
    by_program = {
        id(program): [
            part._executable.xla_executable
            for part in parts
            if getattr(part, "_executable", None) is not None
        ]
        for program, parts in _entries_by_key(lowered)
    }
    by_function: dict[int, dict[int, Any]] = {}
    for function, parts in _traced_by_function():
        executables = [executable for part in parts for executable in by_program.get(id(part), ())]
        by_function.setdefault(id(function), {}).update(
            (id(executable), executable) for executable in executables
        )
    return by_function


def _traced_by_function() -> Iterator[tuple[Any, list[Any]]]:
    """Yield each traced function with the cached results of its traces: jaxprs and other objects."""
    pjit = private("pjit")
    if hasattr(pjit, "_create_pjit_jaxpr"):  # up to JAX 0.8
        by_function = inspect.getclosurevars(pjit._create_pjit_jaxpr).nonlocals["fun_caches"]
        # Copied in one step, as other threads may trace. No key's __hash__ is called.
        for reference, results in list(by_function.data.items()):
            yield reference(), [part for result, *_ in list(results.values()) for part in result]
    else:
        for function, parts in _entries_by_key(private("interpreters.partial_eval").trace_to_jaxpr):
            # The result of a trace is a tuple. Some of its arguments are tuples too.
            yield function, [piece for part in parts if isinstance(part, tuple) for piece in part]


def _entries_by_key(cache: Any) -> list[tuple[Any, list[Any]]]:
    """Return each live key of a cache with weak keys, with all objects that its entries refer to.

    Raises:
        TypeError: If the object is not such a cache, or hides its keys.
    """
    if not hasattr(cache, "cache_keys"):
        raise TypeError(f"expected a cache with weak keys, got {type(cache)}")
    entries: list[tuple[Any, list[Any]]] = []
    for part in referents(cache):
        if type(part) is weakref.ReferenceType:
            entries.append((part(), []))
        elif entries:
            entries[-1][1].append(part)
    return [(key, parts) for key, parts in entries if key is not None]


JITTED = ("jitted_fn", "_cached")
"""Attributes of nnx and of Equinox with the function that ``jax.jit`` returned."""
CACHED_PARTIAL = ("f", "cached_args", "cache")
"""Variables of the function that ``nnx.cached_partial`` returns."""
CACHE = "static_cache"
"""The context of nnx in which it calls the function with the cached arguments."""
META_FIELDS = "meta_fields"
"""The variable of JAX's ``register_dataclass`` with the names of the static fields."""
STATES = "states"
"""The attribute with the flat variables of an object that nnx passes to JAX."""


class Unwrapped(NamedTuple):
    """A function in partials and bound methods, with all its arguments."""

    function: Any
    arguments: Sequence[Any]
    keywords: Mapping[str, Any]
    contexts: Sequence[AbstractContextManager[Any]] = ()
    """The contexts in which the function takes these arguments, outermost first."""


def unwrapped(function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Unwrapped:
    """Return the function in partials and bound methods, with all its arguments."""
    contexts: list[AbstractContextManager[Any]] = []
    while True:
        cells = closed_over(function)
        if isinstance(function, functools.partial) or _is_equinox_partial(function):
            arguments = (*function.args, *arguments)
            keywords = {**function.keywords, **keywords}
            inner = function.func
        elif isinstance(function, MethodType):
            # A bound method has the attributes of its function, but they lack the instance.
            arguments, inner = (function.__self__, *arguments), function.__func__
        elif set(CACHED_PARTIAL) <= cells.keys() and CACHE in function.__globals__:
            contexts.append(function.__globals__[CACHE](cells["cache"]))
            arguments, inner = (*cells["cached_args"], *arguments), cells["f"]
        else:
            return Unwrapped(function, arguments, keywords, contexts)
        function = inner


def jitted_inside(function: Any) -> Any:
    """Return the function of ``jax.jit`` in a library's jitted function; None for another object."""
    cached = closed_over(function)
    if set(CACHED_PARTIAL) <= cached.keys():
        return jitted_inside(cached["f"])
    attributes = getattr(function, "__dict__", {})
    values = (attributes.get(name) for name in JITTED)
    return next((value for value in values if type(value) in jitted_types()), None)


def is_jitted(value: Any) -> bool:
    """Return whether a value is a jitted function: of JAX, or of a library that has one inside."""
    return type(value) in jitted_types() or jitted_inside(value) is not None


def closed_over(function: Any) -> dict[str, Any]:
    """Return the variables of the enclosing function to which a function refers."""
    if not isinstance(function, FunctionType) or not function.__closure__:
        return {}
    cells = zip(function.__code__.co_freevars, function.__closure__, strict=True)
    return {name: cell.cell_contents for name, cell in cells if cell != CellType()}


def static_field_names(node: type | None) -> tuple[str, ...]:
    """Return the names of the static fields of a class of ``register_dataclass``; none for another class."""
    try:
        flatten = private("tree_util")._registry[node].to_iter
    except (AttributeError, KeyError):
        return ()
    return tuple(closed_over(flatten).get(META_FIELDS, ()))


def graph_statics(value: Any) -> dict[str, Any] | None:
    """Return the static attributes of the objects in a definition of nnx by path; None for another value."""
    if type(value).__name__ != "GraphDef" or not type(value).__module__.startswith("flax."):
        return None
    # Another version of Flax has other parts.
    with contextlib.suppress(Exception):
        entries = ((keys, entry) for keys, entry in _entries_of_graph(value) if _is_static(entry))
        return {"/".join(map(str, keys)): entry.value for keys, entry in entries}
    return None


def _is_equinox_partial(function: Any) -> bool:
    cls = type(function)
    return cls.__name__ == "Partial" and cls.__module__.partition(".")[0] == "equinox"


def position_names(signature: Signature, count: int) -> list[str]:
    """Return the names of positional arguments; those of ``*rest`` have a number."""
    names: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is Parameter.VAR_POSITIONAL:
            return names[:count] + [f"{parameter.name}[{number}]" for number in range(count - len(names))]
        names.append(parameter.name)
    return names[:count]


def nnx_states(arguments: Any) -> list[tuple[tuple[Any, ...], ...]]:
    """Return the keys of the variables of each object that nnx passes to JAX in some arguments, in order.

    Raises:
        AttributeError, KeyError, StopIteration: With another version of Flax, or without it.
    """
    import jax

    cls = sys.modules["flax.nnx.extract"].NodeStates
    values = jax.tree.leaves(arguments, is_leaf=lambda value: isinstance(value, cls))
    return [
        tuple(keys for keys, entry in _entries_of_graph(value.graphdef) if not _is_static(entry))
        for value in values
        if isinstance(value, cls)
    ]


def _is_static(attribute: Any) -> bool:
    return type(attribute).__name__ == "Static"


def _entries_of_graph(graph: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the keys of each variable and of each static attribute in the definition of an object, and it."""
    nodes, attributes = iter(graph.nodes), iter(graph.attributes)

    def walk(keys: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
        node = next(nodes)
        if type(node).__name__ in ("VariableDef", "ArrayRefDef"):
            yield keys, node
        for _ in range(getattr(node, "num_attributes", 0)):  # a reference to a known object has none
            key, attribute = next(attributes)
            if type(attribute).__name__ == "NodeAttr":
                yield from walk((*keys, key))
            else:
                yield (*keys, key), attribute

    return walk(())
