"""Loops in which devices wait for each other in each iteration."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from jax_array_info import program_report, to_text
from jax_array_info_core.compat.arrays import per_shard
from jax_array_info_core.programs.control_flow import _connected
from tests.programs import abstract, line

pytestmark = [pytest.mark.once_per_version, pytest.mark.needs_devices(8)]


def newton(a):
    return lax.while_loop(lambda x: jnp.abs(x * x - a) > 1e-5, lambda x: (x + a / x) / 2, a)


def waits(f, *arguments):
    """Return the devices that wait in each loop of unknown length, and the collectives of an iteration."""
    report = program_report(f, *arguments)
    return [(loop.waiting_devices, loop.executions) for loop in report.sent.per_iteration]


def test_a_batch_of_loops_on_a_sharded_axis_waits_for_the_slowest_of_all():
    x = abstract(line("x"), P("x"), (64,))
    assert waits(jax.vmap(newton), x) == [(8, 1)]
    words = " ".join(to_text(program_report(jax.vmap(newton), x), width=200).split())
    place = f"while_loop (test_waiting.py:{newton.__code__.co_firstlineno + 1})"
    waiting = "all devices wait for each other in each iteration: 1 collective per iteration"
    assert f"{place}: {waiting}" in words


def test_loops_of_the_devices_themselves_do_not_wait():
    mesh = line("x")
    mapped = per_shard(jax.vmap(newton), mesh, P("x"), P("x"))
    assert waits(mapped, abstract(mesh, P("x"), (64,))) == []


def test_devices_of_other_groups_do_not_wait():
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))

    def halve(a):
        return lax.while_loop(lambda b: lax.pmax(jnp.max(b), "x") > 1, lambda b: b / 2, a)

    mapped = per_shard(halve, mesh, P(("x", "y")), P(("x", "y")))
    x = abstract(mesh, P(("x", "y")), (64,))
    assert waits(mapped, x) == [(4, 1)]
    assert "4 devices wait for each other" in to_text(program_report(mapped, x), width=200)


def test_a_loop_that_sends_but_counts_by_itself_does_not_wait():
    mesh = line("x")

    def turn(a, n):
        ring = [(number, (number + 1) % 8) for number in range(8)]
        return lax.fori_loop(0, n, lambda _, b: lax.ppermute(b, "x", ring) + lax.psum(jnp.sum(b), "x"), a)

    mapped = per_shard(turn, mesh, (P("x"), P()), P("x"))
    arguments = abstract(mesh, P("x"), (64,)), abstract(mesh, P(), (), "int32")
    [(devices, count)] = waits(mapped, *arguments)
    assert (devices, count) == (0, 0)


def test_a_sum_before_the_loop_is_no_wait_in_it():
    mesh = line("x")

    def repeat(a):
        n = lax.pmax(jnp.max(a), "x").astype(int)
        ring = [(number, (number + 1) % 8) for number in range(8)]
        return lax.fori_loop(0, n, lambda _, b: lax.ppermute(b, "x", ring), a)

    assert waits(per_shard(repeat, mesh, P("x"), P("x")), abstract(mesh, P("x"), (64,))) == [(0, 0)]


def test_the_collectives_of_an_iteration_count_with_the_turns_of_loops_in_it():
    mesh = line("x")
    ring = [(number, (number + 1) % 8) for number in range(8)]

    def sweep(b):
        return lax.fori_loop(0, 5, lambda _, c: lax.ppermute(c, "x", ring) / 2, b)

    def solve(a):
        return lax.while_loop(lambda b: lax.psum(jnp.sum(b), "x") > 1, sweep, a)

    assert waits(per_shard(solve, mesh, P("x"), P("x")), abstract(mesh, P("x"), (64,))) == [(8, 6)]


@given(st.lists(st.permutations(range(8)), max_size=4), st.sampled_from([1, 2, 4, 8]))
def test_devices_are_connected_through_others(orders, size):
    moved = [SimpleNamespace(groups=np.array(order).reshape(-1, size)) for order in orders]
    sets = [{device} for device in range(8)] if moved else [{0}]
    for one in moved:
        for group in one.groups:
            joined = set().union(*(part for part in sets if part & set(group.tolist())))
            sets = [part for part in sets if not part & joined] + [joined]
    assert _connected(moved) == max(map(len, sets))
