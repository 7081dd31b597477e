"""The search in the user's file: processes of their own run it with changes, and this one never does."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from jax_array_info_core.base.quantities import counted, duration_words
from jax_array_info_core.facts.reports.advice import MARGIN, ProgramFigures, Remedy, RemedyChange, RemedyPlace
from jax_array_info_core.geometry.layouts.spec import Spec, spec_code
from jax_array_info_core.programs.advice.child import Child
from jax_array_info_core.programs.advice.edits import Candidate, Pin, Ranked
from jax_array_info_core.programs.advice.judging import figures_of
from jax_array_info_core.programs.advice.search import (
    Base,
    EndedError,
    TimeOverError,
    TryFailedError,
    lacking,
    resolved_by,
)
from jax_array_info_core.reports import ProgramReport

from ..output import Refusal
from ..simulated_devices import simulated_device_environment
from ..user_code import FunctionName
from ..user_code.compiling import NotCompiledError, Request
from .changes import Change, Text
from .child import Failed, Program, Task
from .writing import Written

_MODULE = "jax_array_info_cli.advice.child"
_SECONDS = 10.0
"""Time after which a step of the program as it is is said, and again after twice as long."""


def _say_nothing(words: str) -> None:
    pass


class ChangedError(Exception):
    """A file that is another than the one that was read before. The message is one line."""


class SourceEngine:
    """Applies changes to copies of the user's program in processes of their own.

    Args:
        request: The function and its arguments, with the options of the report.
        device_count: Number of devices of the mesh.
        say: The function that prints which step takes long.
    """

    def __init__(
        self, request: Request, device_count: int, say: Callable[[str], None] = _say_nothing
    ) -> None:
        self._say = say
        self._request = request
        # On CPU, a change is tried without the generation of code.
        self._here = replace(request, options={**request.options, "topology": None, "dcn": None})
        flags = simulated_device_environment(os.environ, device_count)["XLA_FLAGS"].split()
        kept = [flag for flag in flags if not flag.startswith("--xla_dump")]  # of many programs
        silent = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_DUMP_IR_TO": ""}
        self._environment = {"XLA_FLAGS": " ".join(kept), **silent}
        self._child: Child | None = None
        self._program: Program | None = None
        self._base: ProgramReport | None = None
        self._left: list[str] = []
        self._ends: list[str] = []
        """How the process that tries changes has ended, each in words."""
        self._digests: dict[str, bytes] = {}
        self._has_calls = True

    @property
    def _name(self) -> FunctionName:
        return self._request.function

    def close(self) -> None:
        """End the process that tries changes."""
        if self._child is not None:
            self._end(self._child)
            self._child = None

    def _end(self, child: Child) -> None:
        child.close()
        self._left += child.left

    def caveats(self) -> Iterator[str]:
        """Yield what the file has started that is left, and how XLA ended the process."""
        if self._ends:
            yield f"{counted(len(self._ends), 'try', 'tries')} failed: {self._ends[-1]}"
        if self._left:
            runs = counted(len(self._left), "process runs on in a session", "processes run on in sessions")
            yield f"{runs} of their own, started by {self._name.source}: {', '.join(sorted({*self._left}))}"

    def base(self, deadline: float) -> Base:
        """Return the program as it is. Without one, the command ends."""
        seconds = deadline - time.monotonic()
        try:
            is_here = self._request.options["topology"] is None
            there = None if is_here else self._reported(None, deadline)  # first: it may not be installed
            base = self._start(deadline).base
            base = base if there is None else replace(base, report=there)
        except TimeOverError:
            raise Refusal(
                f"{self._name} was not imported and compiled within {seconds:.0f} s: give it more with"
                " --budget, or see with jai-cli program where it waits"
            ) from None
        except EndedError as error:
            raise Refusal(f"{self._name}: {error}. jai-cli program {self._name} shows why") from None
        self._base = base.report
        self._say = _say_nothing
        return base

    def _start(self, deadline: float) -> Program:
        """Start the process that tries changes, and return what it finds."""
        self._child = Child.start(_MODULE, self._environment, prints=self._program is None)
        report = None if self._program is None else self._program.base.report
        task = Task(self._here, self._digests, searches=True, has_calls=self._has_calls, report=report)
        with _Steps(f"importing {self._name.source}", self._say) as steps:
            program = self._child.ask(task, deadline, steps.begin)
        if self._program is None and self._has_calls and getattr(program, "is_raised", False):
            self.close()
            self._has_calls = False  # what jai-cli program loads is loaded
            return self._start(deadline)
        _require(program)
        self._program = program
        self._digests.update(program.digests)
        return self._program

    def candidates(self, applied: Candidate | None, deadline: float) -> Ranked:
        """Return the candidates on top of one that is applied, in the order of their tries."""
        ranked: Ranked = self._asked("candidates", applied, deadline)
        return ranked

    def tried(self, candidate: Candidate, deadline: float) -> ProgramFigures:
        """Return the figures of the program with a candidate."""
        figures: ProgramFigures = self._asked("figures", candidate, deadline)
        return figures

    def _asked(self, what: str, about: Any, deadline: float) -> Any:
        try:
            if self._child is None:
                self._start(deadline)
            assert self._child is not None
            answer = self._child.ask((what, about), deadline)
        except (EndedError, TimeOverError) as error:
            self.close()
            if isinstance(error, EndedError):  # a check in C++ failed, or its memory was full
                self._ends.append(str(error))
            raise
        except (Refusal, NotCompiledError) as error:  # the file cannot be imported again
            self.close()
            raise EndedError(str(error)) from error
        if isinstance(answer, Failed):
            raise TryFailedError(answer.message)
        return answer

    def proved(self, candidate: Candidate, figures: ProgramFigures, deadline: float) -> Remedy:
        """Return a candidate as it is written, with the figures of both programs, compiled with all options.

        If the spec of a constraint is not written as such, they are those of its try.
        """
        assert self._base is not None
        assert self._program is not None
        of_source = [pin for pin in candidate.pins if pin.frames or pin.site is not None]
        placed = [pin for pin in candidate.pins if pin.paths]
        written: list[Written] = self._asked("written", of_source, deadline) if of_source else []
        changes = [*(one.change for one in written), *map(self._placed, placed)]
        report: ProgramReport | None = None
        refused: TryFailedError | None = None
        is_written = all(change.is_proved for change in changes)
        if is_written and _has_one_spec_each(candidate):
            try:
                report = self._with(written, placed, deadline)
            except TryFailedError as error:  # such as an argument with in_shardings
                refused = error
        if report is None or not _is_alike(report, figures):
            found = self._elsewhere(written, placed, figures, deadline)
            if found is not None:
                changes, report = found
            elif refused is not None:
                raise refused
            elif is_written and report is None:
                report = self._with(written, placed, deadline)
        changes.sort(key=lambda change: not change.is_proved)
        before, after = self._program.base.tried_as, figures
        resolved: tuple[str, ...] = ()
        if report is not None:
            if problem := lacking(report):
                raise TryFailedError(problem)
            before, after = figures_of(self._base), figures_of(report)
            resolved = resolved_by(self._base, report)
        first = changes[0]
        return Remedy(
            kind=first.kind,
            place=first.place,
            expression=first.expression,
            code=first.code,
            imports=first.imports,
            is_proved=first.is_proved,
            further=tuple(changes[1:]),
            before=before,
            after=after,
            because=candidate.because,
            resolved=resolved,
        )

    def _with(self, written: Iterable[Written], placed: Sequence[Pin], deadline: float) -> ProgramReport:
        """Return the report on the program with changes."""
        texts = dict.fromkeys(one.text for one in written if one.text is not None)
        return self._reported(self._change(placed, tuple(texts)), deadline)

    def _elsewhere(
        self, written: Sequence[Written], placed: Sequence[Pin], figures: ProgramFigures, deadline: float
    ) -> tuple[list[RemedyChange], ProgramReport] | None:
        """Return changes in other places that do the same, and the report on the program; None without any.

        The specs of arguments are changed in their tables, which computed constraints may follow. Without
        arguments, constraints are taken away.
        """
        kept = [one for one in written if one.text is not None]
        arguments = [pin for pin in placed if pin.kind == "argument"]
        left = [pin for pin in placed if pin.kind != "argument"]
        with contextlib.suppress(TryFailedError):
            if arguments:
                tables, others = self._asked("tables", arguments, deadline)
                left += others
            else:
                pins = [one.pin._replace(axes=None) for one in written if one.pin.kind == "respec"]
                kept = [one for one in kept if one.pin.kind != "respec"]
                tables = self._asked("written", pins, deadline)
            kept += tables
            texts = {one.text for one in kept}
            if tables and None not in texts and len({text.site for text in texts if text}) == len(texts):
                report = self._with(kept, left, deadline)
                if _is_alike(report, figures):
                    return [*(one.change for one in kept), *map(self._placed, left)], report
        return None

    def _change(self, pins: Sequence[Pin], texts: tuple[Text, ...]) -> Change:
        """Return changes as a process applies them: with the numbers of leaves."""
        program = self._program
        assert program is not None
        given = [(path, pin.axes) for pin in pins for path in pin.paths]
        arguments, outputs = (
            tuple((paths.index(path), axes or ()) for path, axes in given if path in paths)
            for paths in (program.arguments, program.outputs)
        )
        return Change(
            texts,
            arguments,
            outputs,
            program.donated,
            len(program.arguments),
            program.base.report.mesh,
        )

    def _placed(self, pin: Pin) -> RemedyChange:
        """Return a change of arguments and outputs, with the spec that they have."""
        assert self._base is not None
        values = {value.path: value for value in (*self._base.arguments, *self._base.outputs)}
        got = values[pin.paths[0]].got
        return RemedyChange(
            kind=pin.kind,
            place=RemedyPlace(path=pin.paths[0], paths=pin.paths),
            expression=spec_code((got and got.spec) or Spec(())),
            code=spec_code(Spec(pin.axes or ())),
        )

    def _reported(self, change: Change | None, deadline: float) -> ProgramReport:
        """Return the report on the program with a change, in a process that ends with it."""
        child = Child.start(_MODULE, self._environment)
        try:
            say = self._say if change is None else _say_nothing
            with _Steps(f"importing {self._name.source}", say) as steps:
                answer = child.ask(Task(self._request, self._digests, change=change), deadline, steps.begin)
        finally:
            self._end(child)
        if isinstance(answer, Failed) and change is not None and answer.kind != "changed":
            raise TryFailedError(answer.message)
        _require(answer)
        report: ProgramReport
        report, digests = answer
        self._digests.update(digests)
        return report


class _Steps:
    """Says, in a block, which step takes long."""

    def __init__(self, step: str, say: Callable[[str], None]) -> None:
        self._is_over = threading.Event()
        self._say = say
        self.begin(step)

    def begin(self, step: str) -> None:
        """Begin the next step."""
        self._step, self._start, self._next = step, time.monotonic(), _SECONDS

    def _watch(self) -> None:
        while not self._is_over.wait(1):
            seconds = time.monotonic() - self._start
            if seconds >= self._next:
                self._say(f"{self._step} … {duration_words(seconds)}")
                self._next *= 2

    def __enter__(self) -> _Steps:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()


def _require(answer: Any) -> None:
    """End the command if a process has no answer."""
    if isinstance(answer, Failed):
        kinds = {"refused": Refusal, "changed": ChangedError}
        raise kinds.get(answer.kind, NotCompiledError)(answer.message)


def _has_one_spec_each(candidate: Candidate) -> bool:
    """Return whether no constraint gives some values of a tree one spec, and others another one."""
    tried = {Spec(edit.axes or ()) for edit in candidate.edits if edit.kind == "constraint"}
    written = {Spec(pin.axes or ()) for pin in candidate.pins}
    return {spec_code(spec) for spec in tried} <= {spec_code(spec) for spec in written}


def _is_alike(report: ProgramReport, tried: ProgramFigures) -> bool:
    """Return whether a program sends and needs no more than a try, by over 5 %; so on another device."""
    new = figures_of(report)
    pairs = ((new.sent_nbytes, tried.sent_nbytes), (new.memory_nbytes, tried.memory_nbytes))
    return report.topology is not None or all((new or 0) <= (1 + MARGIN) * (old or 0) for new, old in pairs)
