"""The figures of a lowered program with edits of its shardings."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any

from ...arrays.origins.origins import UserLines
from ...compat.programs import text_for_frame_numbers
from ...compat.stopped import (
    Optimized,
    Placed,
    compiled,
    has_effects,
    stopped,
    with_module,
    with_shardy,
)
from ...facts.reports.program import ProgramReport
from ...geometry.layouts.spec import MeshAxes
from ...xla.hlo.loops import executions
from ...xla.hlo.module import read_module
from ..collectives import described_collectives, merged_collectives
from ..control_flow import flops_of
from ..memory import figures_of
from ..propagation.module_edits import edited
from ..sent_totals import totals_of
from .edits import Edit

_CLOSE = 1024
"""Bytes of memory by which two compilations may differ."""


class Compiler:
    """Compiles a lowered program with edits, up to its optimization where XLA stops there.

    Args:
        lowered: A ``jax.stages.Lowered`` in the dialect of Shardy.
        report: The report on the program for its CPU devices. The compilation that stops is used if it has
            these figures, or else those of another whole one.
    """

    def __init__(self, lowered: Any, report: ProgramReport) -> None:
        self._lowered = lowered
        self._mesh = report.mesh
        start = time.monotonic()
        first = self._first()
        self._stops = first is not None and _is_close(first, report)
        self.base = first if first is not None and self._stops else self.report(())
        """The report on the program as it is."""
        if first is not None and not self._stops:  # JAX 0.6 does not use Shardy for the other report
            self._stops = _is_close(first, self.base)
        self.seconds = time.monotonic() - start
        """Time of its compilation."""

    def _first(self) -> ProgramReport | None:
        """Return the report on the program whose compilation stops; None if it does not stop."""
        if has_effects(self._lowered):
            return None
        try:
            with with_shardy():
                optimized = stopped(self._lowered)
        except Exception:  # whatever another version of JAX or XLA raises: the program itself compiles
            return None
        return None if optimized is None else _report(optimized, self._mesh)

    def report(self, edits: Sequence[Edit]) -> ProgramReport:
        """Return what the program sends, needs and computes with edits, without its other parts.

        Raises:
            ValueError: If an edit is not one of this program.
            IndexError: If the program has no such operation, argument or output.
            jax.errors.JaxRuntimeError: If XLA refuses the program.
        """
        placed = [Placed(*edit[:3]) for edit in edits if edit.kind in ("argument", "output")]
        with with_shardy():
            program = with_module(self._lowered, functools.partial(edited, edits=edits), placed)
            optimized = (stopped(program) if self._stops else None) or compiled(program)
        return _report(optimized, self._mesh)


def _report(optimized: Optimized, mesh: MeshAxes | None) -> ProgramReport:
    """Return the report on an optimized program, with the parts that its figures are made of."""
    module = read_module(optimized.record, text_for_frame_numbers(None))
    lines, runs = UserLines(has_code=True), module.once(executions)
    described, unread = described_collectives(module, runs, mesh, {}, lines)
    collectives = merged_collectives(described)
    return ProgramReport(
        name=module.name,
        mesh=mesh,
        platform="cpu",
        device_count=module.device_count,
        **flops_of(module, runs, lines),
        xla_flops=optimized.xla_flops,
        collectives=collectives,
        sent=totals_of(collectives),
        unread=unread,
        memory=figures_of(optimized.memory, "cpu"),
    )


def _is_close(one: ProgramReport, other: ProgramReport) -> bool:
    """Return whether two compilations of a program send and compute the same, in almost the same memory."""
    return (
        one.memory is not None
        and other.memory is not None
        and abs((one.memory.needed_nbytes or 0) - (other.memory.needed_nbytes or 0)) <= _CLOSE
        and (one.sent_nbytes, one.dot_flops, one.fft_flops)
        == (other.sent_nbytes, other.dot_flops, other.fft_flops)
    )
