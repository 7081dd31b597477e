"""Source lines and named scopes of the instructions, and the lines of JAX 0.7 and 0.8."""

import pytest

from jax_array_info_core.xla.hlo.module import read_module
from jax_array_info_core.xla.hlo.source import Frame, scope_of
from tests.hlo_assembler import assembled
from tests.hlo_texts import module_of, stored

pytestmark = pytest.mark.newest

MLIR = """\
#loc1 = loc("x")
module @jit_f attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["d"=8]> loc(#loc)
  func.func public @main(%arg0: tensor<8xf32> loc("x")) -> (tensor<8xf32>) {
    %0 = stablehlo.sine %arg0 : tensor<8xf32> loc(#loc20)
    %1 = call @inner(%0) : (tensor<8xf32>) -> tensor<8xf32> loc(#loc21)
    %2 = stablehlo.custom_call @sine(%1) : (tensor<8xf32>) -> tensor<8xf32> loc(#loc22)
    %3 = func.call @inner(%2) : (tensor<8xf32>) -> tensor<8xf32> loc(#loc21)
    return %3 : tensor<8xf32> loc(#loc)
  } loc(#loc)
  func.func private @inner(%arg0: tensor<8xf32> loc(unknown)) -> (tensor<8xf32>) {
    %0 = stablehlo.cosine %arg0 : tensor<8xf32> loc(#loc23)
    return %0 : tensor<8xf32> loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("f.py":1:0 to :9)
#loc3 = loc("f.py":2:0 to :9)
#loc4 = loc("f.py":3:0 to :9)
#loc5 = loc("f.py":4:0 to :9)
#loc6 = loc("<module>"(#loc2))
#loc7 = loc("f"(#loc3))
#loc8 = loc("f"(#loc4))
#loc9 = loc("f.<locals>.g"(#loc5))
#loc10 = loc(callsite(#loc7 at #loc6))
#loc11 = loc(callsite(#loc8 at #loc6))
#loc12 = loc(callsite(#loc9 at #loc6))
#loc20 = loc("jit(f)/sin"(#loc10))
#loc21 = loc("jit(f)/inner"(#loc6))
#loc22 = loc("jit(f)/tan"(#loc11))
#loc23 = loc("jit(f)/cos"(#loc12))
"""
# Instructions have the numbers of the frames in the order of the operations: 1 module, 2 sine, 3 cosine, 4 tan.
# The table begins with the frame of the cosine.
TEXT = """\
HloModule jit_f, is_scheduled=true, num_partitions=8

FileNames
1 "f.py"

FunctionNames
1 "<module>"
2 "f"
3 "f.<locals>.g"

FileLocations
1 {file_name_id=1 function_name_id=1 line=1 end_line=1 column=0 end_column=9}
2 {file_name_id=1 function_name_id=3 line=4 end_line=4 column=0 end_column=9}
3 {file_name_id=1 function_name_id=2 line=2 end_line=2 column=0 end_column=9}
4 {file_name_id=1 function_name_id=2 line=3 end_line=3 column=0 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=3 parent_frame_id=2}
4 {file_location_id=4 parent_frame_id=2}


ENTRY %main (x: f32[1]) -> f32[1] {
  %x = f32[1]{0} parameter(0), metadata={op_name="x"}
  %sin = f32[1]{0} sine(%x), metadata={op_name="jit(f)/sin" stack_frame_id=2}
  %cos = f32[1]{0} cosine(%sin), metadata={op_name="jit(f)/cos" stack_frame_id=3}
  ROOT %tan = f32[1]{0} tan(%cos), metadata={op_name="jit(f)/tan" stack_frame_id=4}
}
"""


def lines(text, mlir=None):
    """Return the lines of each instruction that has some, innermost first."""
    instructions = read_module(assembled(text), mlir).computations["main"].instructions
    return {one.name: [frame.line for frame in one.frames] for one in instructions if one.frames}


def test_the_table_gets_the_numbers_of_the_instructions():
    assert lines(TEXT) == {"sin": [4, 1], "cos": [2, 1], "tan": [3, 1]}
    assert lines(TEXT, MLIR) == {"sin": [2, 1], "cos": [4, 1], "tan": [3, 1]}


def test_a_table_that_agrees_is_kept():
    """A version without the fault is not made worse."""
    agreeing = TEXT.replace("stack_frame_id=3", "").replace("stack_frame_id=2", "stack_frame_id=3")
    agreeing = agreeing.replace('"jit(f)/cos" ', '"jit(f)/cos" stack_frame_id=2')
    assert lines(agreeing) == {"sin": [2, 1], "cos": [4, 1], "tan": [3, 1]}
    assert lines(agreeing, MLIR) == lines(agreeing)


def test_lines_are_unknown_if_the_lowered_program_is():
    """They are not wrong instead."""
    assert lines(TEXT, "") == {}


FOLDED = MLIR.replace(
    "    %0 = stablehlo.sine", "    %cst = stablehlo.broadcast_in_dim loc(#loc24)\n    %0 = stablehlo.sine"
)
FOLDED += """\
#loc13 = loc("f.py":5:0 to :9)
#loc14 = loc("f"(#loc13))
#loc15 = loc(callsite(#loc14 at #loc6))
#loc24 = loc("jit(f)/broadcast_in_dim"(#loc15))
"""


def test_an_operation_whose_stack_is_not_in_the_table_has_no_number():
    """It is a constant that is folded before."""
    assert lines(TEXT, FOLDED) == {"sin": [2, 1], "cos": [4, 1], "tan": [3, 1]}


def test_lines_are_unknown_if_an_instruction_got_the_stack_of_another_operation():
    """What was folded or merged can change the order of the rest."""
    swapped = TEXT.replace('"jit(f)/sin" stack_frame_id=2', '"jit(f)/sin" stack_frame_id=4')
    assert lines(swapped, MLIR) == {}


def test_lines_are_unknown_if_the_frames_differ():
    assert lines(TEXT, MLIR.replace('"f.py":4:0', '"f.py":5:0')) == {}


@pytest.mark.parametrize(
    ("program", "mlir"),
    [(TEXT.replace(", num_partitions=8", ""), MLIR), (TEXT, MLIR.replace("sdy.", ""))],
    ids=["one device", "without Shardy"],
)
def test_other_programs_are_left_as_they_are(program, mlir):
    assert lines(program, mlir) == lines(program)


@pytest.mark.parametrize(
    "broken", [MLIR[100:], MLIR[::-1], MLIR.replace("loc6", "loc10"), MLIR.replace("@inner", "@main")]
)
def test_nonsense_ends(broken):
    lines(TEXT, broken)


def test_a_stack_is_innermost_first_and_begins_at_a_column():
    module = module_of(TEXT.replace("line=2 end_line=2 column=0", "line=2 end_line=2 column=7"))
    sine = module.computations["main"].by_name["sin"]
    assert sine.frames == (Frame("f.py", 4, "f.<locals>.g"), Frame("f.py", 1, "<module>"))
    assert module.computations["main"].by_name["cos"].column == 7
    assert module.computations["main"].by_name["x"].frames == ()
    assert module.stacks.of(5) == ()


def test_a_line_that_contradicts_the_stack_is_known_alone():
    """JAX 0.7 has both, and the numbers of another table."""
    both = TEXT.replace("stack_frame_id=2", 'source_file="f.py" source_line={} stack_frame_id=2')
    assert lines(both.replace("{}", "4"))["sin"] == [4, 1]
    assert lines(both.replace("{}", "3"))["sin"] == [3]


@pytest.mark.parametrize("where", ["0.4.38", "0.5.3", "0.6.2", "0.9.2", "0.12.0.1", "v5p"])
def test_the_stack_of_an_operation_ends_in_the_function_that_was_compiled(where):
    module = stored(where, "step")
    stacks = {one.frames for part in module.computations.values() for one in part.instructions if one.frames}
    assert stacks
    assert {stack[-1].function for stack in stacks} == {"keep"}
    assert {stack[0].function for stack in stacks} >= {"loss", "step.<locals>.<lambda>"}


@pytest.mark.parametrize(
    ("op_name", "scope"),
    [
        (None, ""),
        ("", ""),
        ("params['wi']", ""),
        ("jit(step)/dot_general", ""),
        ("jit(step)/jit(main)/jvp(head)/attn/sin", "head/attn"),
        ("jit(step)/jit(main)/jvp(while)/body/layers/attn/dot_general", "layers/attn"),
        ("jit(step)/jvp()/while/body/eval_jaxpr/layers/mlp/inner/cos", "layers/mlp/inner"),
        ("jit(step)/transpose(jvp(head))/jvp(head)/checkpoint/rematted_computation/attn/cos", "head/attn"),
        (
            "jit(step)/transpose(jvp())/while/body/closed_call/layers/layers/checkpoint/attn/mul",
            "layers/attn",
        ),
        ("jit(step)/transpose(jvp(a/b))/jvp(a/b)/checkpoint/c/mul", "a/b/c"),
        ("jit(step)/vmap(jvp(Model))/Dense_0/jit(relu)/max", "Model/Dense_0"),
        ("jit(step)/cond/branch_1_fun/head/add", "head"),
        ("jit(step)/bsd,dh->bsh/dot_general", "bsd,dh->bsh"),
        ("jit(step)/jvp(Model/sin", ""),
        ("jit(step)/transpose(jvp(head))/mul;jit(step)/transpose(jvp())/broadcast_in_dim", "head"),
    ],
)
def test_the_scope_of_an_operation(op_name, scope):
    assert scope_of(op_name) == scope
