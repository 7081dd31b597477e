from pathlib import Path

import pytest

from jax_array_info_core.hlo.module import ArrayShape
from jax_array_info_core.hlo.oom_logs import ListedBuffer, read_assignment, read_out_of_memory
from jax_array_info_core.hlo.stacks import Frame
from tests.hlo_texts import module_of

pytestmark = pytest.mark.oldest_and_newest
HBM = round(15.75 * 2**30)
MODULE = """HloModule jit_f, is_scheduled=true

FileNames
1 "/home/user/step.py"

FunctionNames
1 "step"

FileLocations
1 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

ENTRY %main (x: f32[1024]) -> f32[1024] {
  %x = f32[1024]{0} parameter(0), metadata={op_name="params['w']"}
  %add.1 = f32[1024]{0} add(%x, %x), metadata={op_name="jit(f)/add" stack_frame_id=1}
  ROOT %mul.1 = f32[1024]{0} multiply(%add.1, %add.1), metadata={op_name="jit(f)/mul" stack_frame_id=1}
}
"""
ASSIGNMENT = """BufferAssignment:
allocation 0: size 4096, parameter 0, shape |f32[1024]| at ShapeIndex {}:
 value: <0 x @0> (size=4096,offset=0): f32[1024]{0}
allocation 1: size 8192, page 0, preallocated-temp:
 value: <1 add.1 @0> (size=4096,offset=0): f32[1024]{0}
 value: <2 mul.1{0} @0> (size=2048,offset=1024): f32[512]{0}
 value: <3 unknown @0> (size=4096,offset=4096): (f32[512]{0}, f32[512]{0})
nonsense
allocation 2: size 512, thread-local:
 value: <4 add.2 @0> (size=512,offset=0): f32[]
allocation 3: size 4096, color 1, page 0, preallocated-temp:
 value: <5 add.1 @1> (size=4096,offset=0): f32[1024]{0:S(1)}
"""


def data(name):
    return (Path(__file__).parents[2] / "data" / "hlo" / f"oom_{name}.txt").read_text()


@pytest.mark.parametrize(
    ("name", "message", "required", "available"),
    [
        (
            "0.12.0.1",
            "Ran out of memory on HBM, the total memory required for HLO temporaries (102.75G) exceeds available HBM "
            "(15.75G). HLO module: jit_st.",
            round(102.75 * 2**30),
            HBM,
        ),
        (
            "0.8.3_table",
            "Ran out of memory in memory space hbm. Used 16.69G of 15.75G hbm. Exceeded hbm capacity by 965.74M.",
            round(16.69 * 2**30),
            HBM,
        ),
        (
            "0.4.38_early",
            "Compilation failure: Aborting compilation early because it's unlikely to have enough device memory. "
            "Requires 389.56G, has 14.96G available. If more detailed logging is desired, set "
            "--xla_tpu_impure_oom_fast_exit_threshold=-1",
            round(389.56 * 2**30),
            round(14.96 * 2**30),
        ),
    ],
)
def test_each_wording_has_the_bytes_that_are_needed_and_available(name, message, required, available):
    found = read_out_of_memory(data(name))
    assert (found.message, found.required_nbytes, found.available_nbytes) == (message, required, available)


def test_the_table_has_the_operation_and_the_line_of_each_array():
    buffers = read_out_of_memory(data("0.4.38_table")).buffers
    assert buffers[0] == ListedBuffer(
        4 * 2**30,
        ArrayShape("float32", (64, 2048, 8192), 4 * 2**30),
        "jit(st2)/jit(main)/dot_general",
        (Frame("/home/user/step.py", 6, ""),),
    )
    assert [one.shape.dtype for one in buffers[:3]] == ["float32", "float32", "bfloat16"]
    assert [one.nbytes for one in buffers] == sorted((one.nbytes for one in buffers), reverse=True)


def test_a_single_allocation_is_a_buffer():
    (buffer,) = read_out_of_memory(data("0.8.3_single")).buffers
    assert (buffer.nbytes, buffer.shape.dims) == (21_474_836_480, (8, 40, 2048, 8192))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "INVALID_ARGUMENT: no",
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem. Used 20.00M of 16.00M vmem.",
        "RESOURCE_EXHAUSTED: (x) exceeds available HBM (y)",
    ],
)
def test_other_errors_are_not_refusals(text):
    assert read_out_of_memory(text) is None


def test_an_assignment_has_the_buffers_of_device_memory_without_overlap():
    found = read_assignment(ASSIGNMENT, module_of(MODULE))
    assert found.nbytes == 4096 + 8192
    shape = ArrayShape("float32", (1024,), 4096)
    frames = (Frame("/home/user/step.py", 7, "step"),)
    assert found.buffers == (
        ListedBuffer(4096, shape, "params['w']", ()),
        ListedBuffer(4096, shape, "jit(f)/add", frames),
    )
