"""Temporary values that appear and disappear between two programs."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name

from jax_array_info_core import from_json, program_diff_report, program_report, to_json
from jax_array_info_core.programs.memory import MOST_TEMPORARIES
from jax_array_info_core.reports import Origin, ProgramMemory, ProgramReport, Temporary


def layer(x, w):
    hidden = jnp.sin(x @ w)
    hidden = checkpoint_name(hidden, "hidden")
    gate = jnp.cos(hidden @ w)
    gate = checkpoint_name(gate, "gate")
    return gate * hidden


def report(*names):
    """Return the report on a scan that keeps the values with some names."""
    policy = jax.checkpoint_policies.save_only_these_names(*names)

    def loss(ws, x):
        kept = jax.checkpoint(layer, policy=policy)
        y, _ = jax.lax.scan(lambda carry, w: (kept(carry, w), None), x, ws)
        return jnp.sum(y**2)

    shapes = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((4, 32, 32), (16, 32)))
    return program_report(jax.grad(loss), *shapes)


@pytest.mark.once_per_version
def test_a_policy_that_keeps_another_name_adds_its_value():
    before, after = report("hidden"), report("hidden", "gate")
    named = {one.checkpoint_name for one in before.memory.temporaries if one.is_kept}
    assert named == {None, "hidden"}
    diff = program_diff_report(before, after)
    [change] = [one for one in diff.temporaries if one.value.is_kept]
    line = layer.__code__.co_firstlineno + 4
    assert (change.value.checkpoint_name, change.value.origin.line) == ("gate", line)
    assert (change.value.shape, change.before, change.after) == ((4, 16, 32), 0, 1)
    assert not diff.is_empty
    assert from_json(to_json(diff)) == diff
    assert program_diff_report(before, before).temporaries == ()


def program(*temporaries):
    return ProgramReport(name="step", platform="cpu", memory=ProgramMemory(temporaries=temporaries))


def value(size, line=1, **facts):
    origin = Origin(file="train.py", line=line, function="step")
    return Temporary(shape=(size,), dtype="int8", nbytes=size, origin=origin, **facts)


@pytest.mark.newest
def test_values_are_compared_by_function_and_type_and_not_by_line():
    before, after = (
        program(value(8), value(4, count=2)),
        program(value(8, line=3), value(4, line=3), value(2)),
    )
    changes = program_diff_report(before, after).temporaries
    assert [(one.value.shape, one.before, one.after) for one in changes] == [((4,), 2, 1), ((2,), 0, 1)]


@pytest.mark.once_per_version
def test_values_that_are_live_away_from_the_peak_are_said_to_be():
    def report(is_wide):
        def step(x, w):
            for _ in range(3):
                x = jnp.sin(x) @ x
            return x if not is_wide else (x, jnp.sum(jnp.tanh(x @ w) @ jnp.cos(w.T @ x)))

        return program_report(step, *(jax.ShapeDtypeStruct((64, n), jnp.float32) for n in (64, 1024)))

    before, after = report(False), report(True)
    peaks = [{one.shape for one in found.memory.temporaries} for found in (before, after)]
    assert peaks[0] == {(64, 64)} != peaks[1]
    assert {(64, 64)} <= {one.shape for one in after.memory.elsewhere}
    assert not {one.shape for one in before.memory.elsewhere} & {(64, 1024), (1024, 64)}
    moved = program_diff_report(
        program(value(8)), replace(program(), memory=ProgramMemory(elsewhere=(value(8, line=3),)))
    )
    assert [(one.is_elsewhere_before, one.is_elsewhere_after) for one in moved.temporaries] == [(False, True)]


@pytest.mark.newest
def test_values_below_the_last_row_of_a_report_are_not_said_to_appear():
    rows = [value(size) for size in range(100, 100 - MOST_TEMPORARIES, -1)]
    before = program(*rows)
    after = program(*rows[1:], value(5))
    assert [
        (one.value.shape, one.before, one.after) for one in program_diff_report(before, after).temporaries
    ] == [((100,), 1, 0)]
    assert program_diff_report(replace(before, memory=None), after).temporaries == ()
