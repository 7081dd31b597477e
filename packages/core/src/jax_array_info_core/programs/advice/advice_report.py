"""Changes of shardings that help a function that is given, with its arguments, to a plain call."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import Any, NamedTuple

from ...base.errors import UnsupportedValueError
from ...base.quantities import as_seconds
from ...base.text import printable
from ...compat.lowering import lowered_for_topology, sharded_struct
from ...compat.modules import LoweredModule, has_spans, lowered_for_cpu, lowered_module
from ...compat.processes import only_cpu
from ...compat.shardings import has_devices, is_named
from ...compat.stages import (
    Stages,
    argument_leaves,
    array_leaves,
    is_stage,
    places_of_arguments,
    stages_of,
)
from ...compat.topology_names import Topology, parse_topology
from ...compat.values import is_sharding
from ...facts.reports.advice import AdviceReport, ProgramFigures, Remedy, RemedyPlace
from ...facts.reports.program import ProgramReport
from ..program_report import program_report
from ..propagation.helper import NoAnswerError, ask
from .candidates import Edit, Site
from .child import Child, RefusedError, cpu_environment
from .code import constraint_code, spec_code
from .scopes import operand_of, scope_of
from .search import Base, TryFailedError, TwinError, advised, because_of
from .sites import Expression, Sources, expressions, present_shardings
from .worker import Question

_WORKER = "jax_array_info_core.programs.advice.worker"
_NO_SPANS = "Expressions have no constraints tried: the lines of operations are exact on JAX 0.12 and later."
_EXPLICIT = (
    "Expressions have no constraints tried: axes of the mesh are Explicit, where JAX shards each value."
)
_NOT_COMPILED = "No change is tried: the program cannot be compiled in another process: {}"
_ON_CPU = "Changes are compiled for CPU devices, not for {}, where their figures may differ."


class _Program(NamedTuple):
    """The program as it is, lowered for a platform."""

    module: LoweredModule
    expressions: dict[Site, Expression]


class _Engine:
    """Changes that are applied to copies of a lowered program, and compiled in a child process.

    This process traces and lowers. It compiles the program as it is, once, for its report.
    """

    def __init__(self, f: Any, args: Any, kwargs: Any, topology: str | None) -> None:
        self._f, self._args, self._kwargs = f, args, kwargs
        self._topology = topology
        self._sources = Sources()
        self._programs: dict[Topology | None, _Program] = {}
        self._child: Child | None = None

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def base(self, deadline: float) -> Base:
        """Return the program as it is."""
        report = program_report(self._f, *self._args, topology=self._topology, explain=True, **self._kwargs)
        self._report: ProgramReport = report
        self._target = None if report.topology is None else parse_topology(report.topology)
        if not report.is_known or report.mesh is None or report.device_count < 2:
            return Base(report=report, tried_as=ProgramFigures())
        self._stages = self._staged(self._args, self._kwargs)
        self._values = array_leaves(self._args, self._kwargs)
        self._leaves = argument_leaves(self._stages, self._values)
        self._places = places_of_arguments(self._values, self._leaves)
        caveats = [] if report.platform == "cpu" or self._target else [_ON_CPU.format(report.platform)]
        self._can_constrain = has_spans() and "Explicit" not in report.mesh.types
        if not self._can_constrain:
            caveats.append(_EXPLICIT if has_spans() else _NO_SPANS)
        program = self._program(None)
        module = self._program(self._target).module
        base = Base(
            report=report,
            tried_as=ProgramFigures(),
            values=tuple(one.value for one in program.expressions.values()),
            has_places=self._places is not None,
            caveats=tuple(caveats),
        )
        try:
            base = replace(base, tried_as=self._figures(Question(program.module), deadline))
            start = time.monotonic()
            self._before: ProgramFigures = self._figures(Question(module, is_fast=False), deadline)
            return replace(base, seconds=time.monotonic() - start)
        except TryFailedError as error:
            return replace(base, values=(), has_places=False, caveats=(*caveats, _NOT_COMPILED.format(error)))

    def tried(self, edit: Edit, deadline: float) -> ProgramFigures:
        """Return the figures of the program with a change, compiled fast for CPU devices."""
        return self._figures(self._question(edit, None, is_fast=True), deadline)

    def proved(self, edit: Edit, deadline: float) -> Remedy:
        """Return a change with its figures, compiled with all options for the devices asked for."""
        expression, code, place = self._written(edit)
        return Remedy(
            kind=edit.kind,
            place=place,
            expression=expression,
            code=code,
            before=self._before,
            after=self._figures(self._question(edit, self._target, is_fast=False), deadline),
            proof="lowered",
            because=because_of(self._report, edit),
        )

    def _staged(self, args: Any, kwargs: Any) -> Stages:
        with contextlib.nullcontext() if self._target is None else only_cpu():
            return stages_of(self._f, args, kwargs)

    def _lowered(self, stages: Stages, target: Topology | None) -> Any:
        """Return a program lowered for a topology, or for CPU devices."""
        if stages.traced is None:
            return stages.lowered
        with contextlib.nullcontext() if self._target is None else only_cpu():
            if target is not None:
                return lowered_for_topology(stages.traced, target).lowered
            return lowered_for_cpu(stages.traced, self._report.platform)

    def _program(self, target: Topology | None) -> _Program:
        """Return the program as it is, lowered for a topology or for CPU devices."""
        if target not in self._programs:
            lowered = self._lowered(self._stages, target)
            module = lowered_module(lowered)
            found: dict[Site, Expression] = {}
            if self._can_constrain:
                present = {}
                with contextlib.suppress(NoAnswerError):
                    present = present_shardings(ask(module.bytecode))
                found = expressions(lowered.compiler_ir("stablehlo"), self._sources, present)
            self._programs[target] = _Program(module, found)
        return self._programs[target]

    def _question(self, edit: Edit, target: Topology | None, *, is_fast: bool) -> Question:
        """Return a copy of the program with a change.

        Raises:
            TryFailedError: If JAX cannot lower it so, or the program has no such expression.
        """
        module, found = self._program(target)
        values: tuple[Any, ...] = ()
        if edit.site is not None:
            if edit.site not in found:
                raise TryFailedError("the program lowered for the topology has no such expression")
            values = found[edit.site].uses
        if edit.arguments:
            try:
                module = lowered_module(self._lowered(self._with_arguments(edit), target))
            except (
                Exception
            ) as error:  # of JAX, or of the function, which another sharding can lead elsewhere
                raise TryFailedError(printable(str(error))) from None
        paths = [one.path for one in self._report.outputs]
        hidden = len(module.free_outputs) - len(paths)  # tokens come first
        outputs = tuple(paths.index(path) + hidden for path in edit.outputs)
        return Question(module, edit.axes, values, outputs, is_fast)

    def _with_arguments(self, edit: Edit) -> Stages:
        """Return the function traced with other shardings of arguments."""
        import jax

        paths = [one.path for one in self._report.arguments]
        leaves, structure = jax.tree.flatten((self._args, self._kwargs))
        for path in edit.arguments:
            number = paths.index(path)
            place = (self._places or ())[number]
            sharding: Any = getattr(self._values[place], "sharding", None)
            mesh = sharding.mesh if is_sharding(sharding) and is_named(sharding) else self._mesh()
            kind = getattr(sharding, "memory_kind", None)
            leaves[place] = sharded_struct(self._leaves[number], mesh, edit.spec, kind)
        return self._staged(*jax.tree.unflatten(structure, leaves))

    def _mesh(self) -> Any:
        """Return the largest mesh of the arguments."""
        asked = [one.asked for one in self._leaves if one.asked is not None]
        found = [one.mesh for one in asked if is_named(one) and has_devices(one)]
        if not found:
            raise TryFailedError("no argument has a mesh")
        return max(found, key=lambda mesh: mesh.size)

    def _figures(self, question: Question, deadline: float) -> ProgramFigures:
        """Return the figures of a copy of the program.

        Raises:
            TryFailedError: If it cannot be compiled; ``TwinError`` if it is that of another.
            TimeOverError: If it takes too long. Then, and after the child ended, the next has another child.
        """
        if self._child is None:
            self._child = Child.start([_WORKER], cpu_environment(self._report.device_count))
        try:
            found = self._child.ask(question, deadline)
        except RefusedError:
            raise
        except BaseException:
            self._child = None  # it is ended
            raise
        if found is None:
            raise TwinError
        figures: ProgramFigures = found
        return figures

    def _written(self, edit: Edit) -> tuple[str, str, RemedyPlace]:
        """Return the expression of a change, its code, and its place.

        Raises:
            TryFailedError: If no name is that of the mesh at its place.
        """
        site, mesh = edit.site, self._report.mesh
        if site is None:
            paths = (*edit.arguments, *edit.outputs)
            values = (*self._report.arguments, *self._report.outputs)
            own = next(one for one in values if one.path == paths[0])
            spec = own.got.spec if own.got is not None else None
            code = spec_code(edit.spec)
            return "" if spec is None else spec_code(spec), code, RemedyPlace(path=paths[0], paths=paths)
        source, node = self._sources.of(site.file), self._sources.node(site)
        if source is None or node is None or mesh is None:
            raise TryFailedError("the source has changed")
        text = source.replaced(node, {})
        known = self._programs[None].expressions
        operand = operand_of(node, site, known)
        written = None if operand is None else source.replaced(operand, {})
        names = scope_of(site, source, self._f)
        try:
            code = constraint_code(text, edit.spec, names, written, mesh=mesh, is_explicit=False)
        except LookupError as error:
            raise TryFailedError(str(error)) from None
        start = source.starts[site.line - 1]
        column = len(source.data[start : start + site.column].decode())
        function = known[site].function
        return text, code, RemedyPlace(file=site.file, line=site.line, column=column, function=function)


def advise_report(
    f: Any, /, *args: Any, budget: float | str = "60s", topology: str | None = None, **kwargs: Any
) -> AdviceReport:
    """Return the changes of shardings that make a program better, each applied and measured.

    A change is another sharding of arguments or of outputs, or a constraint on an expression of your code. It
    is applied to a copy of the lowered program and compiled, in a process of its own. Nothing runs, and later
    calls of the function compile nothing more. In the source, JAX may lower a constraint in another way:
    ``jai-cli advise`` applies it there.

    Expressions have constraints on JAX 0.12 and later, with mesh axes of type Auto, outside ``vmap`` and
    ``shard_map``.

    A function with an argument that is called as one of the options itself is given as a
    ``functools.partial``.

    Args:
        f: A jitted or plain function.
        *args: Arguments of the function: arrays or ShapeDtypeStructs.
        budget: Time for the tries, in seconds or as text such as ``"60s"``.
        topology: TPU or GPU topology to compile for, as in ``program_report``: the changes that help on CPU
            devices are compiled for it, and compared there. None compiles for CPU devices.
        **kwargs: Keyword arguments of the function.

    Raises:
        UnsupportedValueError: (a ValueError) If ``f`` is not a function, the budget is not a time, or JAX is
            older than 0.7.
        TopologyError: (a ValueError) If the topology does not exist, has another number of devices than
            the mesh, or needs a package that is not installed.

    An error of the function itself, or of its compilation, is raised unchanged.

    >>> import jax, jax.numpy as jnp
    >>> advise_report(jnp.sin, jax.ShapeDtypeStruct((8,), jnp.float32)).answer
    'no change to try: the program runs on one device'
    """
    try:
        seconds = as_seconds(budget)
    except ValueError as error:
        raise UnsupportedValueError(f"budget {error}") from None
    if is_stage(f):
        raise UnsupportedValueError("a stage cannot be changed: pass the function with its arguments")
    engine = _Engine(f, args, kwargs, topology)
    try:
        return advised(engine, seconds)
    finally:
        engine.close()
