"""The search for changes that help, with an engine that answers at once."""

from dataclasses import replace

import pytest

from jax_array_info_core.facts.reports.left_out import ALL
from jax_array_info_core.programs.advice.edits import Candidate, Edit, Pin, Ranked
from jax_array_info_core.programs.advice.judging import figures_of
from jax_array_info_core.programs.advice.search import (
    Base,
    EndedError,
    TimeOverError,
    TryFailedError,
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


def candidate(number, rule="freed"):
    axes = (("x",), ())
    pins = (Pin("argument", axes, paths=(f"a/{number}",)),)
    return Candidate(rule, f"reason {number}", pins, (Edit("argument", number, axes),), number=number)


class FakeEngine:
    """Has 30 candidates, of which one helps. Loading takes 5 seconds, and a try one."""

    helping = 3

    def __init__(self, clock, problem=None):
        self.clock = clock
        self.problem = problem
        self.report, _ = stored("program-report-26")
        self.asked = []
        self.rules = ["freed"] * 30

    def base(self, deadline):
        self.clock.seconds += 5
        return Base(report=self.report, tried_as=figures_of(self.report), seconds=1.0)

    def candidates(self, applied, deadline):
        self.asked.append(applied)
        return Ranked(tuple(map(candidate, range(30), self.rules)), by_propagation=True)

    def tried(self, candidate, deadline):
        self.clock.seconds += 1
        figures = figures_of(self.report)
        helps = candidate.number == self.helping
        return replace(figures, sent_nbytes=figures.sent_nbytes // (2 if helps else 1))

    def proved(self, candidate, figures, deadline):
        if self.problem is not None:
            raise self.problem
        return Remedy(
            kind="argument",
            place=RemedyPlace(path="x"),
            expression="",
            code="",
            before=figures_of(self.report),
            after=figures,
            because=candidate.because,
        )


def advice(budget, problem=None, engine=FakeEngine):
    clock = Clock()
    return advised(engine(clock, problem), budget, now=clock)


def test_the_first_candidates_are_tried_and_others_on_top_of_the_best():
    """The second round finds nothing better than the best."""
    clock = Clock()
    engine = FakeEngine(clock)
    report = advised(engine, 600, now=clock)
    assert [found and found.number for found in engine.asked] == [None, 3]
    assert (report.tried, report.untried, report.failed, report.reason) == (17, 18, 0, None)
    assert [remedy.because for remedy in report.remedies] == ["reason 3"]
    assert report.is_ranked


class StackingEngine(FakeEngine):
    """Halves the bytes with each candidate that is on top of another."""

    def candidates(self, applied, deadline):
        ranked = super().candidates(applied, deadline)
        level = 1 + (applied.number // 100 if applied else 0)
        every = tuple(one._replace(number=100 * level + one.number) for one in ranked.candidates)
        return ranked._replace(candidates=every)

    def tried(self, candidate, deadline):
        figures = figures_of(self.report)
        level = candidate.number // 100
        return replace(figures, sent_nbytes=figures.sent_nbytes // 2**level)


def test_up_to_three_changes_stay():
    clock = Clock()
    engine = StackingEngine(clock)
    report = advised(engine, 600, now=clock)
    assert len(engine.asked) == 3
    before, after = report.remedies[0].before.sent_nbytes, report.remedies[0].after.sent_nbytes
    assert after == before // 8


def test_the_first_answer_is_said_when_it_is_proved():
    said = []
    clock = Clock()
    report = advised(FakeEngine(clock), 600, on_first=said.append, now=clock)
    assert said == [*report.remedies]


class HelplessEngine(FakeEngine):
    helping = None


def test_none_helps_is_said_of_all_candidates():
    report = advice(600, engine=HelplessEngine)
    assert (report.tried, report.untried) == (30, 0)
    assert report.answer == "none of 30 candidates helps"
    assert "of 30 candidates" in advice(20, engine=HelplessEngine).answer


def test_a_candidate_late_in_the_order_is_found_if_none_before_helps():
    class LateEngine(FakeEngine):
        helping = 25

    assert advice(600, engine=LateEngine).remedies[0].because == "reason 25"


def test_a_change_that_fails_in_the_source_is_said_with_the_reason():
    """The answer is not that none helps."""
    report = advice(60, TryFailedError("step.py cannot be loaded: FileExistsError: out"))
    assert "is proved to help" in report.answer
    assert report.failed == report.unproved == 1
    (caveat,) = report.caveats
    assert caveat == (
        "1 change that may help could not be proved: step.py cannot be loaded: FileExistsError: out"
    )


def test_a_change_without_time_for_its_proof_is_said():
    report = advice(60, TimeOverError())
    assert "is proved to help" in report.answer
    assert (report.failed, report.unproved) == (0, 1)
    assert report.caveats == ("1 change that may help could not be proved in time: --budget",)


class EndingEngine(FakeEngine):
    """Ends with each change of one rule."""

    def __init__(self, clock, problem=None):
        super().__init__(clock, problem)
        self.rules = ["batch", "freed"] * 15
        self.tries = []

    def tried(self, candidate, deadline):
        self.tries.append(candidate.rule)
        if candidate.rule == "batch":
            raise EndedError("ended")
        return super().tried(candidate, deadline)


def test_the_changes_of_a_rule_that_ends_the_process_twice_are_left_out():
    clock = Clock()
    engine = EndingEngine(clock)
    report = advised(engine, 600, now=clock)
    assert engine.tries.count("batch") == 2
    assert report.failed == 2
    assert report.remedies
    assert report.untried > 0


class LateTryEngine(FakeEngine):
    def tried(self, candidate, deadline):
        raise TimeOverError


def test_a_try_under_way_is_ended():
    report = advice(60, engine=LateTryEngine)
    assert (report.tried, report.failed, report.untried) == (0, 0, 30)
    assert report.answer.startswith("no change was measured")


def test_a_process_that_ends_while_it_ranks_is_the_reason():
    class RankingEngine(FakeEngine):
        def candidates(self, applied, deadline):
            raise EndedError("the process that compiles ended with SIGSEGV")

    class SlowEngine(FakeEngine):
        def candidates(self, applied, deadline):
            raise TimeOverError

    answer = advice(60, engine=RankingEngine).answer
    assert answer == "no change is tried: the process that compiles ended with SIGSEGV"
    assert "--budget" in advice(60, engine=SlowEngine).answer


def test_without_candidates_there_is_nothing_to_try():
    class EmptyEngine(FakeEngine):
        def candidates(self, applied, deadline):
            return Ranked((), by_propagation=True)

    assert advice(60, engine=EmptyEngine).answer.startswith("no change to try")


def test_a_rule_that_fails_is_left_out():
    lost = LeftOut(part="changes to try (batch)", error="IndexError: lost")

    class LosingEngine(FakeEngine):
        def candidates(self, applied, deadline):
            return super().candidates(applied, deadline)._replace(left_out=(lost,))

    report = advice(60, engine=LosingEngine)
    assert report.left_out == (lost,)
    assert lost.words in report.caveats
    assert report.remedies


def test_a_budget_that_is_too_short_is_said_with_one_that_is_long_enough():
    """Half of the budget is for tries at least. What the program sends is said instead."""
    report = advice(1)
    assert report.tried == 0
    assert "the budget is too short for 3: give it 8 s or more" in report.answer
    assert report.reasons[0].startswith("all-")
    report = advice(8)
    assert report.tried >= 3
    assert report.reasons == ()


@pytest.mark.parametrize("part", ["collectives", "memory", "FLOPs", ALL])
def test_a_program_without_a_part_that_is_compared_has_no_advice(part):
    clock = Clock()
    engine = FakeEngine(clock)
    lost = LeftOut(part=part, error="IndexError: lost")
    engine.report = replace(engine.report, left_out=(lost,))
    report = advised(engine, 60, now=clock)
    assert report.answer == f"no change is tried: {lost.words}"
    assert (report.left_out, report.caveats, report.tried) == ((lost,), (lost.words,), 0)


class TwinsEngine(FakeEngine):
    """Halves the bytes sent with two candidates. The first of them cannot be proved."""

    def tried(self, candidate, deadline):
        self.helping = candidate.number if candidate.number in (3, 7) else 3
        return super().tried(candidate, deadline)

    def proved(self, candidate, figures, deadline):
        if candidate.number == 3:
            raise TryFailedError("no such line")
        return super().proved(candidate, figures, deadline)


def test_a_change_that_is_as_good_is_proved_in_the_place_of_one_that_fails():
    report = advice(600, engine=TwinsEngine)
    assert [remedy.because for remedy in report.remedies] == ["reason 7"]
    assert (report.failed, report.unproved) == (1, 1)


class TradingEngine(FakeEngine):
    """Halves the bytes sent with one candidate; with another, it quarters the memory and sends more."""

    def tried(self, candidate, deadline):
        figures = super().tried(candidate, deadline)
        if candidate.number != self.helping + 1:
            return figures
        return replace(figures, sent_nbytes=figures.sent_nbytes * 2, memory_nbytes=figures.memory_nbytes // 4)


def test_a_trade_that_no_remedy_beats_is_listed():
    report = advice(600, engine=TradingEngine)
    assert [one.because for one in (*report.remedies, *report.trades)] == ["reason 3", "reason 4"]


def test_a_trade_that_a_remedy_beats_is_not_listed():
    class Engine(TradingEngine):
        """Saves the memory with both."""

        def tried(self, candidate, deadline):
            figures = super().tried(candidate, deadline)
            saves = candidate.number in (self.helping, self.helping + 1)
            nbytes = figures_of(self.report).memory_nbytes
            return replace(figures, memory_nbytes=nbytes // 4 if saves else nbytes)

    report = advice(600, engine=Engine)
    assert [one.because for one in (*report.remedies, *report.trades)] == ["reason 3"]
