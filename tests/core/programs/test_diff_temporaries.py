"""Temporary values that appear and disappear between two programs."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.ad_checkpoint import checkpoint_name

from jax_array_info_core import from_json, program_diff_report, program_report, to_json
from jax_array_info_core.programs.program_report import MOST_TEMPORARIES
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


@pytest.mark.oldest_and_newest
def test_values_are_compared_by_function_and_type_and_not_by_line():
    before, after = (
        program(value(8), value(4, count=2)),
        program(value(8, line=3), value(4, line=3), value(2)),
    )
    changes = program_diff_report(before, after).temporaries
    assert [(one.value.shape, one.before, one.after) for one in changes] == [((4,), 2, 1), ((2,), 0, 1)]


@pytest.mark.oldest_and_newest
def test_values_below_the_last_row_of_a_report_are_not_said_to_appear():
    rows = [value(size) for size in range(100, 100 - MOST_TEMPORARIES, -1)]
    before = program(*rows)
    after = program(*rows[1:], value(5))
    assert [
        (one.value.shape, one.before, one.after) for one in program_diff_report(before, after).temporaries
    ] == [((100,), 1, 0)]
    assert program_diff_report(replace(before, memory=None), after).temporaries == ()
