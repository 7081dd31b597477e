"""Sources and consumers of values across fusions, calls, branches and loops."""

import pytest

from jax_array_info_core.xla.hlo.dataflow import Dataflow, Value
from tests.hlo_texts import EVERYWHERE, module_of, stored

pytestmark = pytest.mark.newest

LOOP = """HloModule jit_f

%part (a: f32[4,8], i: s32[]) -> f32[8] {
  %a = f32[4,8]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %slice = f32[1,8]{1,0} dynamic-slice(%a, %i, %i), dynamic_slice_sizes={1,8}
  ROOT %flat = f32[8]{0} bitcast(%slice)
}

%inner (q: (f32[4,8], f32[8])) -> (f32[4,8], f32[8]) {
  %q = (f32[4,8]{1,0}, f32[8]{0}) parameter(0)
  %q.0 = f32[4,8]{1,0} get-tuple-element(%q), index=0
  %q.1 = f32[8]{0} get-tuple-element(%q), index=1
  %used = f32[8]{0} negate(%q.1)
  ROOT %q.next = (f32[4,8]{1,0}, f32[8]{0}) tuple(%q.0, %used)
}

%body (p: (s32[], f32[4,8], f32[4,8])) -> (s32[], f32[4,8], f32[4,8]) {
  %p = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) parameter(0)
  %i.2 = s32[] get-tuple-element(%p), index=0
  %kept = f32[4,8]{1,0} get-tuple-element(%p), index=1
  %changed = f32[4,8]{1,0} get-tuple-element(%p), index=2
  %row = f32[8]{0} fusion(%kept, %i.2), kind=kLoop, calls=%part
  %row.2 = f32[8]{0} fusion(%changed, %i.2), kind=kLoop, calls=%part.2
  %state = (f32[4,8]{1,0}, f32[8]{0}) tuple(%kept, %row)
  %loop.2 = (f32[4,8]{1,0}, f32[8]{0}) while(%state), condition=%until.2, body=%inner
  %after = f32[4,8]{1,0} get-tuple-element(%loop.2), index=0
  %same = f32[4,8]{1,0} copy(%after)
  %new = f32[4,8]{1,0} negate(%changed)
  ROOT %next = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) tuple(%i.2, %same, %new)
}

%part.2 (a.2: f32[4,8], i.3: s32[]) -> f32[8] {
  %a.2 = f32[4,8]{1,0} parameter(0)
  ROOT %flat.2 = f32[8]{0} slice(%a.2), slice={[0:1], [0:8]}
}

ENTRY %main (x: f32[4,8], y: f32[4,8], z: f32[4,8]) -> f32[4,8] {
  %x = f32[4,8]{1,0} parameter(0)
  %y = f32[4,8]{1,0} parameter(1)
  %zero = s32[] constant(0)
  %half = bf16[4,8]{1,0} convert(%x)
  %start = (f32[4,8]{1,0}, f32[4,8]{1,0}, u32[]) copy-start(%y)
  %done = f32[4,8]{1,0} copy-done(%start)
  %first = bf16[2,8]{1,0} slice(%half), slice={[0:2], [0:8]}
  %second = bf16[2,8]{1,0} slice(%half), slice={[2:4], [0:8]}
  %both = bf16[4,8]{1,0} concatenate(%first, %second), dimensions={0}
  %mixed = f32[8,8]{1,0} concatenate(%x, %y), dimensions={0}
  %sum = f32[4,8]{1,0} add(%x, %y)
  %tuple = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) tuple(%zero, %x, %done)
  %loop = (s32[], f32[4,8]{1,0}, f32[4,8]{1,0}) while(%tuple), condition=%until, body=%body
  ROOT %result = f32[4,8]{1,0} get-tuple-element(%loop), index=2
}
"""


@pytest.fixture(scope="module")
def loop():
    return Dataflow(module_of(LOOP))


def name(instruction):
    return None if instruction is None else instruction.name


@pytest.mark.parametrize(
    ("computation", "value", "argument"),
    [
        ("main", "half", "x"),
        ("main", "done", "y"),
        ("main", "both", "x"),
        ("main", "mixed", None),
        ("main", "sum", None),
        ("main", "result", None),
        ("body", "row", "x"),
        ("body", "after", "x"),
        ("body", "row.2", None),
        ("inner", "q.0", "x"),
        ("inner", "q.1", None),
    ],
)
def test_a_value_is_followed_back_to_the_argument_that_it_is_taken_from(loop, computation, value, argument):
    """Through conversions, slices, copies, fusions, and loops that pass it on unchanged."""
    assert name(loop.argument(Value(computation, value))) == argument


def test_consumers_come_nearest_first_and_from_inside_of_fusions_and_loops(loop):
    names = [one.name for one in loop.consumers(Value("main", "y"))]
    assert set(names[:4]) == {"start", "mixed", "sum", "done"}
    assert names.index("changed") < names.index("flat.2") < names.index("row.2")
    assert "new" in names
    assert "kept" not in names


def test_producers_come_nearest_first(loop):
    names = [one.name for one in loop.producers(Value("main", "both"))]
    assert names == ["both", "first", "second", "half", "x"]


def test_what_a_loop_changes_is_computed_from_its_last_turn_and_from_its_start(loop):
    names = [one.name for _, one in loop.walk(Value("main", "result"))]
    assert {"new", "changed", "y"} <= set(names)
    assert not {"x", "same"} & set(names)
    assert loop.changes_in_turns(Value("body", "changed"))
    assert loop.changes_in_turns(Value("body", "row.2"))
    assert not loop.changes_in_turns(Value("body", "row"))


@pytest.mark.parametrize("where", EVERYWHERE)
def test_the_result_of_a_conditional_depends_on_its_predicate_and_on_the_operands_of_each_branch(where):
    module = stored(where, "cond")
    root = module.computations[module.entry].root
    found = {value.name for value, _ in Dataflow(module).walk(Value(module.entry, root.name))}
    assert {one.name for one in module.parameters()} <= found
