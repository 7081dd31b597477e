"""Private parts of JAX that inspections need while a program is traced, lowered and compiled."""

import importlib
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.extend import linear_util
from jax.interpreters import mlir
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core.compat import compiled_calls as compilation
from jax_array_info_core.compat import jax_stack, private, programs
from jax_array_info_core.compat.compiled_calls import ModuleListener, module_listener
from jax_array_info_core.compat.jax_stack import frames, lowering_place
from tests.core.compat.private_parts import Part, attribute, renamed, since, without

MLIR = "jaxlib.mlir._mlir_libs._jax_mlir_ext"


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


def no_events(monkeypatch):
    monkeypatch.setattr(Probe, "watch", lambda self, event: None)


def effects():
    return jax.make_jaxpr(lambda x: x)(1.0).effects


LOWERING = {
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
        "_on_event in compat/compiled_calls.py",
        "an inspection in a reduction stays in the program, and XLA crashes the process",
    ): [
        Part("the lowering event", finds(compilation.LOWERED_EVENT), no_events),
        Part("the variable lowering_result", finds("result"), renamed(jax_stack, "LOWERED")),
    ],
    (
        "_on_event in compat/compiled_calls.py",
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
    ("lower in arrays/traced/traced_report.py", "the sharding of every traced value is unknown"): [
        Part("keepalives of the module context", finds("one listener"), hidden("keepalives")),
        Part("add_keepalive of the module context", finds("one listener"), hidden("add_keepalive")),
        Part("axis_context of the module context", finds("place"), hidden("axis_context")),
        Part("lowering_parameters of the module context", finds("place"), hidden("lowering_parameters")),
        attribute("monitoring", "get_event_duration_listeners"),
        attribute("monitoring", "register_event_duration_secs_listener"),
    ],
    ("compat/arrays.py", "values inside shard_map that do not vary are shards, not replicas"): [
        *since((0, 6), attribute("config", "_check_vma.value")),
    ],
    ("programs/propagation/worker.py", "propagation_report has no answer of Shardy"): [
        *since(
            (0, 10),
            Part(
                "register_dialects of jaxlib",
                lambda: callable(importlib.import_module(MLIR).register_dialects),
                lambda monkeypatch: monkeypatch.delattr(importlib.import_module(MLIR), "register_dialects"),
            ),
        ),
    ],
    (
        "platforms_of in compat/programs.py",
        "a program for a TPU is reported as one for the first device",
    ): [
        *since(
            (0, 10),
            Part(
                "the platforms of a Lowered",
                lambda: programs.platforms_of(jax.jit(lambda x: x).lower(1.0)),
                renamed(programs, "PLATFORMS"),
            ),
        ),
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
}
