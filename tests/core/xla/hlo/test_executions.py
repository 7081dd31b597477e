from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_array_info_core.xla.hlo.loops import executions as found_executions
from jax_array_info_core.xla.hlo.module import calls_of, read_module
from tests.hlo_texts import CPU, EVERYWHERE, module_of, records, stored

pytestmark = pytest.mark.newest


class Executions(NamedTuple):
    """The exact number of executions, else the largest one."""

    times: int | None
    at_most: int | None


ONCE = Executions(1, None)
UNKNOWN = Executions(None, None)


def executions(module):
    """Return the executions of each computation."""
    return {name: Executions(one.times, one.at_most) for name, one in found_executions(module).items()}


def text_with(*computations):
    """Return the text of a program, from the name and the lines of each computation; the last one is the entry."""
    parts = [f"%{name} () -> f32[] {{\n" + "\n".join(lines) + "\n}\n" for name, *lines in computations]
    return "HloModule m\n\n" + "\n".join([*parts[:-1], "ENTRY " + parts[-1]])


def module_with(*computations):
    """Return a program, from the name and the lines of each computation; the last one is the entry."""
    return module_of(text_with(*computations))


def loops(module):
    """Return the executions of the bodies and conditions of all loops."""
    found = executions(module)
    return sorted(
        (found[call.name].times, call.role)
        for computation in module.computations.values()
        for instruction in computation.instructions
        for call in calls_of(instruction)
        if call.role in ("body", "condition")
    )


@pytest.mark.parametrize("where", EVERYWHERE)
def test_a_scan_in_a_scan_runs_3_times_4_times(where):
    expected = [(3, "body"), (4, "condition"), (12, "body"), (15, "condition")]
    assert loops(stored(where, "scan_in_scan")) == expected


@pytest.mark.parametrize("where", [*CPU, "h100"])
@pytest.mark.parametrize("program", ["scan", "checkpoint", "scan_in_scan", "permute"])
def test_the_derived_number_of_turns_is_the_printed_one(where, program):
    record = records(where)[program]
    derived = record.replace(b"known_trip_count", b"unknown_trip_num")
    assert derived != record
    assert executions(read_module(derived)) == executions(read_module(record))


def test_calls_from_several_places_add_up():
    module = module_with(
        ("f", "  ROOT %a = f32[] constant(1)"),
        (
            "g",
            "  ROOT %a = f32[] fusion(), kind=kLoop, calls=%f",
            "  %b = f32[] fusion(), kind=kLoop, calls=%f",
        ),
        (
            "main",
            "  %a = f32[] call(), to_apply=%g",
            "  %b = f32[] fusion(), kind=kLoop, calls=%f",
            "  ROOT %c = f32[] copy(%b)",
        ),
    )
    assert executions(module) == {"f": Executions(3, None), "g": ONCE, "main": ONCE}


def test_computations_of_elements_do_not_count_and_those_of_custom_calls_are_unknown():
    module = module_with(
        ("add", "  ROOT %a = f32[] constant(1)"),
        ("compare", "  ROOT %a = f32[] constant(1)"),
        (
            "main",
            "  %a = f32[] all-reduce(%b), to_apply=%add",
            '  ROOT %b = f32[] custom-call(), custom_call_target="TopK", called_computations={%compare}',
        ),
    )
    found = executions(module)
    assert found["add"] == Executions(0, None)
    assert found["compare"] == UNKNOWN


def test_a_loop_in_a_branch_runs_at_most_as_often_as_it_turns():
    module = module_with(
        ("body", "  ROOT %a = f32[] constant(1)"),
        ("condition", "  ROOT %a = f32[] constant(1)"),
        (
            "yes",
            "  ROOT %a = f32[] while(%b), condition=%condition, body=%body,"
            ' backend_config={"known_trip_count":{"n":"7"}}',
        ),
        ("no", "  ROOT %a = f32[] constant(1)"),
        ("main", "  ROOT %a = f32[] conditional(%b, %c, %c), true_computation=%yes, false_computation=%no"),
    )
    assert executions(module)["body"] == Executions(None, 7)
    assert executions(module)["condition"] == Executions(None, 8)


def counted(
    start,
    step,
    limit,
    direction,
    operation="add",
    *,
    is_flipped=False,
    is_carried=False,
    is_fused=False,
    passed_by="copy",
):
    """Return the text of a program without printed trip counts, whose only loop counts in this way."""
    limit_in_loop = "get-tuple-element(%p), index=1" if is_carried else f"constant({limit})"
    sides = "%limit, %i" if is_flipped else "%i, %limit"
    compare = f"compare({sides}), direction={direction}"
    fused = f"fusion({sides}), kind=kLoop, calls=%compare"
    return text_with(
        (
            "compare",
            "  %x = s32[] parameter(0)",
            "  %y = s32[] parameter(1)",
            f"  ROOT %z = pred[] compare(%x, %y), direction={direction}",
        ),
        (
            "condition",
            "  %p = (s32[], s32[]) parameter(0)",
            "  %i = s32[] get-tuple-element(%p), index=0",
            f"  %limit = s32[] {limit_in_loop}",
            f"  ROOT %z = pred[] {fused if is_fused else compare}",
        ),
        (
            "body",
            "  %p = (s32[], s32[]) parameter(0)",
            "  %i = s32[] get-tuple-element(%p), index=0",
            "  %kept = s32[] get-tuple-element(%p), index=1",
            f"  %step = s32[] constant({step})",
            f"  %next = s32[] {operation}(%i, %step)",
            "  ROOT %t = (s32[], s32[]) tuple(%next, %kept)",
        ),
        (
            "main",
            f"  %start = s32[] constant({start})",
            f"  %limit = s32[] constant({limit})",
            "  %copy = s32[] copy(%start)",
            "  %t = (s32[], s32[]) tuple(%copy, %limit)",
            f"  %u = (s32[], s32[]) {passed_by}(%t)",
            "  ROOT %w = (s32[], s32[]) while(%u), condition=%condition, body=%body",
        ),
    )


PASSES = {
    "LT": lambda i, limit: i < limit,
    "LE": lambda i, limit: i <= limit,
    "GT": lambda i, limit: i > limit,
    "GE": lambda i, limit: i >= limit,
    "NE": lambda i, limit: i != limit,
}
MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "NE": "NE"}


@settings(max_examples=200, deadline=None)
@given(
    start=st.integers(-30, 30),
    step=st.integers(-7, 7),
    limit=st.integers(-30, 30),
    direction=st.sampled_from(sorted(PASSES)),
    operation=st.sampled_from(("add", "subtract")),
    is_flipped=st.booleans(),
    is_carried=st.booleans(),
    is_fused=st.booleans(),
    passed_by=st.sampled_from(("opt-barrier", "domain", "add-dependency", "copy")),
)
def test_the_number_of_turns_is_that_of_counting(
    start, step, limit, direction, operation, is_flipped, is_carried, is_fused, passed_by
):
    program = counted(
        start,
        step,
        limit,
        MIRRORED[direction] if is_flipped else direction,
        operation,
        is_flipped=is_flipped,
        is_carried=is_carried,
        is_fused=is_fused,
        passed_by=passed_by,
    )
    turns, counter = 0, start
    while PASSES[direction](counter, limit) and turns < 100:
        counter += step if operation == "add" else -step
        turns += 1
    found = executions(module_of(program))["body"]
    if step == 0:
        assert found.times in (None, turns)
    else:
        assert found == (Executions(turns, None) if turns < 100 else UNKNOWN)


@pytest.mark.parametrize(
    ("place", "damaged"),
    [
        ("add(%i, %step)", "multiply(%i, %step)"),
        ("add(%i, %step)", "add(%i, %i)"),
        ("tuple(%next, %kept)", "tuple(%kept, %next)"),
        ("constant(0)", "parameter(0)"),
        ("direction=LT", "direction=EQ"),
        ("constant(10)", "constant(1e1)"),
        ("compare(%i, %limit)", "compare(%limit, %limit)"),
        ("compare(%i, %limit)", "and(%i, %limit)"),
    ],
)
def test_a_loop_that_does_not_count_is_unknown(place, damaged):
    program = counted(0, 2, 10, "LT")
    assert place in program
    assert executions(module_of(program))["body"] == Executions(5, None)
    assert executions(module_of(program.replace(place, damaged)))["body"] == UNKNOWN


def test_a_step_that_the_loop_carries_unchanged_is_known():
    """It is the limit here: one turn reaches it."""
    program = counted(0, 2, 10, "LT").replace("add(%i, %step)", "add(%i, %kept)")
    assert executions(module_of(program))["body"] == Executions(1, None)
