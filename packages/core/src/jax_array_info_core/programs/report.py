"""Reports on compiled programs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .. import compat
from ..compat.memory_analysis import memory_analysis
from ..compat.stages import (
    Leaf,
    Stages,
    argument_leaves,
    array_leaves,
    output_leaves,
    program_mesh,
    program_name,
    program_platform,
    stages_of,
)
from ..compat.topology_names import parse_topology
from ..hlo.executions import executions
from ..hlo.flops import dot_flops
from ..hlo.module import Module
from ..origins.function_names import described
from ..origins.origins import JAX_MODULES, code_origin, files_of, hidden_files
from ..reports.program import ProgramReport, Rematerialization
from .caveats import caveats_of
from .collectives import collectives_of, totals_of
from .compiled import Compilation, compilation_of
from .constraints import constraints_of
from .donations import donations_of
from .memory import memory_of
from .out_of_memory import gpu_shortage, out_of_memory_of
from .text import module_of
from .values import argument_values, output_values
from .warnings_of_compile import rematerializations_of


def program_report(
    f: Any, /, *args: Any, topology: str | None = None, fresh: bool = False, **kwargs: Any
) -> ProgramReport:
    """Return what XLA made of a function: shardings, collectives, donations, memory and flops per device.

    The function is traced, lowered and compiled for the arguments, as ``jax.jit(f).lower(…).compile()``
    does. Nothing runs, nothing is allocated and nothing is donated. JAX caches the compiled program; a call
    of the function compiles it again only in versions of JAX that do not share it.

    A function with an argument that is called ``topology`` or ``fresh`` itself is given as a
    ``functools.partial``.

    Args:
        f: A jitted or plain function; or a ``jax.stages.Traced``, ``Lowered`` or ``Compiled``, without
            arguments.
        *args: Arguments of the function: arrays or ShapeDtypeStructs.
        topology: TPU or GPU topology to compile for, such as ``v5p:2x2x2`` or ``h100:8``. It needs libtpu or
            JAX's CUDA plugin, but no accelerator. The mesh of the arguments is placed on it. None compiles
            for the devices of the arguments.
        fresh: Whether to compile even if JAX has the program in a cache. XLA prints its rematerialization
            warnings only while it compiles.
        **kwargs: Keyword arguments of the function.

    Raises:
        UnsupportedValueError: (a ValueError) If ``f`` is neither a function nor a stage, or a stage with
            arguments.
        TopologyError: (a ValueError) If the topology does not exist, has another number of devices than
            the mesh, or needs a package that is not installed.

    An error of the function itself, or of its compilation, is raised unchanged. A program that does not fit
    the memory of the topology is reported in ``out_of_memory``.

    >>> import jax, jax.numpy as jnp
    >>> report = program_report(lambda x: x @ x.T, jax.ShapeDtypeStruct((64, 32), jnp.float32))
    >>> report.dot_flops, report.sent.nbytes, report.outputs[0].shape
    (262144, 0, (64, 64))
    """
    target = None if topology is None else parse_topology(topology)
    stages = stages_of(f, args, kwargs)
    is_hidden = hidden_files()
    compiled = compilation_of(stages, target, fresh=fresh)
    stages = compiled.stages
    module = module_of(compiled.text, stages.lowered)
    labels = [] if module is None else [one.op_name for one in module.parameters()]
    given, returned = argument_leaves(stages, array_leaves(args, kwargs), labels), output_leaves(stages)
    mesh = program_mesh([*given, *returned])
    arguments = argument_values(given, mesh)
    outputs = output_values(returned, mesh, arguments)
    constraints = None
    if stages.traced is not None:
        constraints = constraints_of(stages.traced.jaxpr, is_hidden)
    name, origin = _definition(f, stages, module)
    report = ProgramReport(
        name=name,
        origin=origin,
        mesh=mesh,
        platform=target.platform if target else program_platform([*given, *returned]),
        topology=target.text if target else None,
        arguments=arguments,
        outputs=outputs,
        constraints=constraints,
        rematerializations_known=compiled.known,
        out_of_memory=out_of_memory_of(compiled.refusal, module, compiled.assignment, is_hidden),
        device_count=1 if mesh is None else math.prod(mesh.sizes),
    )
    if module is None:
        return report
    return _with_program(report, module, compiled, given, is_hidden)


def _with_program(
    report: ProgramReport,
    module: Module,
    compiled: Compilation,
    leaves: Sequence[Leaf],
    is_hidden: Callable[[str], bool],
) -> ProgramReport:
    """Return a report with the facts from the text of the compiled program."""
    times = executions(module)
    paths = {
        leaf.label: argument.path
        for leaf, argument in zip(leaves, report.arguments, strict=True)
        if leaf.label is not None
    }
    collectives, unread = collectives_of(module, times, report.mesh, paths, is_hidden)
    rematerializations: tuple[Rematerialization, ...] = rematerializations_of(
        compiled.warnings,
        module,
        report.mesh,
        is_hidden,
        lowered=compiled.stages.lowered,
        platform=report.platform,
    )
    dtypes = {value.dtype for value in (*report.arguments, *report.outputs)}
    memory, out_of_memory = None, report.out_of_memory
    if not compiled.refusal:
        memory = memory_of(module, memory_analysis(compiled.stages.compiled), report.platform, is_hidden)
        if compiled.topology is not None and compiled.topology.is_gpu:
            out_of_memory = gpu_shortage(compiled.topology, memory)
    return replace(
        report,
        device_count=module.device_count,
        donations=donations_of(
            report.arguments, [leaf.is_donated for leaf in leaves], report.outputs, module
        ),
        collectives=collectives,
        sent=totals_of(collectives),
        rematerializations=rematerializations,
        memory=memory,
        out_of_memory=out_of_memory,
        dot_flops=dot_flops(module, times),
        unread=tuple(dict.fromkeys((*module.unread, *unread))),
        caveats=caveats_of(report.platform, dtypes, collectives, module),
    )


def _definition(f: Any, stages: Stages, module: Module | None) -> tuple[str, Any]:
    """Return the name and the definition of a function."""
    if stages.traced is None:
        # The text of a large program is slow to print.
        return program_name(f"HloModule {module.name}" if module else stages.lowered.as_text() or ""), None
    if callable(f):
        # A plain function is described like one that is jitted.
        jitted = type(f) in compat.jitted_types() or hasattr(f, "__wrapped__")
        found = described(f if jitted else functools.partial(f), files_of(JAX_MODULES))
        if found.name:
            name = found.name if jitted else found.name.removeprefix("partial(").removesuffix(")")
            return name, None if found.code is None else code_origin(found.code)
    return str(stages.traced.fun_name), None
