"""The judgement of changes."""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core.compat.programs import module_bytecode
from jax_array_info_core.programs.advice.judging import best_of, sharding_key, verdict
from jax_array_info_core.reports import ProgramFigures

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
        ({"flops": 950}, "better"),
        ({"sent_nbytes": 0, "flops": 1100}, "no"),  # each device computes everything
        ({"sent_nbytes": None, "flops": 100}, "no"),
        ({"sent_nbytes": 0, "xla_flops": None}, "no"),
    ],
)
def test_a_change_is_better_a_trade_or_neither(figures, word):
    assert verdict(BASE, replace(BASE, **figures)) == word


def test_none_of_the_best_is_beaten_and_each_other_is():
    numbers = [*itertools.product((1, 2, 3), repeat=3)]
    changes = [
        ProgramFigures(sent_nbytes=sent, memory_nbytes=memory, flops=flops)
        for sent, memory, flops in numbers
        if sent + memory + flops > 5
    ]
    best = best_of(changes, lambda figures: figures, 100)
    assert {(figures.sent_nbytes, figures.memory_nbytes, figures.flops) for figures in best} == {
        row for row in numbers if sum(row) == 6
    }
    assert [figures.sent_nbytes for figures in best] == sorted(figures.sent_nbytes for figures in best)
    few = best_of(changes, lambda figures: figures, 3)
    for name in ("sent_nbytes", "memory_nbytes", "flops"):
        assert min(getattr(figures, name) for figures in few) == 1


def test_constraints_that_change_nothing_give_the_same_key():
    """Also several of them; one that shards another dimension gives another."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))
    array = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, P("x", "y")))

    def key(*specs):
        def f(x):
            y = jnp.sin(x)
            for spec in specs:
                y = jax.lax.with_sharding_constraint(y, NamedSharding(mesh, spec))
            return y * 2

        return sharding_key(module_bytecode(jax.jit(f).lower(array)))

    assert key() == key(P("x", "y")) == key(P("x", "y"), P("x", "y"))
    assert key() != key(P("y", "x"))
