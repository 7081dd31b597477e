from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core.xla.hlo.liveness import read_assignment
from jax_array_info_core.xla.hlo.messages import ArrayShape, hlo_classes
from jax_array_info_core.xla.hlo.oom_logs import ListedBuffer, read_out_of_memory
from jax_array_info_core.xla.hlo.source import Frame
from tests.hlo_texts import module_of

pytestmark = pytest.mark.newest
HBM = round(15.75 * 2**30)
MODULE = """HloModule jit_f, is_scheduled=true

ENTRY %main (x: f32[1024]) -> f32[1024] {
  %x = f32[1024]{0} parameter(0), metadata={op_name="params['w']"}
  %add.1 = f32[1024]{0} add(%x, %x), metadata={op_name="jit(f)/add" source_file="/home/user/step.py" source_line=7}
  ROOT %mul.1 = f32[1024]{0} multiply(%add.1, %add.1), metadata={op_name="jit(f)/mul" source_file="/home/user/step.py" source_line=7}
}
"""
TUPLES = MODULE.replace(
    "ROOT %mul.1 = f32[1024]{0} multiply(%add.1, %add.1)",
    '%both = ((f32[1024]{0}, f32[1024]{0}), f32[512]{0}) custom-call(%add.1), custom_call_target="made"\n'
    "  ROOT %mul.1 = f32[1024]{0} multiply(%add.1, %add.1)",
)


def data(name):
    return (Path(__file__).parents[3] / "data" / "hlo" / f"oom_{name}.txt").read_text()


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


def assigned(module, *allocations, peaks=()):
    """Return an assignment.

    Args:
        module: The program.
        allocations: Fields of each allocation, and its values: the name of the instruction, the index of the
            array in its result, the bytes and the offset.
        peaks: Allocation and values of each peak, by their numbers.
    """
    classes = hlo_classes()
    message = classes["BufferAssignmentProto"]()
    made = {one.name: one.op.id for one in module.computations["main"].instructions}
    for number, (fields, *values) in enumerate(allocations):
        allocation = message.buffer_allocations.add(index=number, **fields)
        for name, index, nbytes, offset in values:
            place = classes["Location"](instruction_id=made.get(name, 10**6), shape_index=index)
            value = message.logical_buffers.add(
                id=100 + len(message.logical_buffers), size=nbytes, defined_at=place
            )
            allocation.assigned.add(logical_buffer_id=value.id, offset=offset, size=nbytes)
    for number, values in peaks:
        message.peak_buffers.add(index=number, logical_buffer_ids=[100 + one for one in values])
    return message


def nearest(instructions):
    return next((one for one in instructions if one.frames), None)


ALLOCATIONS = (
    ({"size": 4096}, ("x", (), 4096, 0)),
    ({"size": 8192}, ("add.1", (), 4096, 0), ("mul.1", (), 2048, 1024), ("unknown", (), 4096, 4096)),
    ({"size": 512, "is_thread_local": True}, ("add.1", (), 512, 0)),
    ({"size": 4096, "color": 1}, ("add.1", (), 4096, 0)),
)
SHAPE = ArrayShape("float32", (1024,), 4096)
FRAMES = (Frame("/home/user/step.py", 7, ""),)
ARGUMENT = ListedBuffer(4096, SHAPE, "params['w']", ())


def test_an_assignment_has_the_buffers_of_device_memory_without_overlap():
    """As that of JAX 0.4.38, which does not name the values at the peak."""
    module = module_of(MODULE)
    found = read_assignment(assigned(module, *ALLOCATIONS), module, nearest)
    assert found.nbytes == 4096 + 8192
    assert found.buffers == (ARGUMENT, ListedBuffer(4096, SHAPE, "jit(f)/add", FRAMES))


def test_the_values_at_the_peak_are_those_that_xla_names():
    module = module_of(MODULE)
    found = read_assignment(
        assigned(module, *ALLOCATIONS, peaks=[(0, [0]), (1, [2]), (3, [4])]), module, nearest
    )
    assert found.nbytes == 4096 + 8192
    assert found.buffers == (ARGUMENT, ListedBuffer(2048, SHAPE, "jit(f)/mul", FRAMES))


def test_an_array_in_nested_tuples_has_its_own_type_and_the_tables_of_addresses_none():
    module = module_of(TUPLES)
    values = (("both", (0,), 16, 0), ("both", (0, 1), 4096, 512), ("both", (1,), 2048, 8192))
    found = read_assignment(assigned(module, ({"size": 10240}, *values)), module, nearest)
    assert [(one.nbytes, one.shape.dims) for one in found.buffers] == [(4096, (1024,)), (2048, (512,))]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_buffers_of_an_allocation_never_have_more_bytes_than_it(values):
    module = module_of(MODULE)
    placed = [("add.1", (), 512 * size, 512 * offset) for size, offset in values]
    nbytes = max((512 * (size + offset) for size, offset in values), default=0)
    found = read_assignment(assigned(module, ({"size": nbytes}, *placed)), module, nearest)
    assert sum(one.nbytes for one in found.buffers) <= found.nbytes == nbytes
    sizes = [one.nbytes for one in found.buffers]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes, default=0) == max((size for _, _, size, _ in placed), default=0)
