"""Private parts of JAX that the watch of compilations, the compile caches, processes and topologies need."""

import dataclasses
from unittest import mock

import jax
import numpy as np

from jax_array_info_core.compat import compiled_calls, jitted, lowering, private, stopped, topologies
from jax_array_info_core.compat import jax_stack as trace_context
from jax_array_info_core.compat.jitted import CompiledPrograms, cache_entries
from jax_array_info_core.compat.topology_names import parse_topology
from tests.core.compat.private_parts import MOVED, Part, attribute, renamed, since


def compiled_once():
    function = jax.jit(lambda x: x + 1)
    function(1.0)
    return function


def registered_class():
    """Return a class whose static field has a name."""
    cls = dataclasses.make_dataclass("Named", ["w", "name"])
    return jax.tree_util.register_dataclass(cls, data_fields=["w"], meta_fields=["name"])


def compilations():
    function = compiled_once()
    return CompiledPrograms().count_of([function]) == 1


def watched(call):
    """Return the compilations that a function causes, as a listener hears them."""
    events = []
    compiled_calls.add_compile_listener(events.append)
    try:
        call()
    finally:
        compiled_calls.remove_compile_listener(events.append)
    return events


def call_of(kind, call):
    """Return the first call of a kind among the compilations that a function causes, or None."""
    return next((event.call for event in watched(call) if event.call.kind == kind), None)


def jitted_call():
    call = call_of("call", lambda: jax.jit(lambda x: x * 41)(np.float32(1)))
    return call and call.function and call.options


def is_taken_out():
    watched(lambda: None)
    return compiled_calls._on_event not in private("monitoring").get_event_duration_listeners()


CALLS = {
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
    ("compat/compiled_calls.py", "watch_compiles does not name arguments"): [
        Part(
            "fun_signature of the arguments of jit",
            lambda: jitted_call().fun_signature,
            renamed(compiled_calls, "JIT_VARIABLES"),
        ),
        Part(
            "static_argnums of the arguments of jit",
            lambda: jitted_call().static_argnums == (),
            renamed(compiled_calls, "JIT_VARIABLES"),
        ),
    ],
    ("compat/compiled_calls.py", "the listener of watch_compiles stays in JAX after the last watch"): [
        Part(
            "unregister_event_duration_listener",
            is_taken_out,
            lambda monkeypatch: monkeypatch.setattr(compiled_calls, "_unregister", lambda monitoring: None),
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
    ("compat/jitted.py", "watch_compiles numbers the static fields of registered dataclasses"): [
        Part(
            "the variable meta_fields of register_dataclass",
            lambda: jitted.static_field_names(registered_class()) == ("name",),
            renamed(jitted, "META_FIELDS"),
        ),
    ],
    ("compat/jitted.py", "explain_errors does not name the call that has donated a deleted array"): since(
        (0, 6),
        Part(
            "_jit_info of a jitted function",
            lambda: jitted.donated_parameters(jax.jit(lambda x: x, donate_argnums=0)) == {0},
            renamed(jitted, "JIT_INFO"),
        ),
    ),
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


def is_placed():
    """Return whether a program can be given other devices, here those that it has."""
    lowered = jax.jit(lambda x: x + 1).trace(1.0).lower()
    with mock.patch.object(lowering, "topology_devices", return_value=jax.devices()[:1]):
        try:
            placed = lowering._on_topology(lowered, parse_topology("v5e:1x1"))
        except KeyError:
            return False
    return placed is not lowered and placed.compile().as_text()


def is_stopped():
    """Return whether the compilation of a program stops before code is generated, with all figures."""
    optimized = stopped.stopped(jax.jit(lambda x: x @ x).lower(np.ones((8, 8), np.float32)))
    return optimized is not None and optimized.memory.output_nbytes == 256 and optimized.xla_flops


STOPS = {
    ("compat/stopped.py", "each try of jai-cli advise takes the time of a whole compilation"): [
        Part(
            "the end of a compilation at a call that XLA does not know",
            is_stopped,
            renamed(stopped, "_RECORD"),
        ),
    ],
}

DEVICES = {
    ("compat/processes.py", "gather_reports and process_index miss other processes, or start a backend"): [
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
    ("compat/lowering.py", "program_report raises TopologyError for each topology"): [
        Part(
            "compile_args and the devices of a lowered program",
            is_placed,
            renamed(lowering, "SHARDINGS"),
        ),
        attribute("lib", "xla_client.DeviceList"),
    ],
}
