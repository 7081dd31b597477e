"""Temporary values at the highest point of a schedule."""

from pathlib import Path

import pytest

from jax_array_info_core.hlo.liveness import temporaries_of
from tests.hlo_texts import ACCELERATORS, CPU, EVERYWHERE, module_of, stored

pytestmark = pytest.mark.oldest_and_newest

PROGRAMS = (Path(__file__).parents[2] / "data" / "hlo" / "programs.py").read_text().splitlines()

# What XLA reports as the temporary bytes of the two scans, from `compiled.memory_analysis()`.
TEMPORARY_NBYTES = {
    "0.4.38": (494928304, 130023744),
    "0.5.3": (520094128, 167772480),
    "0.6.2": (520094128, 167772480),
    "0.7.2": (520094256, 167772608),
    "0.8.3": (520094256, 167772608),
    "0.9.2": (520094256, 167772608),
    "0.10.2": (520094256, 167772608),
    "0.11.2": (452985384, 150995392),
    "0.12.0.1": (452985384, 150995392),
    "v5p": (386138112, 92684288),
    "v5e": (302497792, 17104896),
}


def first(instructions):
    """Return the first instruction with a line."""
    return next((one for one in instructions if one.frames), None)


def line_of(code):
    """Return the number of the line of the programs that has some code."""
    (number,) = [number for number, line in enumerate(PROGRAMS, 1) if code in line]
    return number


def values(body, *before):
    """Return dtype, shape, line and is_kept of the values of a program whose entry has some lines."""
    lines = ["HloModule test, is_scheduled=true", "", *before, "ENTRY %main {", *body.splitlines(), "}"]
    module = module_of("\n".join(lines))
    return [
        (value.shape.dtype, value.shape.dims, value.frames[0].line if value.frames else None, value.is_kept)
        for value in temporaries_of(module, first).highest
    ]


def at(line):
    return f'metadata={{op_name="jit(f)/op" source_file="user.py" source_line={line}}}'


@pytest.mark.parametrize("where", EVERYWHERE)
def test_a_scan_keeps_values_for_the_backward_pass_with_the_line_of_the_block(where):
    """Each is stacked over the four layers, and its line is inside of the block, not that of the scan."""
    block = line_of("jax.nn.gelu(x @ w[")
    for program, kept in (("scan", (4, 8, 256, 2048)), ("checkpoint", (4, 8, 256, 1024))):
        found = [one for one in temporaries_of(stored(where, program), first).highest if one.is_kept]
        assert kept in {one.shape.dims for one in found}
        # The lines of JAX 0.8 are those of another table: see test_renumbered_frames.py.
        assert where == "0.8.3" or {one.frames[0].line for one in found} == {block}
        # With jax.checkpoint, only the input of each block is kept.
        assert program == "scan" or len(found) == 1


@pytest.mark.parametrize("where", CPU)
def test_gradients_are_not_kept_for_a_later_loop(where):
    """The backward loop stacks gradients, which no other loop reads."""
    found = temporaries_of(stored(where, "scan"), first).highest
    assert not any(one.is_kept and one.shape.dims[-2:] in {(512, 2048), (2048, 512)} for one in found)


@pytest.mark.parametrize("where", TEMPORARY_NBYTES)
def test_live_bytes_are_those_of_the_buffer_assignment(where):
    """XLA needs a little more because of alignment, or less where a value lies in an output's memory."""
    for program, expected in zip(("scan", "checkpoint"), TEMPORARY_NBYTES[where], strict=True):
        found = sum(one.shape.nbytes for one in temporaries_of(stored(where, program), first).highest)
        assert abs(found - expected) <= 0.06 * expected


@pytest.mark.parametrize("where", ACCELERATORS)
def test_values_outside_of_the_main_memory_are_left_out(where):
    assert all(one.shape.memory_space == 0 for one in temporaries_of(stored(where, "scan"), first).highest)


def test_arguments_outputs_and_constants_are_no_temporary_values():
    body = f"""
  %p = f32[8]{{0}} parameter(0)
  %c = f32[8]{{0}} constant({{1, 2, 3, 4, 5, 6, 7, 8}})
  %a = f32[8]{{0}} reverse(%p), dimensions={{0}}, {at(1)}
  %b = f32[8]{{0}} add(%a, %c), {at(2)}
  ROOT %d = f32[8]{{0}} reverse(%b), dimensions={{0}}, {at(3)}"""
    assert values(body) == [("float32", (8,), 1, False)]


def test_an_elementwise_operation_writes_over_its_last_use():
    """Each value is written over the one before, and the last is the output: there is no other memory."""
    body = f"""
  %p = f32[8]{{0}} parameter(0)
  %a = f32[8]{{0}} negate(%p), {at(1)}
  %b = f32[8]{{0}} tanh(%a), {at(2)}
  ROOT %c = f32[8]{{0}} sine(%b), {at(3)}"""
    assert values(body) == []


def test_views_have_no_memory_of_their_own():
    body = f"""
  %p = f32[8]{{0}} parameter(0)
  %a = f32[8]{{0}} reverse(%p), dimensions={{0}}, {at(1)}
  %t = (f32[8]{{0}}, f32[8]{{0}}) tuple(%a, %p)
  %g = f32[8]{{0}} get-tuple-element(%t), index=0
  %b = f32[2,4]{{1,0}} bitcast(%g), {at(2)}
  %c = f32[2,4]{{1,0}} opt-barrier(%b)
  ROOT %d = f32[4,2]{{1,0}} transpose(%c), dimensions={{1,0}}, {at(3)}"""
    assert values(body) == [("float32", (8,), 1, False)]


def test_only_the_highest_point_counts():
    """Of two values that are never live together, the larger one is reported."""
    body = f"""
  %p = f32[8]{{0}} parameter(0)
  %a = f32[16]{{0}} concatenate(%p, %p), dimensions={{0}}, {at(1)}
  %b = f32[4]{{0}} slice(%a), slice={{[0:4]}}, {at(2)}
  %c = f32[8]{{0}} concatenate(%b, %b), dimensions={{0}}, {at(3)}
  ROOT %d = f32[2]{{0}} slice(%c), slice={{[0:2]}}, {at(4)}"""
    assert values(body) == [("float32", (16,), 1, False), ("float32", (4,), 2, False)]


LOOP = (
    "%body (q: (s32[], f32[4,8], f32[8])) -> (s32[], f32[4,8], f32[8]) {",
    "  %q = (s32[], f32[4,8]{1,0}, f32[8]{0}) parameter(0)",
    "  %i = s32[] get-tuple-element(%q), index=0",
    "  %stack = f32[4,8]{1,0} get-tuple-element(%q), index=1",
    "  %x = f32[8]{0} get-tuple-element(%q), index=2",
    "  %one = s32[] constant(1)",
    "  %zero = s32[] constant(0)",
    f"  %y = f32[8]{{0}} reverse(%x), dimensions={{0}}, {at(10)}",
    f"  %row = f32[1,8]{{1,0}} bitcast(%y), {at(20)}",
    f"  %new = f32[4,8]{{1,0}} dynamic-update-slice(%stack, %row, %INDEX, %zero), {at(20)}",
    f"  %next = s32[] add(%i, %one), {at(20)}",
    "  ROOT %r = (s32[], f32[4,8]{1,0}, f32[8]{0}) tuple(%next, %new, %y)",
    "}",
    "%condition (q: (s32[], f32[4,8], f32[8])) -> pred[] {",
    "  %q = (s32[], f32[4,8]{1,0}, f32[8]{0}) parameter(0)",
    "  %i = s32[] get-tuple-element(%q), index=0",
    "  %n = s32[] constant(4)",
    "  ROOT %less = pred[] compare(%i, %n), direction=LT",
    "}",
)
WHILE = """
  %p = f32[8]{0} parameter(0)
  %i = s32[] constant(0)
  %c = s32[] copy(%i)
  %z = f32[] constant(0)
  %zeros = f32[4,8]{1,0} broadcast(%z), dimensions={}
  %x = f32[8]{0} copy(%p)
  %init = (s32[], f32[4,8]{1,0}, f32[8]{0}) tuple(%c, %zeros, %x)
  %loop = (s32[], f32[4,8]{1,0}, f32[8]{0}) while(%init), condition=%condition, body=%body
  %stack = f32[4,8]{1,0} get-tuple-element(%loop), index=1
  ROOT %s = f32[2,8]{1,0} slice(%stack), slice={[0:2], [0:8]}"""


def test_what_a_loop_carries_is_one_value():
    """The stack counts once, with the line of what is stored; ``x`` and the next one are both live."""
    loop = [line.replace("%INDEX", "%i") for line in LOOP]
    found = values(WHILE, *loop)
    assert [one for one in found if one[1]] == [("float32", (4, 8), 10, False), ("float32", (8,), 10, False)]


def test_a_stack_is_kept_if_a_later_loop_reads_it():
    loop = [line.replace("%INDEX", "%i") for line in LOOP]
    reader = [line.replace("%body", "%reader") for line in loop if "dynamic-update" not in line]
    reader = [line.replace("tuple(%next, %new, %y)", "tuple(%next, %stack, %y)") for line in reader]
    body = WHILE.replace("  ROOT %s = f32[2,8]{1,0} slice(%stack), slice={[0:2], [0:8]}", "").rstrip()
    body += """
  %second = (s32[], f32[4,8]{1,0}, f32[8]{0}) while(%loop), condition=%condition, body=%reader
  %end = f32[4,8]{1,0} get-tuple-element(%second), index=1
  ROOT %s = f32[2,8]{1,0} slice(%end), slice={[0:2], [0:8]}"""
    assert ("float32", (4, 8), 10, True) in values(body, *loop, *reader)


def test_an_update_at_a_fixed_place_is_no_stack():
    """Its line is that of the update."""
    loop = [line.replace("%INDEX", "%zero") for line in LOOP]
    assert ("float32", (4, 8), 20, False) in values(WHILE, *loop)


def test_a_value_without_a_line_has_that_of_its_first_consumer():
    body = f"""
  %p = f32[8]{{0}} parameter(0), metadata={{op_name="params"}}
  %g = f32[16]{{0}} all-gather(%p), dimensions={{0}}, metadata={{op_name="params"}}
  %b = f32[4,4]{{1,0}} bitcast(%g)
  ROOT %d = f32[4]{{0}} custom-call(%b), custom_call_target="dot", {at(7)}"""
    assert values(body) == [("float32", (16,), 7, False)]


def test_hidden_lines_are_passed_over():
    """A value that a hidden module computes has the line of the user's operation that consumes it."""
    library = at(5).replace("user.py", "library.py")
    body = f"""
  %p = f32[8]{{0}} parameter(0)
  %a = f32[16]{{0}} concatenate(%p, %p), dimensions={{0}}, {library}
  ROOT %d = f32[4]{{0}} slice(%a), slice={{[0:4]}}, {at(7)}"""
    module = module_of("HloModule test\n\nENTRY %main {\n" + body.strip("\n") + "\n}")
    (value,) = temporaries_of(
        module,
        lambda found: next((one for one in found if one.frames and one.frames[0].file != "library.py"), None),
    ).highest
    assert value.frames[0].line == 7


def test_branches_are_live_one_after_the_other():
    branches = [
        f"""%{name} (q: f32[8]) -> f32[8] {{
  %q = f32[8]{{0}} parameter(0)
  %a = f32[{size}]{{0}} custom-call(%q), custom_call_target="x", {at(line)}
  ROOT %r = f32[8]{{0}} custom-call(%a), custom_call_target="x", {at(9)}
}}"""
        for name, size, line in (("one", 64, 1), ("two", 32, 2))
    ]
    body = """
  %p = f32[8]{0} parameter(0)
  %n = s32[] parameter(1)
  %c = f32[8]{0} conditional(%n, %p, %p), branch_computations={%one, %two}
  ROOT %r = f32[2]{0} slice(%c), slice={[0:2]}"""
    before = [line for branch in branches for line in branch.splitlines()]
    assert sorted(one[1:3] for one in values(body, *before)) == [((8,), 9), ((64,), 1)]
