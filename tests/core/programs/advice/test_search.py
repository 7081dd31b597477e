"""The search for changes that help, with an engine that answers at once."""

from dataclasses import replace

import pytest

from jax_array_info_core.facts.reports.left_out import ALL
from jax_array_info_core.programs.advice import candidates
from jax_array_info_core.programs.advice.judging import figures_of
from jax_array_info_core.programs.advice.search import (
    Base,
    EndedError,
    TimeOverError,
    TryFailedError,
    TwinError,
    advised,
)
from jax_array_info_core.reports import LeftOut, Remedy, RemedyPlace
from tests.goldens import stored

pytestmark = pytest.mark.newest


class Clock:
    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


class FakeEngine:
    """Halves the bytes sent with each change. Loading takes 5 seconds, and a try one."""

    def __init__(self, clock, problem=None):
        self.clock = clock
        self.problem = problem
        self.report, _ = stored("program-report-26")

    def base(self, deadline):
        self.clock.seconds += 5
        return Base(report=self.report, tried_as=figures_of(self.report), seconds=1.0)

    def tried(self, edit, deadline):
        self.clock.seconds += 1
        figures = figures_of(self.report)
        return replace(figures, sent_nbytes=figures.sent_nbytes // 2)

    def proved(self, edit, deadline):
        if self.problem is not None:
            raise self.problem
        before = figures_of(self.report)
        after = self.tried(edit, deadline)
        place = RemedyPlace(path="x")
        return Remedy(kind="argument", place=place, expression="", code="", before=before, after=after)


def advice(budget, problem=None):
    clock = Clock()
    return advised(FakeEngine(clock, problem), budget, most=6, now=clock)


def test_changes_that_are_proved_are_listed():
    report = advice(60)
    assert (report.tried, report.unproved, report.failed, report.reason) == (6, 0, 0, None)
    assert report.remedies


def test_a_change_that_fails_in_the_source_is_said_with_the_reason():
    """The answer is not that none helps."""
    report = advice(60, TryFailedError("step.py cannot be loaded: FileExistsError: out"))
    assert (
        report.answer == "no change tried is proved to help; 6 of 124 candidates tried, ranked without Shardy"
    )
    assert report.failed == report.unproved > 0
    (caveat,) = report.caveats
    assert caveat.endswith(
        " that may help could not be proved: step.py cannot be loaded: FileExistsError: out"
    )


class RefusingEngine(FakeEngine):
    """Refuses every first change, and says of every second one that it is that of another."""

    def tried(self, edit, deadline):
        self.clock.seconds += 1
        self.tries = getattr(self, "tries", 0) + 1
        raise TryFailedError(f"try {self.tries}") if self.tries % 2 else TwinError


def test_changes_that_are_those_of_others_do_not_count_as_tries():
    """They are skipped, and those that fail are said if no change was measured."""
    clock = Clock()
    report = advised(RefusingEngine(clock), 60, most=3, now=clock)
    assert (report.tried, report.failed, clock.seconds) == (0, 3, 10)
    assert report.caveats == ("Each of 3 changes failed, the last with try 5",)
    assert report.answer.startswith("no change was measured; ")


class EndingEngine(FakeEngine):
    """Ends with each change of a kind."""

    def tried(self, edit, deadline):
        self.kinds = [*getattr(self, "kinds", ()), edit.kind]
        if edit.kind == self.kinds[0]:
            raise EndedError("ended")
        return super().tried(edit, deadline)

    def proved(self, edit, deadline):
        raise TimeOverError


def test_a_kind_of_change_that_ends_the_process_comes_after_the_others():
    """After four ends it is not tried, and counted."""
    clock = Clock()
    engine = EndingEngine(clock)
    report = advised(engine, 600, now=clock)
    first, *others = engine.kinds
    assert others[-3:] == [first] * 3
    assert first not in others[:-3]
    assert (report.failed, report.tried) == (4, len(others) - 3)
    assert report.untried > 0
    assert report.answer.endswith(f" of {report.candidates} candidates tried, ranked without Shardy")


def test_a_change_without_time_for_its_proof_is_said():
    report = advice(60, TimeOverError())
    assert (
        report.answer == "no change tried is proved to help; 6 of 124 candidates tried, ranked without Shardy"
    )
    assert (report.failed, report.unproved > 0) == (0, True)
    assert report.caveats[0].endswith(" that may help could not be proved in time: --budget")


def test_a_budget_that_is_too_short_is_said_with_one_that_is_long_enough():
    """Half of the budget is for tries at least. What the program sends is said instead."""
    for budget in (1, 2, 3):
        report = advice(budget)
        assert report.tried == 0
        assert report.answer == (
            "no change is tried: one takes about 0.6 s to compile, and the budget is too short for 3: give it"
            " 5 s or more"
        )
        assert report.reasons
        assert report.reasons[0].startswith("all-")
    report = advice(5)
    assert (report.tried, report.reasons) == (3, ())


@pytest.mark.parametrize("part", ["collectives", "memory", "FLOPs", ALL])
def test_a_program_without_a_part_that_is_compared_has_no_advice(part):
    clock = Clock()
    engine = FakeEngine(clock)
    lost = LeftOut(part=part, error="IndexError: lost")
    engine.report = replace(engine.report, left_out=(lost,))
    report = advised(engine, 60, now=clock)
    assert report.answer == f"no change is tried: {lost.words}"
    assert (report.left_out, report.caveats, report.tried) == ((lost,), (lost.words,), 0)


@pytest.mark.parametrize("kind", ["arguments", "outputs", "constraints"])
def test_changes_that_cannot_be_listed_are_left_out(kind, monkeypatch):
    def fails(*_):
        raise IndexError("lost")

    monkeypatch.setattr(candidates, f"_{kind}", fails)
    report = advice(60)
    [left_out] = report.left_out
    assert kind in left_out.part
    assert left_out.words in report.caveats
    assert report.remedies
