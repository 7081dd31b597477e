"""The judgement of changes."""

import itertools
from dataclasses import replace

import pytest

from jax_array_info_core.facts.reports.advice import moved_nbytes
from jax_array_info_core.programs.advice.judging import DEFAULT, Scale
from jax_array_info_core.reports import LoopFigures, ProgramFigures

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]
MIB = 2**20
BASE = ProgramFigures(sent_nbytes=100 * MIB, memory_nbytes=200 * MIB, flops=1000, xla_flops=1000)


@pytest.mark.parametrize(
    ("figures", "word"),
    [
        ({"sent_nbytes": 90 * MIB}, "better"),
        ({"sent_nbytes": 96 * MIB}, "no"),
        ({"memory_nbytes": 190 * MIB, "sent_nbytes": 105 * MIB}, "better"),
        ({"memory_nbytes": 190 * MIB, "sent_nbytes": 106 * MIB}, "trade"),
        ({"flops": 500, "xla_flops": 500}, "no"),  # nothing next to the bytes
        ({"sent_nbytes": 90 * MIB, "flops": 1100}, "trade"),
        ({"sent_nbytes": 0, "flops": 2000}, "no"),  # each device computes everything
        ({"sent_nbytes": None, "flops": 100}, "no"),
        ({"sent_nbytes": 0, "xla_flops": None}, "no"),
        ({"sent_nbytes": 0, "unknown": ("a kernel",)}, "no"),
    ],
)
def test_a_change_is_better_a_trade_or_neither(figures, word):
    assert DEFAULT.verdict(BASE, replace(BASE, **figures)) == word


WORK = ProgramFigures(sent_nbytes=10 * MIB, memory_nbytes=32 * MIB, flops=10**12, xla_flops=10**12)


def test_bytes_and_flops_are_weighed_by_the_balance():
    """Of 1 TFLOP, 84 % are worth more than 3 MiB, on v5e; 5 MiB are not worth 5 % of them, but are on v3."""
    less_work = {"flops": 160 * 10**9, "xla_flops": 160 * 10**9}
    dear = replace(WORK, sent_nbytes=13 * MIB, **less_work)
    assert DEFAULT.verdict(WORK, dear) == "trade"
    assert DEFAULT.verdict(dear, WORK) == "no"
    assert DEFAULT.verdict(WORK, replace(WORK, sent_nbytes=10 * MIB + MIB // 2, **less_work)) == "better"
    fewer = replace(WORK, sent_nbytes=5 * MIB)
    assert DEFAULT.verdict(WORK, fewer) == "no"
    assert Scale(balance=20_000).verdict(WORK, fewer) == "better"


@pytest.mark.parametrize(
    ("topology", "chip", "balance"),
    [(None, "v5e", 2189), ("v5p:2x2x2", "v5p", 2550), ("h100:8", "h100", 2200), ("v2:2x2", "v5e", 2189)],
)
def test_the_balance_is_that_of_the_chip(topology, chip, balance):
    assert (Scale.of(topology).chip, Scale.of(topology).balance) == (chip, balance)
    assert Scale.of(topology, 300) == Scale(balance=300, chip="")
    assert Scale.of(None) == DEFAULT


def test_a_figure_that_is_a_little_worse_does_not_count():
    """More memory counts from 1 MiB on, and from a quarter; more bytes sent from 1 MiB on and 1 % of it."""
    base = ProgramFigures(sent_nbytes=0, memory_nbytes=4 * MIB, flops=10**10, xla_flops=10**10)
    half = replace(base, flops=10**9, xla_flops=10**9)
    more = {MIB // 2: "better", MIB + 1: "trade"}
    for nbytes, word in more.items():
        assert DEFAULT.verdict(base, replace(half, memory_nbytes=4 * MIB + nbytes)) == word
        assert DEFAULT.verdict(base, replace(half, sent_nbytes=nbytes)) == word
    assert Scale(min_nbytes=2**10).verdict(base, replace(half, memory_nbytes=5 * MIB)) == "trade"


def loop(name, sent, flops=0):
    return LoopFigures(loop=name, sent_nbytes=sent, flops=flops)


@pytest.mark.parametrize(
    ("sent", "loops", "word"),
    [
        (1, (loop("a", 50 * MIB),), "better"),
        (1, (loop("a", 50 * MIB), loop("b", 2 * MIB)), "trade"),
        (1, (loop("a", 100 * MIB),), "no"),
        (1, (), "better"),
        (40, (loop("a", 50 * MIB),), "trade"),
        (0, (loop("a", 100 * MIB),), "no"),  # 1 MiB of a call with one iteration
        (1, (loop("a", 50 * MIB, 100),), "trade"),
    ],
)
def test_loops_of_unknown_length_are_compared_by_iteration(sent, loops, word):
    """What is outside of them counts as much as one iteration."""
    base = replace(BASE, sent_nbytes=MIB, loops=(loop("a", 100 * MIB),))
    assert DEFAULT.verdict(base, replace(base, sent_nbytes=sent * MIB, loops=loops)) == word


def test_none_of_the_best_is_beaten_and_each_other_is():
    numbers = [*itertools.product((1, 2, 3), repeat=2)]
    changes = [
        ProgramFigures(sent_nbytes=sent * 100 * MIB, memory_nbytes=memory * 100 * MIB, flops=0)
        for sent, memory in numbers
        if sent + memory > 3
    ]
    base = ProgramFigures(sent_nbytes=900 * MIB, memory_nbytes=900 * MIB, flops=0)
    best = DEFAULT.best_of(base, changes, lambda figures: figures, 100)
    found = {(figures.sent_nbytes // 100 // MIB, figures.memory_nbytes // 100 // MIB) for figures in best}
    assert found == {(1, 3), (2, 2), (3, 1)}
    few = DEFAULT.best_of(base, changes, lambda figures: figures, 2)
    for name in ("sent_nbytes", "memory_nbytes"):
        assert min(getattr(figures, name) for figures in few) == 100 * MIB


def test_of_changes_that_are_about_equal_the_first_is_kept():
    """A few bytes more or less make no difference."""
    half = replace(BASE, sent_nbytes=50 * MIB)
    little = replace(half, sent_nbytes=50 * MIB - 2**10, memory_nbytes=199 * MIB)
    for changes in ([half, little], [little, half]):
        assert DEFAULT.best_of(BASE, changes, lambda figures: figures, 5) == changes[:1]
    cheap = replace(half, flops=100, xla_flops=100)
    costly = replace(cheap, sent_nbytes=90 * MIB)
    assert DEFAULT.gaining([costly, cheap], [half], lambda figures: figures) == [cheap]
    zero = replace(BASE, sent_nbytes=100 * 2**10)
    more = replace(zero, sent_nbytes=112 * 2**10, memory_nbytes=100 * MIB)
    assert DEFAULT.verdict(zero, more) == "better"


def test_a_gather_that_moves_to_the_caller_comes_last():
    """A state that returns as large is no such gather."""
    base = replace(BASE, argument_nbytes=10 * MIB, output_nbytes=10 * MIB)
    moved = replace(base, sent_nbytes=0, argument_nbytes=110 * MIB)
    state, other = replace(moved, output_nbytes=110 * MIB), replace(base, memory_nbytes=100 * MIB)
    assert [moved_nbytes(base, one) for one in (moved, state, other)] == [100 * MIB, 0, 0]
    best = DEFAULT.best_of(base, [moved, other], lambda figures: figures, 5)
    assert best == [other, moved]
