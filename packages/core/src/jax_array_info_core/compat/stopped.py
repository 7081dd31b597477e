"""Compilation of an edited program, up to its optimization: before XLA generates code for a CPU."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ..base.memory_folders import memory_folder
from ..xla.hlo.liveness import allocated_nbytes
from ..xla.hlo.messages import program_in
from . import private
from .lowering import FAST, SHARDINGS, copied
from .programs import (
    MemoryStatistics,
    lowered_devices,
    main_function,
    memory_analysis,
    module_bytecode,
    program_record,
    xla_flops,
    xla_flops_of_record,
)
from .shardings import is_named

_CALL = "jax_array_info_stop"
_RECORD = "*cpu_after_optimizations.hlo.pb"
_SCALAR_NBYTES, _POINTER_NBYTES = 4, 8
_EFFECTS = ("ordered_effects", "unordered_effects", "host_callbacks", "keepalive")
_TYPED_FFI = 4
"""XLA's version of calls without a fallback to symbols of the process."""
_KEYS = {"argument": "in_shardings", "output": "out_shardings"}

Axes = Sequence[Sequence[str]]
"""Mesh axes of each dimension."""


class Optimized(NamedTuple):
    """A program that XLA has optimized."""

    record: bytes
    """A serialized ``HloModuleProto``."""
    memory: MemoryStatistics | None
    xla_flops: int | None


class Placed(NamedTuple):
    """The sharding of an argument or an output that changes."""

    kind: str
    """``argument`` or ``output``."""
    number: int
    """Its number in the lowered program."""
    axes: Axes | None
    """None takes the sharding away."""


@contextlib.contextmanager
def with_shardy() -> Iterator[None]:
    """Return a context in which programs are lowered and compiled with Shardy, also on JAX 0.6."""
    state = getattr(private("config"), "use_shardy_partitioner", None)
    with contextlib.nullcontext() if state is None else state(True):
        yield


def has_effects(lowered: Any) -> bool:
    """Return whether a program calls back into Python, or prints."""
    arguments = lowered._lowering.compile_args
    return any(arguments.get(name) for name in _EFFECTS)


def with_module(lowered: Any, edit: Callable[[Any, Any], None], placed: Sequence[Placed] = ()) -> Any:
    """Return a lowered program with an edited copy of its module.

    Args:
        lowered: A ``jax.stages.Lowered``.
        edit: The function that edits the module, called with ``jaxlib.mlir.ir`` and the module.
        placed: The arguments and outputs whose shardings it changes.

    Raises:
        ValueError: If no mesh of the program has the axes.
    """
    from jaxlib.mlir import ir

    with lowered.compiler_ir("stablehlo").context:
        module = ir.Module.parse(module_bytecode(lowered))
    edit(ir, module)
    arguments = dict(lowered._lowering.compile_args)
    function_type = ir.FunctionType(ir.TypeAttr(main_function(module).attributes["function_type"]).value)
    counts = {"argument": len(function_type.inputs), "output": len(function_type.results)}
    for kind, number, axes in placed:
        rows = [*arguments[_KEYS[kind]]]
        place = number - (counts[kind] - len(rows))  # JAX's own come first: tokens and constants
        rows[place] = _sharding(arguments, rows[place], axes)
        arguments[_KEYS[kind]] = tuple(rows)
    return copied(lowered, _hlo=module, _executable=None, compile_args=arguments)


def _sharding(arguments: dict[str, Any], present: Any, axes: Axes | None) -> Any:
    """Return the sharding of JAX for an argument or an output.

    Args:
        arguments: The arguments of the compilation.
        present: The sharding that it has.
        axes: The mesh axes of each dimension.
    """
    import jax

    sharding_impls = private("sharding_impls")
    if axes is None:
        return sharding_impls.UNSPECIFIED
    rows = (present, *(row for key in SHARDINGS for row in arguments.get(key) or ()))
    names = {name for dim in axes for name in dim}
    mesh = next((row.mesh for row in rows if is_named(row) and names <= {*row.mesh.axis_names}), None)
    if mesh is None:
        raise ValueError(f"no mesh of the program has the axes {', '.join(sorted(names))}")
    spec = jax.sharding.PartitionSpec(*(dim[0] if len(dim) == 1 else tuple(dim) or None for dim in axes))
    return jax.sharding.NamedSharding(mesh, spec, memory_kind=getattr(present, "memory_kind", None))


def compiled(lowered: Any) -> Optimized:
    """Return a program that is compiled to its end, as fast as XLA can. No cache gets it."""
    with private("config").persistent_cache_min_compile_time_secs(math.inf):
        executable = lowered.compile(compiler_options=FAST)
    record = program_record(executable)
    if record is None:
        raise ValueError("the platform does not hand out the compiled program")
    return Optimized(record, memory_analysis(executable), xla_flops(executable))


def stopped(lowered: Any) -> Optimized | None:
    """Return a program that is compiled up to its optimization; None if XLA does not stop there.

    The program has one more output, which a call of an unknown function makes. XLA refuses it where it would
    generate code, after it has written the optimized program to a folder in memory. The figures are those
    without this output.

    Args:
        lowered: A ``jax.stages.Lowered`` for CPU devices, without effects.
    """
    import jax
    from google.protobuf.message import DecodeError

    lowered = with_module(lowered, _with_stop)
    arguments = lowered._lowering.compile_args
    outputs = [*arguments["global_out_avals"]]
    for key, last in (("out_shardings", private("sharding_impls").UNSPECIFIED), ("out_layouts", None)):
        if arguments.get(key) is not None:
            arguments[key] = (*arguments[key], last)
    arguments["global_out_avals"] = [*outputs, jax.core.ShapedArray((), "float32")]
    with memory_folder() as folder:
        if folder is None:
            return None
        options = {**FAST, "xla_dump_to": str(folder), "xla_dump_hlo_as_proto": True}
        try:
            lowered.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError as error:
            if _CALL not in str(error):
                raise
        else:
            return None
        records = sorted((path.read_bytes() for path in folder.glob(_RECORD)), key=len)
    try:
        record, assignment = program_in(records[-1])
    except (IndexError, DecodeError):  # the memory was full
        return None
    if not assignment.buffer_allocations:
        return None
    nbytes = allocated_nbytes(assignment)
    added = _SCALAR_NBYTES + _POINTER_NBYTES * (1 if len(outputs) > 1 else 2)
    memory = MemoryStatistics(nbytes.arguments, nbytes.outputs - added, nbytes.aliases, nbytes.temporaries)
    return Optimized(record, memory, xla_flops_of_record(record, lowered_devices(lowered)[0]))


def _with_stop(ir: Any, module: Any) -> None:
    """Add an output to ``main``: the result of a call that XLA does not know."""
    with module.context, ir.Location.unknown():
        main = main_function(module)
        end = [*main.regions[0].blocks[0].operations][-1].operation
        place = ir.InsertionPoint(end)
        scalar = ir.RankedTensorType.get([], ir.F32Type.get())
        one = ir.Attribute.parse("dense<1.0> : tensor<f32>")
        constant = ir.Operation.create(
            "stablehlo.constant", results=[scalar], attributes={"value": one}, ip=place
        )
        call = ir.Operation.create(
            "stablehlo.custom_call",
            results=[scalar],
            operands=[constant.results[0]],
            attributes={
                "call_target_name": ir.StringAttr.get(_CALL),
                "has_side_effect": ir.BoolAttr.get(False),
                "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), _TYPED_FFI),
                "backend_config": ir.DictAttr.get({}),
            },
            ip=place,
        )
        ir.Operation.create(end.name, operands=[*end.operands, call.results[0]], ip=place)
        end.erase()
        attributes = main.attributes
        old = ir.FunctionType(ir.TypeAttr(attributes["function_type"]).value)
        new = ir.FunctionType.get([*old.inputs], [*old.results, scalar])
        attributes["function_type"] = ir.TypeAttr.get(new)
        if "res_attrs" in attributes:
            rows = [*ir.ArrayAttr(attributes["res_attrs"]), ir.DictAttr.get({})]
            attributes["res_attrs"] = ir.ArrayAttr.get(rows)
