"""A process that runs the user's file, and compiles its program with changes."""

from __future__ import annotations

import ast
import contextlib
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import FrameType, FunctionType, MappingProxyType, ModuleType
from typing import Any, NamedTuple

from jax_array_info_core.arrays.origins.origins import Owner, UserLines
from jax_array_info_core.compat.lowering import require_types
from jax_array_info_core.compat.stages import is_stage, stages_of
from jax_array_info_core.compat.stopped import with_shardy
from jax_array_info_core.compat.values import is_mesh, is_tracer
from jax_array_info_core.facts.reports.advice import ProgramFigures
from jax_array_info_core.geometry.layouts.spec import Spec
from jax_array_info_core.programs.advice.child import Parent
from jax_array_info_core.programs.advice.code import constraint_code
from jax_array_info_core.programs.advice.edits import Candidate, Pin, Ranked, Site, SiteValue
from jax_array_info_core.programs.advice.judging import figures_of
from jax_array_info_core.programs.advice.measured import Compiler
from jax_array_info_core.programs.advice.ranking import ranked
from jax_array_info_core.programs.advice.search import Base, lacking
from jax_array_info_core.programs.raised.source import value_of
from jax_array_info_core.reports import ProgramReport

from ..output import Refusal
from ..standard_streams import copy_out_of_reach
from ..user_code import described
from ..user_code.compiling import NotCompiledError, Request, report_on
from .changes import (
    Change,
    argument_places,
    changed,
    flattened,
    is_explicit_mesh,
)
from .files import Codes
from .instrument import Expression, Source
from .writing import Written, written, written_in_tables


class Task(NamedTuple):
    """What a process is started for."""

    request: Request
    digests: Mapping[str, bytes]
    """Digests of the files that other processes have read, by path."""
    searches: bool = False
    """Whether it tries changes, each as it is asked to; else it returns the report of the program."""
    has_calls: bool = True
    """Whether it runs the files with calls around expressions, and tries constraints on these."""
    change: Change | None = None
    """The changes of the program that is reported."""
    report: ProgramReport | None = None
    """The report of a process that has ended, which this one continues."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Why there is no answer."""

    kind: str
    """``refused``, ``not compiled``, ``changed``, ``failed`` or ``twin``."""
    message: str = ""
    is_raised: bool = False
    """Whether the code of the user or of JAX raised an exception."""


class Program(NamedTuple):
    """A program, and what can be changed in it."""

    base: Base
    arguments: tuple[str, ...]
    """Paths of the arguments, in the order of the leaves."""
    outputs: tuple[str, ...]
    """Paths of the outputs."""
    donated: tuple[int, ...]
    """Numbers of the leaves that are donated."""
    digests: Mapping[str, bytes] = MappingProxyType({})
    """Digests of the files that were read, by path."""


def main() -> None:
    """Do the task that the parent process sends, and end when it has the answers."""
    parent = Parent(copy_out_of_reach)
    sys.dont_write_bytecode = True  # the user's modules
    messages = parent.messages()
    task: Task = next(messages)
    values = Values()
    source = source_of(task, values)
    sys.meta_path.insert(0, source)
    answer: tuple[ProgramReport, Mapping[str, bytes]] | Failed | None = None
    try:
        if task.searches:
            _search(task, source, values, parent, messages)
        else:
            answer = reported(task, source, parent.begin), source.digests
    except Refusal as error:
        answer = Failed("refused", error.format_message(), error.__cause__ is not None)
    except NotCompiledError as error:
        answer = Failed("not compiled", str(error), is_raised=True)
    if answer is not None:
        parent.answer(_changed(source) or answer)
        next(messages, None)
    os._exit(0)  # without the exit handlers and the threads of the user's file


_NO_PLACES = "Arguments and outputs are not changed: the program does not have them as they are given."
_NO_OUTPUTS = "Outputs are not changed: those of the program are not what the function returns."
_INSTALLED = "Expressions are not changed: the function is in an installed package."
_NO_SHARD_MAP = "Values inside of shard_map are not changed: its specs shard them."
_NO_CALLS = "Expressions are not changed: the file does not run with calls around them."
_TOO_DEEP = "Expressions of {} are not changed: one is nested too deeply."


def _is_hidden(file: str) -> bool:
    return UserLines().owner(file) is not Owner.USER


def source_of(task: Task, values: Values) -> Source:
    """Return what runs the user's files for a task."""
    value = values if task.searches and task.has_calls else None
    texts = () if task.change is None else task.change.texts
    return Source(_is_hidden, value, texts, task.digests)


def _changed(source: Source) -> Failed | None:
    """Return that a file is not the one that another process has read; None if all are."""
    names = [*map(os.path.basename, source.changed)]
    return Failed("changed", f"{names[0]} changed while it was looked at: run again") if names else None


def reported(task: Task, source: Source, begin: Callable[[str], None] | None = None) -> ProgramReport:
    """Return the report on the program, with a change if there is one.

    Args:
        task: The task.
        source: What runs the user's files.
        begin: The function that is called with each step that begins.
    """
    from jax_array_info_core import program_report

    change = task.change

    def report_of(function: Any, *arguments: Any, **options: Any) -> ProgramReport:
        if begin is not None:
            begin(f"compiling {task.request.function}")
        given: Sequence[Any] = arguments
        if change is not None:
            function, given = changed(change, function, arguments)
        return program_report(function, *given, **options)

    return report_on(task.request, report_of, source.run)


def _search(task: Task, source: Source, values: Values, parent: Parent, messages: Iterator[Any]) -> None:
    """Send what is found in a program, then the figures of each change that is asked for."""

    def serve(function: Any, *arguments: Any, **options: Any) -> ProgramReport:
        from jax_array_info_core import program_report

        require_types()
        if is_stage(function):
            raise Refusal(
                f"{task.request.function} is lowered already, so that nothing in it can change: name the"
                " function that is lowered"
            )
        parent.begin(f"compiling {task.request.function}")
        report = task.report or program_report(function, *arguments, **options)
        parent.quiet()
        caveats = [_TOO_DEEP.format(os.path.basename(file)) for file in source.too_deep]
        caveats = caveats if task.has_calls else [_NO_CALLS]
        tries = Tries(function, arguments, values, report, caveats, source.codes)
        program = tries.program()._replace(digests=source.digests)
        parent.answer(_changed(source) or program)
        asked = {
            "candidates": tries.candidates,
            "figures": tries.figures,
            "written": tries.written,
            "tables": tries.tables,
        }
        for what, about in messages:
            try:
                parent.answer(asked[what](about))
            except (Exception, SystemExit) as error:  # whatever the function, JAX or XLA raises
                parent.answer(Failed("failed", described(error)))
        return report

    report_on(task.request, serve, source.run)


class Scope(NamedTuple):
    """What a constraint on an expression is written with."""

    names: Mapping[str, Any]
    """Meshes, modules and classes by their names in the scope of the expression."""
    operand: str | None
    """A part of the expression that is an array and can be evaluated twice, or a variable with one."""
    is_explicit: bool
    """Whether its mesh has axes of type Explicit."""


class Values:
    """The values of the expressions while the program is traced."""

    def __init__(self) -> None:
        self.by_site: dict[Site, tuple[Expression, Scope, SiteValue]] = {}
        self.has_manual = False
        """Whether there are values of shard_map, which cannot have a constraint."""

    def __call__(self, expression: Expression, value: Any) -> Any:
        """Return the value of an expression, after a note of it."""
        if not is_tracer(value) or not getattr(value, "ndim", 0):
            return value
        if _is_manual(value):
            self.has_manual = True
            return value
        site = expression.site
        if site not in self.by_site:
            frame = sys._getframe(2)
            # A function with globals of its own does not have the names of its file.
            if frame.f_globals.get("__file__") == site.file:
                found = SiteValue(site=site, shape=tuple(value.shape), nbytes=_nbytes(value))
                self.by_site[site] = expression, _scope(expression, frame, value), found
        return value


def _is_manual(value: Any) -> bool:
    """Return whether a value is one of shard_map over all axes of the mesh."""
    import jax

    mesh = jax.typeof(value).sharding.mesh
    return not mesh.empty and all("Manual" in str(kind) for kind in mesh.axis_types)


def _nbytes(value: Any) -> int:
    try:
        return int(math.prod(value.shape) * value.dtype.itemsize)
    except TypeError:  # a symbolic dimension
        return 0


def _scope(expression: Expression, frame: FrameType, value: Any) -> Scope:
    """Return what a constraint on an expression is written with, without running code of the user."""
    import jax

    names = {**frame.f_globals, **frame.f_locals}
    kinds = (ModuleType, type, FunctionType)
    kept = {name: one for name, one in names.items() if issubclass(type(one), kinds) or is_mesh(one)}
    if "jax" in names:
        kept.setdefault("jax", None)
    parts = (text for text, node in _parts(expression.text) if _has_mesh(value_of(node, names)))
    variables = (name for name, one in frame.f_locals.items() if name.isidentifier() and _has_mesh(one))
    return Scope(
        kept, next(itertools.chain(parts, variables), None), is_explicit_mesh(jax.typeof(value).sharding.mesh)
    )


def _has_mesh(value: Any) -> bool:
    import jax

    return is_tracer(value) and not jax.typeof(value).sharding.mesh.empty


def _parts(text: str) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names, items and attributes in an expression with their source text, the names first."""
    code = f"({text}\n)"
    with contextlib.suppress(SyntaxError):  # the source has another encoding
        tree = ast.parse(code, mode="eval")
        yield from (
            (ast.get_source_segment(code, node) or "", node)
            for kinds in (ast.Name, (ast.Subscript, ast.Attribute))
            for node in ast.walk(tree)
            if isinstance(node, kinds)
        )


class Tries:
    """The program of this process, lowered once, and compiled with one candidate after another.

    Args:
        function: The function.
        arguments: Its arguments.
        values: The values of its expressions.
        report: The report on it.
        caveats: What cannot be changed.
        codes: The files of the user.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        values: Values,
        report: ProgramReport,
        caveats: Sequence[str] = (),
        codes: Codes = MappingProxyType({}),
    ) -> None:
        import jax

        self._function = function
        self._arguments = arguments
        self._values = values
        self._report = report
        self._known = caveats
        self._codes = codes
        leaves = jax.tree.leaves(arguments)
        places = argument_places(leaves, len(report.arguments))
        shapes = [tuple(getattr(leaves[place], "shape", ())) for place in places]
        self._has_places = shapes == [argument.shape for argument in report.arguments]
        returned = [output.shape for output in report.outputs]
        self._has_outputs = self._has_places and self._returned() == returned

    def _returned(self) -> list[tuple[int, ...]]:
        """Return the shapes of the arrays that the function returns; a program can have more outputs."""
        import jax

        function, arguments = flattened(self._function, self._arguments, len(self._report.arguments))
        with contextlib.suppress(Exception):  # whatever the function raises for traced values
            return [tuple(output.shape) for output in jax.eval_shape(function, *arguments)]
        return []

    def program(self) -> Program:
        """Return what can be changed."""
        report, compiler = self._report, self._compiler
        numbers = {argument.path: number for number, argument in enumerate(report.arguments)}
        return Program(
            Base(
                report=report,
                tried_as=figures_of(compiler.base),
                seconds=compiler.seconds,
                caveats=tuple(self._caveats()),
            ),
            tuple(numbers),
            tuple(output.path for output in report.outputs),
            tuple(numbers[donation.path] for donation in report.donations or () if donation.path in numbers),
        )

    def candidates(self, applied: Candidate | None) -> Ranked:
        """Return the candidates on top of one that is applied, in the order of their tries."""
        sites = [value for _, _, value in self._values.by_site.values()]
        return ranked(self._lowered, self._report, sites, applied, can_place=self._has_places)

    def _caveats(self) -> Iterator[str]:
        """Yield what cannot be changed."""
        yield from self._known
        if not self._has_places:
            yield _NO_PLACES
        elif not self._has_outputs:
            yield _NO_OUTPUTS
        if self._values.has_manual:
            yield _NO_SHARD_MAP
        if self._report.origin is not None and _is_hidden(self._report.origin.file):
            yield _INSTALLED

    @cached_property
    def _lowered(self) -> Any:
        """The lowered program, in the dialect of Shardy."""
        stages = stages_of(self._function, self._arguments, {})
        with with_shardy():  # some libraries lower functions and return no traced one
            return stages.lowered if stages.traced is None else stages.traced.lower()

    @cached_property
    def _compiler(self) -> Compiler:
        return Compiler(self._lowered, self._report)

    def figures(self, candidate: Candidate) -> ProgramFigures | Failed:
        """Return the figures of the program with a candidate."""
        report = self._compiler.report(candidate.edits)
        problem = lacking(report)
        return Failed("failed", problem) if problem else figures_of(report)

    def written(self, pins: Sequence[Pin]) -> list[Written]:
        """Return the changes of constraints as they are written in the source."""
        return written(pins, self._codes, self._constraint)

    def tables(self, pins: Sequence[Pin]) -> tuple[list[Written], list[Pin]]:
        """Return changes of arguments where their specs are written, and those that are written elsewhere."""
        return written_in_tables(pins, self._codes)

    def _constraint(self, pin: Pin) -> tuple[str, str]:
        """Return the code of an expression with a constraint, and the import that it needs."""
        assert pin.site is not None
        assert self._report.mesh is not None
        expression, scope, _ = self._values.by_site[pin.site]
        return constraint_code(
            expression.text,
            Spec(pin.axes or ()),
            scope.names,
            scope.operand,
            is_explicit=scope.is_explicit,
            mesh=self._report.mesh,
        )
