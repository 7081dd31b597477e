"""The private parts of JAX that the package leans on: a test for each names what a new JAX has moved.

Without such a part the user's program runs as before, but the package tells less, or costs more.
"""

import importlib.util
import operator
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.interpreters import mlir
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core.compat import (
    CompiledPrograms,
    ModuleListener,
    cache_entries,
    compilation,
    jax_stack,
    jitted,
    kept_with_module,
    lowering_place,
)
from jax_array_info_core.compat.frames import frames
from jax_array_info_core.compat.private import private

VERSION = tuple(map(int, jax.__version__.split(".")[:2]))
MOVED = "moved by a new jax"


class Part(NamedTuple):
    """A private part of JAX."""

    what: str
    used_by: str
    costs: str
    is_there: Callable[[], object]
    hide: Callable[[pytest.MonkeyPatch], None]
    since: tuple[int, int] = (0, 4)


def problem(part):
    """Return what is to be said of a part that is not where it was, None of one that is."""
    try:
        if part.is_there():
            return None
    except (ImportError, AttributeError):
        pass
    return f"jax {jax.__version__} has moved {part.what}, which {part.used_by} needs. It costs: {part.costs}."


def renamed(module, name):
    """Return how to hide a part whose name the package keeps in a constant: let the constant be wrong."""

    def hide(monkeypatch):
        names = getattr(module, name)
        monkeypatch.setattr(module, name, MOVED if isinstance(names, str) else (MOVED,) * len(names))

    return hide


def without(module, name, index):
    """Return how to hide one of several names that the package keeps in a constant."""

    def hide(monkeypatch):
        names = getattr(module, name)
        monkeypatch.setattr(module, name, (*names[:index], MOVED, *names[index + 1 :]))

    return hide


def attribute(module, path, used_by, costs, **since):
    """Return a part that is an attribute, by a path of names, in one of JAX's private modules."""
    first = path.partition(".")[0]
    return Part(
        f"{path} of jax._src.{module}",
        used_by,
        costs,
        lambda: operator.attrgetter(path)(private(module)) or True,
        lambda monkeypatch: monkeypatch.delattr(private(module), first),
        **since,
    )


class Probe(ModuleListener):
    """What the package keeps with the module of one small program, and finds out by it."""

    def __init__(self):
        self.found = set()

    def watch(self, event):
        """Take note of what can be read where JAX tells of an event."""
        frame = next(jax_stack.compiling(frames()), None)
        result = jax_stack.lowering_result()
        found_by = jax_stack.compilation_of(self)
        seen = {
            event: True,
            "is compiling": jax_stack.is_compiling(),
            "result": result is not None and self in result.keepalive and result.module,
            "kept": frame is not None and self in jax_stack.kept_alive(frame),
            "devices": found_by.devices == (jax.devices()[0],),
            "mesh": found_by.mesh is not None,
            "context mesh": frame is not None and jax_stack.MESH in frame.f_code.co_varnames,
        }
        self.found.update(name for name, is_seen in seen.items() if is_seen)


class Context:
    """What JAX gives to lowering rules, without one attribute."""

    hidden = ""

    def __init__(self, context):
        self._context = context

    def __getattr__(self, name):
        if name == self.hidden:
            raise AttributeError(name)
        return getattr(self._context, name)


watching: list[Probe] = []


@pytest.fixture(scope="module", autouse=True)
def events():
    """JAX tells the probe of its events."""

    def listen(event, duration, **_):
        for probe in watching:
            probe.watch(event)

    jax.monitoring.register_event_duration_secs_listener(listen)


def found():
    """Return what is found out about a program while it is lowered and compiled."""
    primitive = private("core").Primitive("probe")
    primitive.def_abstract_eval(lambda aval: aval)

    def lower(context, value):
        module_context = Context(context.module_context)
        probe = kept_with_module(module_context, Probe)
        watching.append(probe)
        if kept_with_module(module_context, Probe) is probe:
            probe.found.add("one listener")
        if lowering_place(module_context) == (1, None, frozenset()):
            probe.found.add("place")
        if jax_stack.lowered_effects():
            probe.found.add("effects")
        return [value]

    mlir.register_lowering(primitive, lower)
    sharding = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("a",)), P("a"))
    try:
        jax.jit(primitive.bind, in_shardings=sharding)(jnp.ones(4))
        return watching[-1].found
    finally:
        watching.clear()


def finds(what):
    return lambda: what in found()


def hidden(name):
    return lambda monkeypatch: monkeypatch.setattr(Context, "hidden", name)


def answers(question, trace):
    """Return a check that a question is answered wherever a function is traced."""

    def check():
        answered = []
        trace(lambda *values: answered.append(question()) or values[0])
        return answered and all(answered)

    return check


def in_kernel(function):
    from jax.experimental import pallas

    def kernel(read, written):
        written[...] = function(read[...])

    pallas.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct((8,), np.float32), interpret=True)(jnp.ones(8))


def in_scatter(function):
    jax.make_jaxpr(
        lambda x: jax.lax.scatter_apply(
            x, jnp.zeros((1,), int), function, jax.lax.ScatterDimensionNumbers((), (0,), (0,))
        )
    )(jnp.ones(8))


def in_reduction(function):
    jax.make_jaxpr(lambda x: jax.lax.reduce(x, np.float32(0), lambda a, b: function(a + b), (0,)))(
        jnp.ones(8)
    )


def compiled_once():
    function = jax.jit(lambda x: x + 1)
    function(1.0)
    return function


def compilations():
    function = compiled_once()
    return CompiledPrograms().count_of([function]) == 1


def effects():
    return jax.make_jaxpr(lambda x: x)(1.0).effects


def custom_partitioning():
    return hasattr(private("custom_partitioning"), jax_stack.COMPILE_PART)


SLOW = "each call of a function with sharding_info takes the slow way, and jax.export refuses it"
KILLED = "an inspection in the function of a reduction is not taken out, and XLA kills the process"
SILENT = "a traced value on one device, or one that XLA removes, is never reported"
NO_DEVICES = "reports of traced values have neither devices nor bytes per device"
NO_MESH = "reports of traced values have XLA's sharding in place of a PartitionSpec"
NEVER_TOLD = "sharding_info in a function that is only traced reports nothing"
NO_PRIMITIVE = "jax.debug.inspect_array_sharding is used, without vmap, tap_sharding's order and much else"
NO_KILLER = "an inspection is inserted where XLA cannot answer it"
NO_STAGING = "report_on_oom inside jit does not warn"
NO_GATHER = "gather_reports and process_index do not know what jax.distributed has joined"
NO_COMPILATIONS = "print_compile_caches has ? in place of the number of compilations"

STACK = "compat/jax_stack.py"
EVENTS = "compat/compilation.py"
RULES = "compat/inspection.py"

PARTS = [
    Part(
        "the variable closed_jaxpr of functions in pxla.py",
        f"lowered_effects in {STACK}",
        SLOW,
        finds("effects"),
        without(jax_stack, "LOWER", 1),
    ),
    Part(
        "the file pxla.py of the functions that lower",
        f"lowered_effects in {STACK}",
        SLOW,
        finds("effects"),
        without(jax_stack, "LOWER", 0),
    ),
    Part(
        "the set that a jaxpr has as its effects",
        f"lowered_effects in {STACK}",
        SLOW,
        lambda: isinstance(effects(), set),
        lambda monkeypatch: monkeypatch.setitem(globals(), "effects", frozenset),
    ),
    Part(
        "the variable lowering_result, or its keepalive or module",
        f"lowering_result in {STACK}",
        KILLED,
        finds("result"),
        renamed(jax_stack, "LOWERED"),
    ),
    Part(
        "the event of a lowering",
        f"_on_event in {EVENTS}",
        KILLED,
        lambda: compilation.LOWERED_EVENT in found(),
        renamed(compilation, "LOWERED_EVENT"),
    ),
    Part(
        "the event of a compilation",
        f"_on_event in {EVENTS}",
        SILENT,
        lambda: compilation.COMPILED_EVENT in found(),
        renamed(compilation, "COMPILED_EVENT"),
    ),
    Part(
        "the function from_hlo",
        f"compiling in {STACK}",
        f"{SILENT}; {NO_DEVICES}",
        finds("is compiling"),
        renamed(jax_stack, "COMPILE"),
    ),
    Part(
        "the variable keepalive of from_hlo",
        f"compiling in {STACK}",
        f"{SILENT}; {NO_DEVICES}",
        finds("kept"),
        renamed(jax_stack, "KEPT"),
    ),
    Part(
        "the variable of from_hlo that has its devices",
        f"compilation_of in {STACK}",
        NO_DEVICES,
        finds("devices"),
        renamed(jax_stack, "DEVICES"),
    ),
    Part(
        "the variable in_shardings of from_hlo",
        f"compilation_of in {STACK}",
        NO_MESH,
        finds("mesh"),
        renamed(jax_stack, "SHARDINGS"),
    ),
    Part(
        "the variable context_mesh of from_hlo",
        f"compilation_of in {STACK}",
        NO_MESH,
        finds("context mesh"),
        renamed(jax_stack, "MESH"),
        since=(0, 5),
    ),
    Part(
        "_custom_partitioning_partition of jax._src.custom_partitioning",
        f"is_compiling in {STACK}",
        SILENT,
        custom_partitioning,
        renamed(jax_stack, "COMPILE_PART"),
    ),
    Part(
        "the function that jax.eval_shape calls",
        f"will_not_compile in {STACK}",
        NEVER_TOLD,
        answers(jax_stack.will_not_compile, lambda f: jax.eval_shape(f, 1.0)),
        without(jax_stack, "NOT_COMPILED", 0),
    ),
    Part(
        "the function that jax.make_jaxpr returns",
        f"will_not_compile in {STACK}",
        NEVER_TOLD,
        answers(jax_stack.will_not_compile, lambda f: jax.make_jaxpr(f)(1.0)),
        without(jax_stack, "NOT_COMPILED", 1),
    ),
    Part(
        "the module traceback_util",
        f"will_not_compile in {STACK}",
        NEVER_TOLD,
        lambda: importlib.util.find_spec(f"jax._src.{jax_stack.WRAPPER}"),
        renamed(jax_stack, "WRAPPER"),
    ),
    Part(
        "the function do_export",
        f"is_exporting in {STACK}",
        NEVER_TOLD,
        answers(jax_stack.is_exporting, lambda f: export.export(jax.jit(f))(1.0)),
        renamed(jax_stack, "EXPORT"),
    ),
    Part(
        "the function _reduction_jaxpr",
        f"blind_spot in {STACK}",
        NO_KILLER,
        answers(jax_stack.blind_spot, in_scatter),
        without(jax_stack, "REDUCTION", 0),
    ),
    Part(
        "the function _variadic_reduction_jaxpr",
        f"blind_spot in {STACK}",
        NO_KILLER,
        answers(jax_stack.blind_spot, in_reduction),
        without(jax_stack, "REDUCTION", 1),
    ),
    Part(
        "the folder pallas",
        f"blind_spot in {STACK}",
        NO_KILLER,
        answers(jax_stack.blind_spot, in_kernel),
        renamed(jax_stack, "KERNEL_FOLDER"),
    ),
    Part(
        "the class DynamicJaxprTrace, or a trace's parent_trace",
        f"is_staging in {STACK}",
        NO_STAGING,
        answers(jax_stack.is_staging, lambda f: jax.jit(f)(1.0)),
        renamed(jax_stack, "STAGING"),
    ),
    attribute("core", "trace_ctx.trace", f"is_staging in {STACK}", NO_STAGING),
    Part(
        "keepalives of a module's context",
        f"kept_with_module in {EVENTS}",
        NO_PRIMITIVE,
        finds("one listener"),
        hidden("keepalives"),
    ),
    Part(
        "add_keepalive of a module's context",
        f"kept_with_module in {EVENTS}",
        NO_PRIMITIVE,
        finds("one listener"),
        hidden("add_keepalive"),
    ),
    Part(
        "axis_context of a module's context, or its num_devices",
        "lowering_place in compat/lowering.py",
        NO_PRIMITIVE,
        finds("place"),
        hidden("axis_context"),
    ),
    Part(
        "lowering_parameters of a module's context, or their for_export",
        "lowering_place in compat/lowering.py",
        NO_PRIMITIVE,
        finds("place"),
        hidden("lowering_parameters"),
    ),
    attribute("monitoring", "get_event_duration_listeners", f"kept_with_module in {EVENTS}", NO_PRIMITIVE),
    attribute(
        "monitoring", "register_event_duration_secs_listener", f"kept_with_module in {EVENTS}", NO_PRIMITIVE
    ),
    attribute("core", "Primitive", f"inspection_primitive in {RULES}", NO_PRIMITIVE),
    attribute("debugging", "DebugEffect", f"inspection_primitive in {RULES}", NO_PRIMITIVE),
    attribute(
        "lib", "xla_client.encode_inspect_sharding_callback", f"emit_inspection in {RULES}", NO_PRIMITIVE
    ),
    attribute("lib.mlir", "ir.StringAttr", f"emit_inspection in {RULES}", NO_PRIMITIVE),
    attribute("lib.mlir.dialects", "hlo.CustomCallOp", f"emit_inspection in {RULES}", NO_PRIMITIVE),
    attribute("distributed", "global_state.client", "peers in compat/processes.py", NO_GATHER),
    attribute("distributed", "global_state.process_id", "peers in compat/processes.py", NO_GATHER),
    attribute("distributed", "global_state.num_processes", "peers in compat/processes.py", NO_GATHER),
    attribute(
        "xla_bridge",
        "backends_are_initialized",
        "has_backends in compat/processes.py",
        "process_index starts a backend",
    ),
    attribute("xla_bridge", "backends", "compat/jitted.py", NO_COMPILATIONS),
    Part(
        "_cache_size of a jitted function",
        "cache_entries in compat/jitted.py",
        "print_compile_caches has ? in place of the number of entries",
        lambda: cache_entries(compiled_once()) == 1,
        lambda monkeypatch: monkeypatch.delattr(type(jax.jit(len)), "_cache_size"),
    ),
    Part(
        "the caches of pjit.py: _pjit_lower and what has traced functions",
        "CompiledPrograms in compat/jitted.py",
        NO_COMPILATIONS,
        compilations,
        lambda monkeypatch: monkeypatch.setattr(jitted, "private", lambda name: None),
        since=(0, 6),
    ),
]

each_part = pytest.mark.parametrize(
    "part", [part for part in PARTS if part.since <= VERSION], ids=lambda part: part.what
)


@each_part
def test_this_jax_has(part):
    assert problem(part) is None


@each_part
def test_what_is_hidden_is_named(part, monkeypatch):
    part.hide(monkeypatch)
    assert problem(part) == (
        f"jax {jax.__version__} has moved {part.what}, which {part.used_by} needs. It costs: {part.costs}."
    )
