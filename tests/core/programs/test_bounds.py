"""Laws of bounds and of figures per iteration: no execution of a program sends more."""

import random
from collections import Counter
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.sharding import PartitionSpec as P

from jax_array_info_core import assert_sent, program_report
from jax_array_info_core.compat.arrays import per_shard
from jax_array_info_core.errors import CheckError
from jax_array_info_core.facts.reports.collectives import SentTotals, sent_words
from jax_array_info_core.facts.reports.control_flow import Cost, sums_of
from jax_array_info_core.programs.sent_totals import runs_of, totals_of
from jax_array_info_core.xla.hlo.collectives import movements, sent_nbytes
from jax_array_info_core.xla.hlo.dataflow import Dataflow
from jax_array_info_core.xla.hlo.loops import executions
from tests.core.programs.collectives_of_text import DP, of_text
from tests.hlo_texts import module_of
from tests.programs import abstract, line

TREES = st.recursive(
    st.integers(1, 9),
    lambda parts: st.one_of(
        st.tuples(st.just("cond"), st.lists(parts, min_size=2, max_size=3)),
        st.tuples(st.just("loop"), st.lists(parts, min_size=1, max_size=2), st.integers(0, 3)),
        st.tuples(st.just("while"), st.lists(parts, min_size=1, max_size=2)),
    ),
    max_leaves=8,
)
"""Programs: a collective of so many elements, a conditional with its sides, or a loop with its body."""


class Text:
    """A program as XLA prints it. Its loops of unknown length and conditionals have lines of their own."""

    def __init__(self, parts):
        self.computations = []
        self.lines = {}
        entry = self.computation("main", parts)
        self.text = "\n".join(
            ["HloModule m, num_partitions=8", *self.computations[:-1], f"ENTRY {self.computations[-1]}"]
        )
        assert entry == "main"

    def computation(self, name, parts):
        lines = [f"%{name}.p = f32[] parameter(0)"]
        lines += [self.instruction(f"{name}.{at}", one, f"%{name}.p") for at, one in enumerate(parts)]
        root = "pred[] constant(false)" if name.endswith(".condition") else "f32[] constant(1)"
        body = "\n".join(f"  {line}" for line in [*lines, f"ROOT %{name}.r = {root}"])
        self.computations.append(f"%{name} {{\n{body}\n}}")
        return name

    def instruction(self, name, part, operand):
        if isinstance(part, int):
            return (
                f"%{name}.i = f32[{part}]{{0}} iota(), iota_dimension=0\n"
                f"  %{name} = f32[{part}]{{0}} collective-permute(%{name}.i), channel_id=1,"
                " source_target_pairs={{0,1},{1,0}}"
            )
        line = self.lines[id(part)] = len(self.lines) + 1
        metadata = f', metadata={{op_name="jit(f)/x" source_file="/f.py" source_line={line}}}'
        if part[0] == "cond":
            sides = [self.computation(f"{name}.{at}", [one]) for at, one in enumerate(part[1])]
            branches = ", ".join(f"%{one}" for one in sides)
            operands = ", ".join([f"%{name}.n", *[operand] * len(sides)])
            return (
                f"%{name}.n = s32[] constant(0)\n"
                f"  %{name} = f32[] conditional({operands}), branch_computations={{{branches}}}{metadata}"
            )
        body = self.computation(f"{name}.body", part[1])
        condition = self.computation(f"{name}.condition", [])
        trips = f', backend_config={{"known_trip_count":{{"n":"{part[2]}"}}}}' if part[0] == "loop" else ""
        return f"%{name} = f32[] while({operand}), condition=%{condition}, body=%{body}{metadata}{trips}"


def executed(parts, choose, turns):
    """Return the bytes that an execution sends outside of loops of unknown length, and in each of them.

    Args:
        parts: The program.
        choose: A function from the sides of a conditional to the one that is taken.
        turns: Counter of the iterations of each loop of unknown length.
    """
    sent = Counter()

    def run(part, loop):
        if isinstance(part, int):
            sent[loop] += 4 * part
        elif part[0] == "cond":
            run(choose(part[1]), loop)
        else:
            for _ in range(part[2] if part[0] == "loop" else random.randrange(4)):
                inside = loop if part[0] == "loop" else id(part)
                turns[inside] += part[0] == "while"
                for one in part[1]:
                    run(one, inside)

    for part in parts:
        run(part, None)
    return sent


@pytest.mark.newest
@settings(max_examples=150, deadline=None)
@given(st.lists(TREES, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_no_execution_of_loops_and_conditionals_sends_more_than_is_said(parts, chance):
    program = Text(parts)
    totals = totals_of(of_text(program.text, DP))
    figures = {one.origin.line: one for one in totals.per_iteration}
    assert len(figures) == len(totals.per_iteration)
    for _ in range(5):
        turns = Counter()
        sent = executed(parts, chance.choice, turns)
        assert totals.nbytes <= sent.pop(None, 0) <= totals.bound_nbytes
        for loop, nbytes in sent.items():
            figure = figures[program.lines[loop]]
            most = figure.nbytes * turns[loop]
            assert nbytes <= most if figure.is_bound else nbytes == most


def runs(parts):
    """Return how many collectives a program without conditionals runs outside of loops of unknown length."""
    return sum(
        1 if isinstance(part, int) else part[2] * runs(part[1]) if part[0] == "loop" else 0 for part in parts
    )


@pytest.mark.newest
@settings(deadline=None)
@given(st.lists(TREES, min_size=1, max_size=3))
def test_collectives_are_counted_with_the_turns_of_loops(parts):
    module = module_of(Text(parts).text)
    counted = runs_of(movements(module.once(Dataflow))[0], executions(module))
    assert counted == (None if is_conditional(parts) else runs(parts))


def is_conditional(parts):
    """Return whether a collective of a program runs in a conditional outside of loops of unknown length."""
    return any(
        not isinstance(part, int)
        and (
            (part[0] == "cond" and any(map(sends, part[1])))
            or (part[0] == "loop" and part[2] > 0 and is_conditional(part[1]))
        )
        for part in parts
    )


def sends(part):
    """Return whether a part of a program has a collective outside of loops of unknown length."""
    if isinstance(part, int) or part[0] == "while":
        return isinstance(part, int)
    return any(map(sends, part[1])) and (part[0] == "cond" or part[2] > 0)


@pytest.mark.newest
def test_the_number_of_collectives_stands_next_to_their_bytes():
    sent = SentTotals(nbytes=96, executions=61)
    assert sent_words(sent) == "96.0 B in 61 collectives"
    assert sent_words(replace(sent, executions=1)) == "96.0 B in 1 collective"
    assert sent_words(replace(sent, executions=None)) == "96.0 B"


@pytest.mark.newest
@given(st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_the_bound_of_a_conditional_is_that_of_its_larger_side(sides):
    totals = totals_of(of_text(Text([7, ("cond", sides)]).text, DP))
    assert (totals.nbytes, totals.bound_nbytes) == (28, 28 + 4 * max(sides))


@pytest.mark.newest
@given(st.data())
def test_a_ragged_all_to_all_never_sends_more_than_its_bound_and_may_send_it(data):
    count, rows = data.draw(st.integers(2, 9)), data.draw(st.integers(1, 9))
    bound = sent_nbytes("ragged-all-to-all", 4 * rows, 4 * rows * count, count)
    # Slices may overlap, so that each of the others may get the whole operand.
    sizes = data.draw(st.lists(st.integers(0, rows), min_size=count, max_size=count))
    assert 4 * sum(sizes[1:]) <= bound == 4 * rows * (count - 1)


@pytest.mark.newest
def test_costs_of_no_side_and_of_no_loop_are_a_plain_sum():
    ((_, *none),) = sums_of([])
    ((_, *two),) = sums_of([Cost((), 3), Cost((), 4, is_bound=True)])
    assert (none, two) == ([0, 0, False, 0], [3, 7, True, 2])


def report_of(f, *more):
    """Return the report on a function of a part of an array on 8 devices, and of replicated arguments."""
    mapped = per_shard(f, line("x"), (P("x"), *[P()] * len(more)), P("x"))
    return program_report(jax.jit(mapped), abstract(line("x"), P("x"), (64,)), *more)


@pytest.mark.newest  # earlier versions of XLA may give the loop the line of its body
@pytest.mark.once_per_version
@pytest.mark.needs_devices(8)
def test_a_loop_in_a_loop_has_its_own_figure_in_the_one_of_the_outer():
    def solve(x):
        def inner(state):
            y, _ = state
            return y / 2, lax.pmax(jnp.max(y), "x")

        def outer(state):
            y, _ = lax.while_loop(lambda s: s[1] > 1, inner, (state[0], jnp.float32(9)))
            return y, lax.psum(jnp.sum(y), "x")

        return lax.while_loop(lambda s: s[1] > 1, outer, (x, jnp.float32(9)))[0]

    report = report_of(solve)
    outer, inner = report.sent.per_iteration
    first = solve.__code__.co_firstlineno
    assert (outer.nbytes, inner.nbytes, outer.outer, report.sent.nbytes) == (7, 7, (), 0)
    assert (inner.origin.line, outer.origin.line) == (first + 6, first + 9)
    assert [one.origin.line for one in inner.outer] == [outer.origin.line]
    assert sent_words(report.sent) == (
        f"7.0 B per iteration of while_loop (test_bounds.py:{first + 9})"
        f" and 7.0 B per iteration of while_loop (test_bounds.py:{first + 6}) in it"
    )
    with pytest.raises(CheckError, match=r"all-reduce over x: 7.0 B per iteration of while_loop"):
        assert_sent(report, "1GiB")


@pytest.mark.once_per_version
@pytest.mark.needs_devices(8)
def test_what_the_condition_of_a_loop_sends_is_sent_once_more_than_its_iterations():
    def halve(x):
        return lax.while_loop(lambda y: lax.pmax(jnp.max(y), "x") > 1, lambda y: y / 2, x)

    report = report_of(halve)
    (loop,) = report.sent.per_iteration
    assert (report.sent.nbytes, loop.nbytes, loop.is_bound) == (7, 7, False)


@pytest.mark.once_per_version
@pytest.mark.needs_devices(8)
def test_a_limit_that_is_an_argument_is_no_bound():
    def repeat(x, n):
        return lax.fori_loop(0, n, lambda _, y: y + lax.ppermute(y, "x", [(0, 1), (1, 0)]), x)

    report = report_of(repeat, abstract(line("x"), P(), (), "int32"))
    (loop,) = report.sent.per_iteration
    assert (report.sent.nbytes, loop.nbytes) == (0, 32)
    assert report.sent.unknown_count == 1


@pytest.mark.once_per_version
@pytest.mark.needs_devices(8)
def test_sides_of_a_conditional_exclude_each_other():
    def step(x):
        return lax.cond(
            x[0] > 0, lambda y: lax.all_gather(y, "x").sum(0), lambda y: y * lax.psum(jnp.sum(y), "x"), x
        )

    report = report_of(step)
    sides = {one.kind: one for one in report.collectives}
    assert {one.within[0].side for one in report.collectives} == {0, 1}
    assert {one.within[0].words for one in report.collectives} == {
        f"one side of cond test_bounds.py:{step.__code__.co_firstlineno + 1}"
    }
    assert report.sent.bound_nbytes == max(one.bound_nbytes for one in sides.values())


STEPS, SIZE = 500, 4.0
CONDITIONS = {
    "less, and more": (lambda i, x: (i < STEPS) & (x > 1e-6), STEPS),
    "more, and less": (lambda i, x: (x > 1e-6) & (i < STEPS), STEPS),
    "three parts": (lambda i, x: (x > 1e-6) & (x < 9) & (i <= STEPS), STEPS + 1),
    "two bounds": (lambda i, x: (i < STEPS) & (i < 7) & (x > 1e-6), 7),
    "not done": (lambda i, x: ~((i >= STEPS) | (x < 1e-6)), STEPS),
    "a constant first": (lambda i, x: (x > 1e-6) & (i != STEPS), STEPS),
    "either": (lambda i, x: (i < STEPS) | (x > 1e-6), None),
    "no counter": (lambda i, x: (x > 1e-6) & (x < 9), None),
    "counts away": (lambda i, x: (i > -STEPS) & (x > 1e-6), None),
}


@pytest.mark.once_per_version
@pytest.mark.needs_devices(8)
@pytest.mark.parametrize(("condition", "most"), CONDITIONS.values(), ids=CONDITIONS)
def test_a_condition_that_bounds_the_iterations_is_told(condition, most):
    def solve(x):
        def body(state):
            i, y, _ = state
            return i + 1, y / 2, lax.pmax(jnp.max(y), "x")

        return lax.while_loop(lambda s: condition(s[0], s[2]), body, (0, x, jnp.float32(SIZE)))[1]

    report = report_of(solve)
    (loop,) = report.sent.per_iteration
    assert loop.at_most == most
    words = sent_words(report.sent)
    assert (f", at most {most} iterations)" in words) if most else ("at most" not in words)


@pytest.mark.once_per_version
@pytest.mark.needs_devices(8)
def test_bytes_below_one_are_added_up_before_they_are_rounded():
    def halve(x):
        return lax.scan(lambda y, _: (jnp.where(jnp.all(y > 0), y / 2, y), None), x, None, length=20)[0]

    report = program_report(jax.jit(halve), abstract(line("x"), P("x"), (64,)))
    (row,) = report.collectives
    assert (row.dtype, row.times, row.sent_nbytes, row.total_nbytes) == ("bool", 20, 2, 35)
    assert row.each_words == "1.8 B"
