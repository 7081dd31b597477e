"""Live bytes along the schedule: their points, and how they agree with the temporary values at the peak."""

import pytest

from jax_array_info_core.hlo.liveness import live_bytes_of, temporaries_of
from jax_array_info_core.hlo.schedule import schedule_of
from tests.core.hlo.test_temporaries import EVERYWHERE, at, first
from tests.hlo_texts import module_of, stored

pytestmark = pytest.mark.oldest_and_newest

MOST = 10**9


def at_point(live, point):
    """Return the sizes of the values that are live at a point, sorted."""
    return sorted(
        value.shape.nbytes
        for value, ranges in live.values
        if any(start <= point <= end for start, end in ranges)
    )


@pytest.mark.parametrize("program", ["scan", "checkpoint"])
@pytest.mark.parametrize("where", EVERYWHERE)
def test_the_highest_point_is_that_of_the_temporary_values(where, program):
    """For both scans, with and without ``jax.checkpoint``, of each version of JAX and each accelerator."""
    module = stored(where, program)
    highest = sorted(value.shape.nbytes for value in temporaries_of(module, first).highest)
    for most in (MOST, 480, 7, 1):
        live = live_bytes_of(module, first, most)
        peak = live.nbytes.index(max(live.nbytes))
        assert live.nbytes[peak] == sum(highest)
        assert at_point(live, peak) == highest
        assert len(live.points) == len(live.operations) == len(live.nbytes) <= most


@pytest.mark.parametrize("program", ["scan", "checkpoint"])
@pytest.mark.parametrize("where", EVERYWHERE)
def test_the_values_at_each_point_have_its_bytes(where, program):
    live = live_bytes_of(stored(where, program), first, 50)
    for point, nbytes in enumerate(live.nbytes):
        assert sum(at_point(live, point)) == nbytes


@pytest.mark.parametrize("most", [1, 2, 7, 50, 480])
def test_a_point_is_the_highest_of_its_part_of_the_schedule(most):
    module = stored("0.12.0.1", "scan")
    whole, live = live_bytes_of(module, first, MOST), live_bytes_of(module, first, most)
    assert whole.points == tuple(range(1, whole.operation_count + 1))
    assert list(whole.operations) == schedule_of(module).operations
    size = whole.operation_count / len(live.points)
    for number, (point, nbytes) in enumerate(zip(live.points, live.nbytes, strict=True)):
        part = whole.nbytes[int(number * size + 1e-6) : int((number + 1) * size + 1e-6)]
        assert nbytes == max(part) == whole.nbytes[point - 1]
        assert live.operations[number] is whole.operations[point - 1]


def test_a_value_is_live_from_its_operation_to_its_last_use():
    body = f"""
  %p = f32[8]{{0}} parameter(0)
  %a = f32[16]{{0}} pad(%p, %p), padding=0_8, {at(1)}
  %b = f32[4]{{0}} slice(%a), slice={{[0:4]}}, {at(2)}
  %c = f32[2]{{0}} slice(%p), slice={{[0:2]}}, {at(3)}
  ROOT %d = f32[8]{{0}} concatenate(%b, %c), {at(4)}"""
    module = module_of(f"HloModule test, is_scheduled=true\n\nENTRY %main {{{body}\n}}")
    live = live_bytes_of(module, first, MOST)
    assert [one.name for one in live.operations] == ["p", "a", "b", "c", "d", "d"]
    assert live.nbytes == (0, 64, 64 + 16, 16 + 8, 16 + 8, 0)
    assert [(value.frames[0].line, ranges) for value, ranges in live.values] == [
        (1, ((1, 2),)),
        (2, ((2, 4),)),
        (3, ((3, 4),)),
    ]


def test_100_000_operations_have_480_points():
    """The last operation of all uses the first value, so its bytes are in each point."""
    chain = "\n".join(
        f"  %v{number} = f32[8]{{0}} reverse(%v{number - 1}), dimensions={{0}}"
        for number in range(1, 100_000)
    )
    body = f"  %v0 = f32[8]{{0}} parameter(0)\n{chain}\n  ROOT %r = f32[16]{{0}} concatenate(%v1, %v99999)"
    live = live_bytes_of(
        module_of(f"HloModule test, is_scheduled=true\n\nENTRY %main {{\n{body}\n}}"), first, 480
    )
    assert live.operation_count == 100_002
    assert len(live.points) == 480
    assert set(live.nbytes[1:-1]) == {3 * 32}
