"""Live bytes along the schedule: temporary values at the highest point, and where the backward pass begins."""

from pathlib import Path

import pytest

from jax_array_info_core.xla.hlo.liveness import live_bytes_of, temporaries_of
from jax_array_info_core.xla.hlo.schedule import schedule_of
from tests.hlo_texts import ACCELERATORS, CPU, EVERYWHERE, entry_of, stored

pytestmark = pytest.mark.newest

PROGRAMS = (Path(__file__).parents[3] / "data" / "hlo" / "programs.py").read_text().splitlines()

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
    module = entry_of(body, before="\n".join(before))
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
        # The lines of JAX 0.8 are those of another table: see test_stacks.py.
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
    module = entry_of(body)
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
    body = f"""  %p = f32[8]{{0}} parameter(0)
  %a = f32[16]{{0}} pad(%p, %p), padding=0_8, {at(1)}
  %b = f32[4]{{0}} slice(%a), slice={{[0:4]}}, {at(2)}
  %c = f32[2]{{0}} slice(%p), slice={{[0:2]}}, {at(3)}
  ROOT %d = f32[8]{{0}} concatenate(%b, %c), {at(4)}"""
    live = live_bytes_of(entry_of(body), first, MOST)
    assert [one.name for one in live.operations] == ["p", "a", "b", "c", "d", "d"]
    assert live.nbytes == (0, 64, 64 + 16, 16 + 8, 16 + 8, 0)
    assert [(value.frames[0].line, ranges) for value, ranges in live.values] == [
        (1, ((1, 2),)),
        (2, ((2, 4),)),
        (3, ((3, 4),)),
    ]


def test_10_000_operations_have_480_points():
    """The last operation of all uses the first value, so its bytes are in each point."""
    chain = "\n".join(
        f"  %v{number} = f32[8]{{0}} reverse(%v{number - 1}), dimensions={{0}}" for number in range(1, 10_000)
    )
    body = f"  %v0 = f32[8]{{0}} parameter(0)\n{chain}\n  ROOT %r = f32[16]{{0}} concatenate(%v1, %v9999)"
    live = live_bytes_of(entry_of(body), first, 480)
    assert live.operation_count == 10_002
    assert len(live.points) == 480
    assert set(live.nbytes[1:-1]) == {3 * 32}


FORWARD, BACKWARD = "jit(f)/jvp()/dot_general", "jit(f)/transpose(jvp())/dot_general"
REMATTED = "jit(f)/transpose(jvp(jvp()))/checkpoint/rematted_computation/dot_general"
FUSED = """%fused {
  %p = f32[8]{0} parameter(0)
  %again = f32[8]{0} sine(%p), metadata={op_name="jit(f)/jvp()/sin"}
  ROOT %r = f32[9]{0} custom-call(%again), custom_call_target="product",
  metadata={op_name="jit(f)/transpose(jvp())/dot_general"}
}""".replace(",\n  ", ", ")


def line(result, size, operation, name=None, extra=""):
    """Return an instruction with a result of some size."""
    named = "" if name is None else f', metadata={{op_name="{name}"}}'
    return f"  {result} = f32[{size}]{{0}} {operation}{extra}{named}"


def product(result, size, operands, name=None):
    """Return an instruction that computes a product."""
    return line(result, size, f"custom-call({operands})", name, ', custom_call_target="product"')


def held(*body, before="", tells_passes=True):
    """Return the sizes of the values of an entry that are live where the backward pass begins."""
    lines = line("%x", 2, "parameter(0)"), *body, line("ROOT %end", 1, "slice(%last)", None, CUT)
    module = entry_of(*lines, before=before)
    found = temporaries_of(module, lambda _: None, tells_passes=tells_passes).at_backward
    return None if found is None else {one.shape.dims[0] for one in found}


CUT = ", slice={[0:1]}"
PASSES = (
    product("%a", 3, "%x", FORWARD),
    product("%b", 4, "%a", FORWARD),
    product("%c", 5, "%b", BACKWARD),
    product("%last", 6, "%c, %a", BACKWARD),
)


def test_values_of_the_forward_pass_are_live_that_are_read_later():
    assert held(*PASSES) == {3, 4}


def test_without_both_passes_there_is_no_turn():
    assert held(*(one.replace("transpose(jvp())", "jvp()") for one in PASSES)) is None
    assert held(*(one.replace("jvp()", "") for one in PASSES)) is None
    assert held(*PASSES, tells_passes=False) is None


def test_the_turn_is_where_the_fewest_operations_are_on_the_wrong_side():
    """Here an early one of the backward pass is before a forward one, and a late one of the forward pass."""
    early, late = product("%early", 7, "%a", BACKWARD), product("%late", 8, "%a", FORWARD)
    a, b, c, _ = PASSES
    more, end = (
        product("%more", 9, "%b", FORWARD),
        product("%last", 6, "%c, %a, %early, %late, %more", BACKWARD),
    )
    assert held(a, early, b, more, c, late, end) == {3, 4, 9}


def test_zeros_that_a_loop_begins_with_are_no_operations_of_a_pass():
    """XLA puts those of the backward pass anywhere, such as in front of everything."""
    fill = "%fill {\n  %c = f32[] parameter(0)\n  ROOT %r = f32[9]{0} broadcast(%c), dimensions={}\n}"
    zeros = [line(f"%zeros{k}", 9, "fusion(%zero)", BACKWARD, ", kind=kLoop, calls=%fill") for k in range(4)]
    last = product("%last", 6, "%c, %a, %zeros0, %zeros1, %zeros2, %zeros3", BACKWARD)
    assert held("  %zero = f32[] constant(0)", *zeros, *PASSES[:3], last, before=fill) == {3, 4}


def test_what_checkpoint_computes_again_is_of_the_pass_in_which_it_runs():
    """Behind the turn it is not live there. XLA may have merged it with what the forward pass computes."""
    a, b, c, _ = PASSES
    again, end = product("%again", 7, "%b", REMATTED), product("%last", 6, "%c, %a, %again", BACKWARD)
    assert held(a, b, again, c, end) == {3, 4}
    merged = product("%again", 7, "%x", REMATTED)
    assert held(merged, a, b, c, end) == {3, 4, 7}


def test_copies_of_arguments_and_constants_are_not_values_of_the_forward_pass():
    a, b, c, _ = PASSES
    copied = line("%copied", 2, "copy(%x)")
    zero = "  %zero = f32[] constant(0)"
    filled = line("%filled", 9, "broadcast(%zero)", FORWARD, ", dimensions={}")
    end = product("%last", 6, "%c, %a, %copied, %filled, %gathered", BACKWARD)
    gathered = line("%gathered", 10, "all-gather(%x)", None, ", dimensions={0}")
    assert held(copied, gathered, zero, filled, a, b, c, end) == {3, 4, 10}, "a gathered argument is held"


def test_a_fusion_is_of_the_pass_of_its_product():
    """It computes an operation of the forward pass again."""
    a, b, *_ = PASSES
    a = product("%a", 8, "%x", FORWARD)
    fused = line("%c", 9, "fusion(%a)", FORWARD, ", kind=kOutput, calls=%fused")
    end = product("%last", 6, "%c, %b", BACKWARD)
    assert held(a, b, fused, end, before=FUSED) == {4, 8}


def test_values_outside_of_the_main_memory_are_among_them():
    fast = PASSES[0].replace("f32[3]{0}", "f32[3]{0:S(1)}")
    assert held(fast, *PASSES[1:]) == {3, 4}


@pytest.mark.parametrize("where", CPU)
def test_a_step_holds_the_hidden_values_and_the_gathered_weights(where):
    """Up to JAX 0.6, no operation of this program has its pass in its name."""
    found = temporaries_of(stored(where, "step"), lambda _: None)
    if where in ("0.4.38", "0.5.3", "0.6.2"):
        assert found.at_backward is None
        return
    shapes = {one.shape.dims for one in found.at_backward}
    assert (8, 64, 512) in shapes
    assert {one.shape.dims for one in found.highest if one.is_for_backward} <= shapes


@pytest.mark.parametrize(
    ("program", "kept"), [("scan", (4, 8, 256, 2048)), ("checkpoint", (4, 8, 256, 1024))]
)
def test_what_the_first_loop_stacks_is_live_on_an_accelerator(program, kept):
    for where in ("v5p", "v5e"):
        found = temporaries_of(stored(where, program), lambda _: None).at_backward
        assert kept in {one.shape.dims for one in found}
