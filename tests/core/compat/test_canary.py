"""A test for each private part of JAX that this project uses, which fails when a new version moves it.

Without such a part, the user's program still runs, but reports lack facts or cost more.
"""

import importlib.util
import operator
from collections.abc import Callable
from typing import NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.extend import linear_util
from jax.interpreters import mlir
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core.compat import (
    CompiledPrograms,
    ModuleListener,
    cache_entries,
    compile_events,
    compiled_calls,
    fresh_compile,
    jax_stack,
    jitted,
    lowering_place,
    module_listener,
    topologies,
    topology_lowering,
)
from jax_array_info_core.compat import compile_events as compilation
from jax_array_info_core.compat import compiled_calls as cached_calls
from jax_array_info_core.compat import jax_stack as trace_context
from jax_array_info_core.compat.jax_stack import frames
from jax_array_info_core.compat.topology_names import parse_topology
from jax_array_info_core.compat.values import private

pytestmark = pytest.mark.once_per_version

VERSION = tuple(map(int, jax.__version__.split(".")[:2]))
MOVED = "moved by a new jax"


class Part(NamedTuple):
    """A private part of JAX."""

    name: str
    is_present: Callable[[], object]
    hide: Callable[[pytest.MonkeyPatch], None]


def problem(part, used_by, consequence):
    """Return the message for a missing part, None for one that is present."""
    try:
        if part.is_present():
            return None
    except (ImportError, AttributeError):
        pass
    return f"jax {jax.__version__} has moved or removed {part.name}, which {used_by} needs: without it, {consequence}"


def renamed(module, name):
    """Return a function that hides a part by changing the constant with its name."""

    def hide(monkeypatch):
        names = getattr(module, name)
        monkeypatch.setattr(module, name, MOVED if isinstance(names, str) else (MOVED,) * len(names))

    return hide


def without(module, name, index):
    """Return a function that hides a part by changing one of several names in a constant."""

    def hide(monkeypatch):
        names = getattr(module, name)
        monkeypatch.setattr(module, name, (*names[:index], MOVED, *names[index + 1 :]))

    return hide


def attribute(module, path):
    """Return the part at a dotted path in one of JAX's private modules."""
    name = path.partition(".")[0]
    return Part(
        f"jax._src.{module}.{path}",
        lambda: operator.attrgetter(path)(private(module)) or True,
        lambda monkeypatch: monkeypatch.delattr(private(module), name),
    )


class Probe(ModuleListener):
    """A listener of one small program that records the private parts it finds."""

    def __init__(self):
        self.found = set()

    def watch(self, event):
        """Record the parts that are present when JAX records an event."""
        frame = next(jax_stack.compiling(frames()), None)
        result = jax_stack.lowering_result()
        compilation = jax_stack.compilation_target(self)
        is_present = {
            event: True,
            "is compiling": jax_stack.is_compiling(),
            "result": result is not None and self in result.keepalive and result.module,
            "keepalives": frame is not None and self in jax_stack.keepalives(frame),
            "devices": compilation.devices == (jax.devices()[0],),
            "mesh": compilation.mesh is not None,
            "context mesh": frame is not None and jax_stack.MESH in frame.f_code.co_varnames,
        }
        self.found.update(name for name, present in is_present.items() if present)


class Context:
    """The module context that JAX passes to lowering rules, without one attribute."""

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
    """Pass each of JAX's events to the probe."""

    def listen(event, duration, **_):
        for probe in watching:
            probe.watch(event)

    jax.monitoring.register_event_duration_secs_listener(listen)


def found():
    """Return the parts that a probe finds while a program is lowered and compiled."""
    primitive = private("core").Primitive("probe")
    primitive.def_abstract_eval(lambda aval: aval)

    def lower(context, value):
        module_context = Context(context.module_context)
        probe = module_listener(module_context, Probe)
        watching.append(probe)
        if module_listener(module_context, Probe) is probe:
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


def finds(part):
    return lambda: part in found()


def hidden(name):
    return lambda monkeypatch: monkeypatch.setattr(Context, "hidden", name)


def holds_in(trace, predicate):
    """Return a check that a predicate is true whenever a function is traced."""

    def check():
        results = []
        trace(lambda *values: results.append(predicate()) or values[0])
        return results and all(results)

    return check


def analyze(function):
    """Trace a function without JAX's public API, as Flax's nn.scan does."""
    info = getattr(jax.api_util, "debug_info", None)
    named = {} if info is None else {"debug_info": info("canary", function, (1.0,), {})}
    wrapped = linear_util.wrap_init(lambda x: [function(x)], **named)
    private("interpreters.partial_eval").trace_to_jaxpr_dynamic(
        wrapped, [jax.core.ShapedArray((), np.float32)]
    )


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


def cached_call():
    function = compiled_once()
    call = compiled_calls.CompiledCall("call", function.__wrapped__)
    return [one.avals[0].shape for one in cached_calls.cached_calls(call, {}) or ()] == [()]


def is_placed():
    """Return whether a program can be given other devices, here those that it has."""
    lowered = jax.jit(lambda x: x + 1).trace(1.0).lower()
    with mock.patch.object(topology_lowering, "topology_devices", return_value=jax.devices()[:1]):
        try:
            placed = topology_lowering._on_topology(lowered, parse_topology("v5e:1x1"))
        except KeyError:
            return False
    return placed is not lowered and placed.compile().as_text()


def compiles_freshly():
    lowered = jax.jit(jnp.sin).lower(1.0)
    return fresh_compile._copy(lowered) is not lowered


def no_events(monkeypatch):
    monkeypatch.setattr(Probe, "watch", lambda self, event: None)


def since(version, part):
    """Return a list with a part if this JAX is at least a version, else an empty list."""
    return [part] if version <= VERSION else []


def watched(call):
    """Return the compilations that a function causes, as a listener hears them."""
    events = []
    compile_events.add_compile_listener(events.append)
    try:
        call()
    finally:
        compile_events.remove_compile_listener(events.append)
    return events


def call_of(kind, call):
    """Return the first call of a kind among the compilations that a function causes, or None."""
    return next((event.call for event in watched(call) if event.call.kind == kind), None)


def jitted_call():
    call = call_of("call", lambda: jax.jit(lambda x: x * 41)(np.float32(1)))
    return call and call.function and call.options


def is_taken_out():
    watched(lambda: None)
    return compile_events._on_event not in private("monitoring").get_event_duration_listeners()


def effects():
    return jax.make_jaxpr(lambda x: x)(1.0).effects


NEEDED = {
    (
        "lowered_effects in compat/jax_stack.py",
        "calls of a compiled function with sharding_info are slow, and jax.export rejects it",
    ): [
        Part(
            "the variable closed_jaxpr of the lowering functions",
            finds("effects"),
            without(jax_stack, "LOWER", 1),
        ),
        Part("jax/_src/interpreters/pxla.py", finds("effects"), without(jax_stack, "LOWER", 0)),
        Part(
            "the set of a jaxpr's effects",
            lambda: isinstance(effects(), set),
            lambda monkeypatch: monkeypatch.setitem(globals(), "effects", frozenset),
        ),
    ],
    (
        "_on_event in compat/compile_events.py",
        "an inspection in a reduction stays in the program, and XLA crashes the process",
    ): [
        Part("the lowering event", finds(compilation.LOWERED_EVENT), no_events),
        Part("the variable lowering_result", finds("result"), renamed(jax_stack, "LOWERED")),
    ],
    (
        "_on_event in compat/compile_events.py",
        "traced values on one device, and values that XLA removes, are never reported",
    ): [
        Part("the compilation event", finds(compilation.COMPILED_EVENT), no_events),
        Part("the function from_hlo", finds("is compiling"), renamed(jax_stack, "COMPILE")),
        Part("the variable keepalive of from_hlo", finds("keepalives"), renamed(jax_stack, "KEEPALIVE")),
        Part(
            "jax._src.custom_partitioning._custom_partitioning_partition",
            lambda: hasattr(private("custom_partitioning"), jax_stack.COMPILE_PART),
            renamed(jax_stack, "COMPILE_PART"),
        ),
    ],
    (
        "compilation_target in compat/jax_stack.py",
        "reports of traced values lack devices, bytes per device and a PartitionSpec",
    ): [
        Part("the variable of from_hlo with the devices", finds("devices"), renamed(jax_stack, "DEVICES")),
        Part("the variable in_shardings of from_hlo", finds("mesh"), renamed(jax_stack, "SHARDINGS")),
        *since(
            (0, 5),
            Part("the variable context_mesh of from_hlo", finds("context mesh"), renamed(jax_stack, "MESH")),
        ),
    ],
    (
        "will_not_compile in compat/jax_stack.py",
        "sharding_info in a function that is only traced never reports",
    ): [
        Part(
            "the function that jax.eval_shape calls",
            holds_in(lambda f: jax.eval_shape(f, 1.0), jax_stack.will_not_compile),
            without(jax_stack, "NOT_COMPILED", 0),
        ),
        Part(
            "the function that jax.make_jaxpr returns",
            holds_in(lambda f: jax.make_jaxpr(f)(1.0), jax_stack.will_not_compile),
            without(jax_stack, "NOT_COMPILED", 1),
        ),
        Part(
            "jax._src.traceback_util",
            lambda: importlib.util.find_spec(f"jax._src.{jax_stack.WRAPPERS[0].removesuffix('.py')}"),
            without(jax_stack, "WRAPPERS", 0),
        ),
        Part(
            "the function do_export",
            holds_in(lambda f: export.export(jax.jit(f))(1.0), jax_stack.is_exporting),
            renamed(jax_stack, "EXPORT"),
        ),
    ],
    (
        "is_only_analyzed in compat/jax_stack.py",
        "Flax's nn.scan rejects sharding_info in a function with broadcast variables",
    ): [
        Part(
            "trace_to_jaxpr_dynamic",
            holds_in(analyze, jax_stack.is_only_analyzed),
            renamed(jax_stack, "ANALYZED"),
        ),
        Part(
            "jax._src.profiler",
            holds_in(analyze, jax_stack.is_only_analyzed),
            without(jax_stack, "WRAPPERS", 1),
        ),
    ],
    (
        "unpartitioned_context in compat/jax_stack.py",
        "inspections are inserted into functions that XLA does not partition",
    ): [
        Part(
            "_reduction_jaxpr",
            holds_in(in_scatter, jax_stack.unpartitioned_context),
            without(jax_stack, "REDUCTION", 0),
        ),
        Part(
            "_variadic_reduction_jaxpr",
            holds_in(in_reduction, jax_stack.unpartitioned_context),
            without(jax_stack, "REDUCTION", 1),
        ),
        Part(
            "the folder pallas",
            holds_in(in_kernel, jax_stack.unpartitioned_context),
            renamed(jax_stack, "KERNEL_FOLDER"),
        ),
    ],
    ("is_staging in compat/jax_stack.py", "report_on_oom inside jit does not warn"): [
        Part(
            "the class DynamicJaxprTrace",
            holds_in(lambda f: jax.jit(f)(1.0), jax_stack.is_staging),
            renamed(jax_stack, "STAGING"),
        ),
        attribute("core", "trace_ctx.trace"),
    ],
    ("lower in traced/traced_report.py", "the sharding of every traced value is unknown"): [
        Part("keepalives of the module context", finds("one listener"), hidden("keepalives")),
        Part("add_keepalive of the module context", finds("one listener"), hidden("add_keepalive")),
        Part("axis_context of the module context", finds("place"), hidden("axis_context")),
        Part("lowering_parameters of the module context", finds("place"), hidden("lowering_parameters")),
        attribute("monitoring", "get_event_duration_listeners"),
        attribute("monitoring", "register_event_duration_secs_listener"),
    ],
    (
        "compat/inspection.py",
        "jax.debug.inspect_array_sharding is used, which is wrong under vmap and shard_map",
    ): [
        attribute("core", "Primitive"),
        attribute("debugging", "DebugEffect"),
        attribute("lib", "xla_client.encode_inspect_sharding_callback"),
        attribute("lib.mlir", "ir.StringAttr"),
        attribute("lib.mlir.dialects", "hlo.CustomCallOp"),
    ],
    ("compat/devices.py", "gather_reports and process_index miss other processes, or start a backend"): [
        attribute("distributed", "global_state.client"),
        attribute("distributed", "global_state.process_id"),
        attribute("distributed", "global_state.num_processes"),
        attribute("xla_bridge", "backends_are_initialized"),
    ],
    ("compat/topologies.py", "programs on a topology_mesh have no topology and no memory of a device"): [
        Part(
            "the class CompileOnlyPyClient of jaxlib",
            lambda: hasattr(private("lib").xla_client._xla, topologies.COMPILE_ONLY),
            renamed(topologies, "COMPILE_ONLY"),
        ),
    ],
    ("compat/topology_lowering.py", "program_report raises TopologyError for each topology"): [
        Part(
            "compile_args and the devices of a lowered program",
            is_placed,
            renamed(topology_lowering, "_SHARDINGS"),
        ),
        attribute("lib", "xla_client.DeviceList"),
    ],
    (
        "compat/compiled_calls.py",
        "watch_compiles has no reasons, and counts functions under transformations as JAX's own",
    ): [
        Part("the function cache_miss of jit", jitted_call, renamed(compiled_calls, "CACHE_MISS")),
        Part(
            "the variables fun and jit_info of cache_miss",
            jitted_call,
            renamed(compiled_calls, "JIT_VARIABLES"),
        ),
        Part(
            "the function call_impl_cache_miss",
            lambda: call_of("transformed", lambda: jax.vmap(jax.jit(lambda x: x * 43))(np.ones(3))),
            renamed(compiled_calls, "TRANSFORMED_MISS"),
        ),
        Part(
            "the method compile of jax._src.stages.Lowered",
            lambda: call_of("ahead of time", jax.jit(lambda x: x * 47).lower(1.0).compile),
            renamed(compiled_calls, "AHEAD_OF_TIME"),
        ),
        Part(
            "the variable all_args_info of from_hlo",
            lambda: call_of("ahead of time", jax.jit(lambda x: x * 53).lower(1.0).compile).avals,
            renamed(compiled_calls, "ARGUMENTS"),
        ),
        Part(
            "the functions behind jax.pmap",
            lambda: call_of("pmap", lambda: jax.pmap(lambda x: x * 59)(np.ones((1, 3)))),
            lambda monkeypatch: (
                monkeypatch.setattr(compiled_calls, "PMAPPED", (MOVED,) * 3),
                monkeypatch.setattr(compiled_calls, "CACHE_MISS", MOVED),
            ),
        ),
    ],
    ("compat/stages.py", "watch_compiles does not name arguments"): [
        Part(
            "fun_signature of the arguments of jit",
            lambda: jitted_call().fun_signature,
            lambda monkeypatch: monkeypatch.setattr(compiled_calls, "JIT_VARIABLES", (MOVED, MOVED)),
        ),
        Part(
            "static_argnums of the arguments of jit",
            lambda: jitted_call().static_argnums == (),
            lambda monkeypatch: monkeypatch.setattr(compiled_calls, "JIT_VARIABLES", (MOVED, MOVED)),
        ),
    ],
    ("compat/compile_events.py", "the listener of watch_compiles stays in JAX after the last watch"): [
        Part(
            "unregister_event_duration_listener",
            is_taken_out,
            lambda monkeypatch: monkeypatch.setattr(compile_events, "_unregister", lambda monitoring: None),
        ),
    ],
    ("compat/jax_stack.py", "watch_compiles does not name the mesh in effect"): [
        attribute("mesh", "thread_resources.env"),
        attribute("mesh", "get_abstract_mesh"),
        Part(
            "jax.config.jax_enable_x64",
            lambda: "jax_enable_x64" in trace_context.trace_context(),
            renamed(trace_context, "SETTINGS"),
        ),
    ],
    ("compat/fresh_compile.py", "program_report(fresh=True) adds to the persistent compilation cache"): [
        attribute("config", "persistent_cache_min_compile_time_secs.value"),
    ],
    (
        "compat/fresh_compile.py",
        "program_report(fresh=True) keeps what it compiles, and compiles once only",
    ): [
        Part("the module of a lowered program", compiles_freshly, renamed(fresh_compile, "_MODULE")),
    ],
    ("compat/compiled_calls.py", "watch_compiles does not compare with calls from before its block"): [
        *since(
            (0, 6),
            Part(
                "the keys of _infer_params_cached",
                cached_call,
                lambda monkeypatch: monkeypatch.setattr(cached_calls, "private", lambda name: None),
            ),
        ),
    ],
    ("compat/jitted.py", "print_compile_caches shows ? for entries or compilations"): [
        attribute("xla_bridge", "backends"),
        Part(
            "_cache_size of a jitted function",
            lambda: cache_entries(compiled_once()) == 1,
            lambda monkeypatch: monkeypatch.delattr(type(jax.jit(len)), "_cache_size"),
        ),
        *since(
            (0, 6),
            Part(
                "_pjit_lower, or the caches of traced functions",
                compilations,
                lambda monkeypatch: monkeypatch.setattr(jitted, "private", lambda name: None),
            ),
        ),
    ],
}

each_part = pytest.mark.parametrize(
    ("part", "used_by", "consequence"),
    [pytest.param(part, *need, id=part.name) for need, parts in NEEDED.items() for part in parts],
)


@each_part
def test_this_jax_has(part, used_by, consequence):
    assert problem(part, used_by, consequence) is None


@each_part
def test_a_missing_part_is_named(part, used_by, consequence, monkeypatch):
    part.hide(monkeypatch)
    assert problem(part, used_by, consequence) == (
        f"jax {jax.__version__} has moved or removed {part.name}, which {used_by} needs: without it, {consequence}"
    )
