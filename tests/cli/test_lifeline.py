"""Which process died first, however late that is asked."""

import itertools
import os
import sys

import pytest

from jax_array_info_cli.launching.lifeline import Lifeline, Lifelines

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps the order"),
    pytest.mark.oldest_and_newest,
]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_order_of_ends_is_known_afterwards(order):
    lifelines = Lifelines()
    pipes = [os.pipe() for _ in range(3)]
    for process, (parent_end, _) in enumerate(pipes):
        lifelines.add(process, parent_end)
    assert lifelines.closed_before(0) == ()
    for process in order:
        os.close(pipes[process][1])
    for place, process in enumerate(order):
        assert lifelines.closed_before(process) == order[:place]
    for parent_end, _ in pipes:
        os.close(parent_end)


def test_an_end_may_be_announced():
    lifelines = Lifelines()
    parent_end, process_end = os.pipe()
    lifelines.add(0, parent_end)
    Lifeline(process_end).announce_end()
    assert lifelines.closed_before(1) == (0,)
    os.close(parent_end)
