"""What each version of jax calls things.

The only module that compares versions, tolerates what a version lacks, or touches what jax keeps
private. jax is imported by the first function that needs it, so that importing the core does not.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import inspect
import itertools
import math
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from .callers import frames, is_in_jax, stacks_of_other_threads
from .errors import ProcessError
from .lowering import Compilation, LoweringPlace
from .meshes import mesh_placement
from .model import BatchAxes, MeshAxes
from .values import is_abstract_mesh, is_tracer

if TYPE_CHECKING:
    import jax


def mesh_axis_types(mesh: Any) -> tuple[str, ...]:
    """Return ``Auto``, ``Explicit`` or ``Manual`` for each axis; nothing where a mesh has no types.

    On jax 0.4.38 and 0.5.3 they are a mapping from the type to names.
    """
    types = getattr(mesh, "axis_types", None)
    if types is None:
        return ()
    if isinstance(types, dict):
        by_name = {
            name: kind
            for kind, names in types.items()
            for name in (names if isinstance(names, tuple) else (names,))
        }
        types = tuple(by_name.get(name) for name in mesh.axis_names)
    return tuple(getattr(kind, "name", str(kind)) for kind in types)


def mesh_axes(mesh: Any) -> MeshAxes:
    """Return names, sizes and types of a mesh's axes."""
    sizes = mesh_placement(mesh).sizes
    return MeshAxes(tuple(sizes), tuple(sizes.values()), mesh_axis_types(mesh))


def process_index() -> int:
    """Return ``jax.process_index()``, without starting a backend that nothing has started yet.

    Before, it is what ``jax.distributed.initialize`` was told; where jax is not loaded, the program is
    one process.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return 0
    state = _distributed_state()
    return int(jax.process_index() if state is None or has_backends() else state.process_id)


class Peers(NamedTuple):
    """The processes of a program, and how they reach each other."""

    client: Any
    """Of jax.distributed; private, and the same from jax 0.4.38 to 0.12."""
    process: int
    """Index of this process."""
    process_count: int


def peers() -> Peers | None:
    """Return the processes that ``jax.distributed`` has joined, None where there is but this one.

    Raises:
        ProcessError: there are others, but they were not joined.
    """
    jax = sys.modules.get("jax")
    if jax is None:
        return None
    state = _distributed_state()
    if state is not None and state.client is not None:
        found = Peers(state.client, state.process_id, state.num_processes)
        return found if found.process_count > 1 else None
    if has_backends() and jax.process_count() > 1:
        raise ProcessError(
            f"nothing connects the {jax.process_count()} processes: call jax.distributed.initialize in each"
        )
    return None


def _distributed_state() -> Any:
    """Return what ``jax.distributed`` knows, None where a later jax has moved it."""
    try:
        return _private("distributed").global_state
    except (ImportError, AttributeError):
        return None


def has_backends() -> bool:
    """Return whether JAX has started its backends; True where a later jax does not tell."""
    try:
        return bool(_private("xla_bridge").backends_are_initialized())
    except (ImportError, AttributeError):
        return True


def spec_entries(spec: Any) -> tuple[Any, ...]:
    """Return the entries of a PartitionSpec; from jax 0.10 on, some are not iterable."""
    return tuple(getattr(spec, "_partitions", spec))


def is_unconstrained(entry: object) -> bool:
    """Return whether an entry of a PartitionSpec is ``UNCONSTRAINED``; where jax is not loaded, none is."""
    jax = sys.modules.get("jax")
    return jax is not None and entry is jax.sharding.PartitionSpec.UNCONSTRAINED


def device_assignment(sharding: Any, shape: Sequence[int]) -> list[Any]:
    """Return a sharding's devices in the order in which XLA numbers them."""
    devices = getattr(sharding, "_device_assignment", None)
    if devices is None:
        devices = sharding.devices_indices_map(tuple(shape))
    return list(devices)


def xla_text(sharding: Any, ndim: int) -> str | None:
    """Return a sharding as XLA writes it, such as ``{devices=[8,1]<=[8]}``, where it has that form."""
    try:
        return str(sharding._to_xla_hlo_sharding(ndim))
    except (AttributeError, NotImplementedError):
        return None


def type_mesh(aval: Any) -> Any:
    """Return the mesh in an abstract value's type, None where it has none; jax 0.4.38 never has."""
    return getattr(getattr(aval, "sharding", None), "mesh", None)


def typed_sharding(aval: Any) -> Any:
    """Return the sharding that is part of an abstract value's type, None where the type does not say it.

    Only Explicit mesh axes are part of a type; over Auto ones alone it says ``P(None)``, which means
    nothing.
    """
    return aval.sharding if "Explicit" in mesh_axis_types(type_mesh(aval)) else None


def is_decided(sharding: Any) -> bool:
    """Return whether a type's sharding says all: of a mesh with Auto axes too, it knows the Explicit ones."""
    return sharding is None or set(mesh_axis_types(sharding.mesh)) == {"Explicit"}


def varying_axes(value: Any) -> tuple[str, ...]:
    """Return the manual mesh axes over which a value varies inside shard_map, sorted.

    They are ``aval.vma`` on jax 0.6–0.9 and ``mat.varying`` of the type from 0.10 on.
    """
    aval = value.aval
    varying = getattr(getattr(aval, "mat", None), "varying", None) or getattr(aval, "vma", ())
    return tuple(sorted(map(str, varying or ())))


def batch_of(value: Any) -> BatchAxes | None:
    """Return the axes that vmap hides from the function, where the tracers tell."""
    batch: BatchAxes | None = None
    while is_tracer(value):
        axis = getattr(value, "batch_dim", None)
        # What grad traces has a value of the same shape inside.
        value = getattr(value, "primal", None) if axis is None else value.val
        if isinstance(axis, int) and hasattr(value, "shape"):
            batch = (batch or BatchAxes((), ())).inside(axis, tuple(value.shape))
    return batch


def host_copy(array: jax.Array) -> np.ndarray[Any, Any] | None:
    """Return the value of a concrete 0-d array, waiting for it; None where that cannot be had harmlessly.

    Up to jax 0.11, reading an array that is on several devices, or of a dtype that is not numpy's own,
    leaves one more live array behind, so a passing alias of it is read instead. Of an array that
    spans processes no alias is made.
    """
    import jax

    sharding = array.sharding
    if not array.is_fully_addressable:
        return None
    devices = np.array(device_assignment(sharding, array.shape))
    alias = jax.sharding.NamedSharding(
        jax.sharding.Mesh(devices, ("jax_array_info alias",)),
        jax.sharding.PartitionSpec(),
        memory_kind=sharding.memory_kind,
    )
    try:
        # Inside a trace, device_put would become part of the user's program.
        with jax.ensure_compile_time_eval():
            return np.asarray(jax.device_put(array, alias))
    except Exception:
        # The computation that makes it has failed, a transfer guard forbids to read it, or this is
        # the inside of shard_map up to jax 0.6, from where no trace can be left: whatever is raised
        # there, the user's program goes on without this value.
        return None


def label_carrier(array: Any) -> Any:
    """Return the array that ``jax.live_arrays`` lists for this one: for PRNG keys the one under them."""
    return getattr(array, "_base_array", array)


def traceback_of(array: Any) -> Any:
    """Return the traceback of what made an array, which has a hash; None where this jax does not tell."""
    try:
        return label_carrier(array).traceback
    except (AttributeError, RuntimeError):
        # It is undocumented; of a deleted array it may be refused.
        return None


def tells_tracebacks() -> bool:
    """Return whether arrays remember what made them."""
    return hasattr(_private("array").ArrayImpl, "traceback")


def traceback_lines(traceback: Any) -> list[tuple[str, int, str]]:
    """Return file, line and function of each frame of such a traceback, the innermost first."""
    return [(frame.file_name, frame.line_num, frame.function_name) for frame in traceback.frames]


@functools.cache
def jitted_kinds() -> tuple[type, ...]:
    """Return the classes of what ``jax.jit`` returns, and ``jax.pmap`` where that has one of its own."""
    import jax

    kinds = type(jax.jit(len)), type(jax.pmap(len))
    # From jax 0.8 on, pmap returns a plain function, and jits within.
    return tuple(kind for kind in kinds if kind is not FunctionType)


def live_jitted_functions() -> list[Any]:
    """Return all jitted functions that are alive, as Python's garbage collector finds them.

    Each refers to its class. They are found in one call that runs no Python, so that no other thread
    runs meanwhile: a tuple that one is making could not be finished while a list of objects held it.
    """
    found: list[Any] = []
    for kind in jitted_kinds():
        of_kind = filter(kind.__instancecheck__, itertools.chain.from_iterable(map(gc.get_referrers, [kind])))
        found.extend(of_kind)
    return found


def is_pmapped(function: Any) -> bool:
    """Return whether one of these is what ``jax.pmap`` returns."""
    return type(function) in jitted_kinds()[1:]


def cache_entries(function: Any) -> int | None:
    """Return the entries of a jitted function's call cache, None where it does not tell."""
    try:
        size = function._cache_size
        return int(size() if callable(size) else size)
    except (AttributeError, TypeError):
        return None


def empty_cache(function: Any) -> None:
    """Empty the caches of a jitted function: pmap up to jax 0.7 has another name for that."""
    (function._cache_clear if is_pmapped(function) else function.clear_cache)()


class CompiledPrograms:
    """The compiled programs that are alive, and which jitted functions have them.

    JAX keeps what it has traced by the function, weakly, and what it has lowered by that. From jax 0.6
    on, what is lowered has the program. What the caches hold is read from Python's garbage collector:
    asking them could trace, and would change the order in which they forget.
    """

    def __init__(self) -> None:
        # Kept, so that ids stay theirs.
        self._alive = _live_executables()
        self._by_function: dict[int, dict[int, Any]] | None
        try:
            self._by_function = _executables_by_function()
        except (ImportError, AttributeError, TypeError, LookupError):
            self._by_function = None

    def count_of(self, functions: Iterable[Any]) -> int | None:
        """Return how many programs some functions have, None where this jax does not tell."""
        found = self._of(functions)
        return None if found is None else len(found)

    def count_of_no(self, functions: Iterable[Any]) -> int | None:
        """Return how many programs none of some functions has, None where this jax does not tell."""
        found = self._of(functions)
        if found is None or self._alive is None:
            return None
        return sum(id(executable) not in found for executable in self._alive)

    def _of(self, functions: Iterable[Any]) -> dict[int, Any] | None:
        if self._by_function is None:
            return None
        found: dict[int, Any] = {}
        for function in functions:
            if is_pmapped(function):
                return None
            found.update(self._by_function.get(id(function.__wrapped__), {}))
        return found


def _live_executables() -> list[Any] | None:
    """Return the executables of all backends, None where this jax does not list them."""
    if not has_backends():
        return []
    try:
        backends = _private("xla_bridge").backends().values()
        return [executable for backend in backends for executable in backend.live_executables()]
    except (ImportError, AttributeError, RuntimeError):
        return None


def _executables_by_function() -> dict[int, dict[int, Any]]:
    """Return the executables of each function under jit, by its id and theirs.

    Raises:
        ImportError, AttributeError, TypeError, LookupError: jax does not keep them as it is known.
    """
    pjit = _private("pjit")
    lowered = getattr(pjit, "_pjit_lower_cached", None) or pjit._pjit_lower  # the first: jax 0.6
    executables: dict[int, list[Any]] = {}
    for program, parts in _entries_by_key(lowered):
        compiled = (getattr(part, "_executable", None) for part in parts)
        executables[id(program)] = [one.xla_executable for one in compiled if one is not None]
    found: dict[int, dict[int, Any]] = {}
    for function, parts in _traced_by_function(pjit):
        of_function = found.setdefault(id(function), {})
        for part in parts:
            of_function.update((id(one), one) for one in executables.get(id(part), ()))
    return found


def _traced_by_function(pjit: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Yield functions, and what was kept of tracing them, jaxprs and more."""
    if hasattr(pjit, "_create_pjit_jaxpr"):  # up to jax 0.8
        by_function = inspect.getclosurevars(pjit._create_pjit_jaxpr).nonlocals["fun_caches"]
        # Copied at once, as other threads may trace; no key is asked for its hash.
        for reference, results in list(by_function.data.items()):
            yield reference(), [part for result, *_ in list(results.values()) for part in result]
    else:
        for function, parts in _entries_by_key(_private("interpreters.partial_eval").trace_to_jaxpr):
            # The result is a tuple, and so are some of what it was traced for.
            yield function, [piece for part in parts if isinstance(part, tuple) for piece in part]


def _entries_by_key(cache: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Yield each living key of a cache with weak keys, and all that its entries refer to.

    Raises:
        TypeError: it is no such cache, or it does not tell.
    """
    if not hasattr(cache, "cache_keys"):
        raise TypeError(f"no cache with weak keys: {type(cache)}")
    key: Any = None
    parts: list[Any] = []
    for part in gc.get_referents(cache):
        if type(part) is weakref.ReferenceType:
            if key is not None:
                yield key, parts
            key, parts = part(), []
        else:
            parts.append(part)
    if key is not None:
        yield key, parts


def _private(name: str) -> Any:
    """Return a module that jax keeps private."""
    return importlib.import_module(f"jax._src.{name}")


def is_ref(value: Any) -> bool:
    """Return whether a traced value is a Ref."""
    return type(value.aval).__name__ == "AbstractRef"


def will_not_compile() -> bool:
    """Return whether the trace around the caller is one that JAX makes without meaning to compile it.

    JAX does not say so: ``eval_shape``, ``make_jaxpr`` and ``export`` are looked for among the callers.
    Those that JAX itself calls, as ``jax.numpy.frompyfunc`` does, are a step on the way to a compilation.
    """
    waiting = False
    for frame in frames():
        if waiting and "traceback_util" not in frame.f_code.co_filename:
            if not is_in_jax(frame):
                return True
            waiting = False
        if frame.f_code.co_name in ("eval_shape", "make_jaxpr_f") and is_in_jax(frame):
            waiting = True
    return is_exporting()


def is_exporting() -> bool:
    """Return whether ``jax.export`` is among the callers."""
    return any(frame.f_code.co_name == "do_export" and is_in_jax(frame) for frame in frames())


def is_in_pallas() -> bool:
    """Return whether a Pallas kernel is traced around the caller: its language is not all of JAX's."""
    return any(
        f"{os.sep}pallas{os.sep}" in frame.f_code.co_filename for frame in frames() if is_in_jax(frame)
    )


def is_compiling() -> bool:
    """Return whether JAX compiles a program around the caller, instead of lowering one."""
    names = ("from_hlo", "_custom_partitioning_partition")
    return any(frame.f_code.co_name in names and is_in_jax(frame) for frame in frames())


def compiling_thread() -> int | None:
    """Return another thread in which JAX compiles a program, None where there is none."""
    for thread, stack in stacks_of_other_threads():
        if any(frame.f_code.co_name == "from_hlo" and is_in_jax(frame) for frame in stack):
            return thread
    return None


def lowering_place(module_context: Any) -> LoweringPlace | None:
    """Return what a module is lowered for; None when that is export."""
    if module_context.lowering_parameters.for_export:
        return None
    context = module_context.axis_context
    if hasattr(context, "manual_axes"):  # inside shard_map
        manual = frozenset(map(str, context.manual_axes))
        return LoweringPlace(context.mesh.size, mesh_axes(context.mesh), manual)
    if hasattr(context, "num_devices"):
        return LoweringPlace(context.num_devices)
    # pmap up to jax 0.7.2
    names = tuple(name if isinstance(name, str) else "unnamed" for name in context.axis_env.names)
    mesh = MeshAxes(names, tuple(context.axis_env.sizes))
    return LoweringPlace(math.prod(mesh.sizes), mesh, frozenset(names))


def inspection_primitive(name: str, *, has_result: bool) -> Any:
    """Return a primitive of one operand, which is its result where it has one.

    One without a result has an effect of the kind of ``jax.debug.print``, which all transformations admit.

    Raises:
        ImportError, AttributeError: this jax lacks what ``emit_inspection`` and the others here need.
    """
    _ = _private("lib").xla_client.encode_inspect_sharding_callback
    _ = _private("lib.mlir.dialects").hlo.CustomCallOp
    # jax.extend.core has it too; on jax 0.12, importing that inside a trace has all be compiled twice.
    primitive = _private("core").Primitive(name)
    primitive.multiple_results = not has_result
    if has_result:
        primitive.def_abstract_eval(lambda aval, **_: aval)
    else:
        effect = _asking_effect()
        primitive.def_effectful_abstract_eval(lambda aval, **_: ([], {effect}))
    _register_replication(primitive, has_result=has_result)
    return primitive


@functools.cache
def _asking_effect() -> Any:
    """Return the effect that keeps a question in the program, though it has no result."""

    class AskingEffect(_private("debugging").DebugEffect):  # type: ignore[misc]
        __str__ = lambda self: "AskSharding"  # noqa: E731

    return AskingEffect()


def forget_asking() -> None:
    """Take the effect of questions from the program that is being lowered: none of it is executed.

    With it, each call of the compiled function would go the slow way, and an exported one could not be
    serialized. Where this jax keeps its program elsewhere, that is how it stays; also where JAX checks
    that its programs have the effects of their parts.
    """
    import jax

    if jax.config.jax_enable_checks:
        return
    for frame in frames():
        # Up to Python 3.12, who asks for a frame's variables has it hold copies of all: not of a tracer.
        lowers = "closed_jaxpr" in frame.f_code.co_varnames and frame.f_code.co_filename.endswith("pxla.py")
        effects = getattr(frame.f_locals.get("closed_jaxpr"), "effects", None) if lowers else None
        if isinstance(effects, set):
            effects.discard(_asking_effect())


def _register_replication(primitive: Any, *, has_result: bool) -> None:
    """Tell shard_map up to jax 0.5 that a primitive leaves replication as it is."""
    with contextlib.suppress(ImportError, AttributeError):
        shard_map = importlib.import_module("jax.experimental.shard_map")
        shard_map.register_check(primitive)(lambda mesh, replicated, **_: replicated if has_result else [])
        shard_map.register_norewrite(primitive)


def register_for_refs(primitive: Any) -> None:
    """Tell JAX, where it has Refs, that a primitive without result leaves one as it is."""
    with contextlib.suppress(ImportError, AttributeError):
        register_discharge_rule = _private("state.discharge").register_discharge_rule

        def discharged(*arguments: Any, **parameters: Any) -> Any:
            # The content is last, after what JAX says of the types.
            primitive.bind(arguments[-1], **parameters)
            return [None], []

        register_discharge_rule(primitive)(discharged)


def emit_inspection(context: Any, value: Any, callback: Callable[[object], None]) -> None:
    """Put XLA's inspection call into a program: it is called back with the ``HloSharding`` of a value.

    That is the call of ``jax.debug.inspect_array_sharding``. XLA finds the callback by its address, which
    is part of the program's text, and takes the call out when it partitions the program.
    """
    from jax.interpreters import mlir

    xla_client, ir = _private("lib").xla_client, _private("lib.mlir").ir
    hlo = _private("lib.mlir.dialects").hlo
    context.module_context.add_keepalive(callback)
    key = xla_client.encode_inspect_sharding_callback(callback)
    hlo.CustomCallOp(
        [value.type],
        [value],
        call_target_name=ir.StringAttr.get("InspectSharding"),
        has_side_effect=ir.BoolAttr.get(True),
        api_version=mlir.i32_attr(1),
        called_computations=ir.ArrayAttr.get([]),
        backend_config=ir.StringAttr.get(key),
        operand_layouts=None,
        result_layouts=None,
    )


def ask_as_jax_does(value: Any, callback: Callable[[Any], None]) -> None:
    """Have ``jax.debug.inspect_array_sharding`` call back with a value's Sharding."""
    import jax

    jax.debug.inspect_array_sharding(value, callback=callback)


_T = TypeVar("_T")


def kept_with_module(module_context: Any, kind: type[_T]) -> _T:
    """Return the object of a class that a lowered module keeps alive: its first one, or a new one."""
    for kept in module_context.keepalives:
        if isinstance(kept, kind):
            return kept
    made = kind()
    module_context.add_keepalive(made)
    return made


_COMPILED_EVENT = "/jax/core/compile/backend_compile_duration"
_when_compiled: dict[type, Callable[[Any, bool], None]] = {}


def call_when_compiled(kind: type[_T], function: Callable[[_T, bool], None]) -> None:
    """Have a function called with what a module keeps alive and whether its compilation has succeeded."""
    monitoring = _private("monitoring")
    _when_compiled[kind] = function
    if _on_event not in monitoring.get_event_duration_listeners():
        monitoring.register_event_duration_secs_listener(_on_event)


def _on_event(event: str, duration: float, **_: Any) -> None:
    """Find, among the callers, the compilation that has ended, and what its module keeps alive."""
    if event != _COMPILED_EVENT:
        return
    inner: list[FrameType] = []
    for frame in frames():
        if _compiles(frame):
            succeeded = not _has_failed(inner)
            for thing in frame.f_locals["keepalive"] or ():
                if type(thing) in _when_compiled:
                    _when_compiled[type(thing)](thing, succeeded)
            return
        inner.append(frame)


def _has_failed(frames: Sequence[FrameType]) -> bool:
    """Return whether an exception is on its way out of one of some frames, where JAX tells of the end.

    From jax 0.5 on it tells of failures as well. An exception that the user handles meanwhile has come
    from elsewhere.
    """
    error = sys.exc_info()[1]
    traceback = None if error is None else error.__traceback__
    while traceback is not None:
        if any(traceback.tb_frame is frame for frame in frames):
            return True
        traceback = traceback.tb_next
    return False


def compilation_of(thing: object) -> Compilation:
    """Return what the module is being compiled for that keeps an object alive."""
    stacks = itertools.chain([frames()], (stack for _, stack in stacks_of_other_threads()))
    for compiling in itertools.chain.from_iterable(map(_compilations, stacks)):
        if any(other is thing for other in compiling["keepalive"] or ()):
            # Up to jax 0.6 an assignment becomes a list on the way.
            names = ("device_list", "da", "device_assignment")
            found = next((compiling[name] for name in names if compiling.get(name) is not None), ())
            devices = tuple(found)
            return Compilation(devices, _mesh_of(devices, compiling))
    return Compilation()


def _compilations(stack: Iterable[FrameType]) -> Iterator[Mapping[str, Any]]:
    """Yield what the functions on a stack that compile a module have as their variables."""
    for frame in stack:
        if _compiles(frame):
            yield frame.f_locals


def _compiles(frame: FrameType) -> bool:
    """Return whether a frame is JAX's function that compiles a module."""
    return frame.f_code.co_name == "from_hlo" and is_in_jax(frame) and "keepalive" in frame.f_locals


def _mesh_of(devices: tuple[Any, ...], compiling: Mapping[str, Any]) -> MeshAxes | None:
    """Return the mesh of the first sharding of a program that has one of all its devices."""
    names = ("in_shardings", "out_shardings", "intermediate_shardings")
    shardings = itertools.chain.from_iterable(compiling.get(name) or () for name in names)
    for mesh in [*(getattr(sharding, "mesh", None) for sharding in shardings), compiling.get("context_mesh")]:
        if mesh is None or mesh.empty or mesh.size != len(devices):
            continue
        if is_abstract_mesh(mesh) or tuple(mesh.devices.flat) == devices:
            return mesh_axes(mesh)
    return None


def keep_collectives_on_loopback() -> None:
    """Let collectives between CPU processes listen on 127.0.0.1 alone, where jax lets them be told.

    Left alone, Gloo listens on the address that the machine's own name stands for.
    """
    # jax looks the function up when it makes the backend, up to 0.4.38 in xla_extension.
    with contextlib.suppress(AttributeError):
        library = _private("lib").xla_client._xla
        make = library.make_gloo_tcp_collectives
        library.make_gloo_tcp_collectives = functools.partial(make, hostname="127.0.0.1")
