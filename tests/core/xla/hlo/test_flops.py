import itertools

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from jax_array_info_core.compat.programs import program_record
from jax_array_info_core.xla.hlo.flops import counted_flops
from jax_array_info_core.xla.hlo.loops import executions
from jax_array_info_core.xla.hlo.messages import hlo_classes
from jax_array_info_core.xla.hlo.module import read_module
from tests.hlo_texts import CPU, EVERYWHERE, entry_of, module_of, records, stored

pytestmark = pytest.mark.newest


def flops(module):
    """Return the flops of a program."""
    found = counted_flops(module, executions(module))
    is_exact = not (found.runs_unknown or found.size_unknown or any(found.dots))
    return found.known if is_exact else None


def of_line(line, *operands):
    """Return the flops of an instruction with operands of these types, ``%a`` and ``%b``."""
    parameters = [f"%{'ab'[n]} = {type_} parameter({n})" for n, type_ in enumerate(operands)]
    return flops(entry_of(*parameters, f"ROOT {line}"))


def of_function(f, *shapes, dtype=jnp.float32):
    """Return the flops of a compiled function, ours and XLA's."""
    compiled = jax.jit(f).lower(*(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)).compile()
    costs = compiled.cost_analysis()
    return flops(read_module(program_record(compiled))), (costs[0] if isinstance(costs, list) else costs)[
        "flops"
    ]


@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("step", 671_088_640),
        ("scan", 206_158_430_208),
        ("checkpoint", 240_518_168_576),
        ("scan_in_scan", 6_291_456),
        ("donated", 0),
        ("all_to_all", 0),
    ],
)
def test_all_versions_and_devices_have_the_same_flops(where, program, expected):
    assert flops(stored(where, program)) == expected


@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize("program", ["while", "cond"])
def test_a_dot_that_runs_an_unknown_number_of_times_makes_them_unknown(where, program):
    assert flops(stored(where, program)) is None


@pytest.mark.parametrize("where", [*CPU, "h100", "v5p", "v5e"])
def test_a_convolution_leaves_out_the_products_with_padding(where):
    # 22 of 24 positions along each axis; TPU does not gather the input of all 8 devices.
    expected = 2 * 16 * 22 * 22 * 2 * 8
    assert flops(stored(where, "convolution")) == (expected // 8 if where.startswith("v5") else expected)


@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        pytest.param(jnp.matmul, ((7, 33, 65), (7, 65, 31)), id="batched dot"),
        pytest.param(
            lambda a, b: jnp.einsum("bhqd,bkhd->bhqk", a, b), ((2, 4, 64, 32), (2, 128, 4, 32)), id="heads"
        ),
        pytest.param(
            lambda x, w: lax.conv_general_dilated(x, w, (1, 2), [(3, 0), (-1, 5)], (2, 3), (3, 2)),
            ((2, 8, 9, 8), (16, 8, 3, 4)),
            id="dilated",
        ),
        pytest.param(
            lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=4),
            ((2, 8, 9, 8), (16, 2, 3, 3)),
            id="feature groups",
        ),
        pytest.param(
            lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", batch_group_count=2),
            ((4, 8, 9, 8), (16, 8, 3, 3)),
            id="batch groups",
        ),
    ],
)
def test_without_loops_the_flops_are_those_of_cost_analysis(f, shapes):
    ours, xla = of_function(f, *shapes)
    assert ours == xla > 0


def test_a_loop_counts_as_often_as_it_turns():
    once, _ = of_function(jnp.matmul, (16, 16), (16, 16))
    assert of_function(lambda x: lax.fori_loop(0, 10, lambda i, c: c @ c, x), (16, 16))[0] == 10 * once
    assert of_function(lambda x: lax.map(lambda y: y @ y, x), (6, 16, 16))[0] == 6 * once


@settings(max_examples=150, deadline=None)
@given(
    st.tuples(
        st.integers(1, 9),  # input
        st.integers(1, 5),  # window
        st.integers(1, 4),  # stride
        st.integers(-2, 5),  # padding before
        st.integers(0, 5),  # padding after
        st.integers(1, 4),  # dilation of the input
        st.integers(1, 3),  # dilation of the window
    )
)
def test_the_positions_of_a_window_are_those_that_meet_the_input(case):
    size, window, stride, before, after, dilation, window_dilation = case
    padded = (size - 1) * dilation + 1 + before + after
    result = max(0, (padded - (window - 1) * window_dilation - 1) // stride + 1)
    met = sum(
        1
        for k, o in itertools.product(range(window), range(result))
        if (place := o * stride + k * window_dilation - before) % dilation == 0
        and 0 <= place // dilation < size
    )
    line = (
        f"%c = f32[{result},3,5] convolution(%a, %b), window={{size={window} stride={stride} pad={before}_{after}"
        f" lhs_dilate={dilation} rhs_dilate={window_dilation}}}, dim_labels=0bf_0io->0bf"
    )
    assert of_line(line, f"f32[{size},3,7]", f"f32[{window},7,5]") == 2 * 3 * 7 * 5 * met


@pytest.mark.parametrize(
    ("line", "operands", "expected"),
    [
        pytest.param(
            "%d = f32[8,32] dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            ("f32[8,16]", "f32[16,32]"),
            2 * 8 * 16 * 32,
            id="dot",
        ),
        pytest.param(
            "%d = f32[8] dot(%a, %b), lhs_contracting_dims={}, rhs_contracting_dims={}",
            ("f32[8]", "f32[]"),
            2 * 8,
            id="nothing contracted",
        ),
        pytest.param(
            "%c = f32[8,32] convolution(%a, %b), dim_labels=bf_io->bf",
            ("bf16[8,16]", "bf16[16,32]"),
            2 * 8 * 16 * 32,
            id="dot of TPU",
        ),
        pytest.param(
            "%c = f32[4,8,32] convolution(%a, %b), window={size=4 stride=3 lhs_dilate=4},"
            " dim_labels=0bf_0io->0bf",
            ("f32[4,8,16]", "f32[4,16,32]"),
            2 * 4 * 8 * 16 * 32,
            id="batched dot of TPU",
        ),
        pytest.param(
            '%g = (f32[8,32], s8[4096]) custom-call(%a, %b), custom_call_target="__cublas$lt$matmul",'
            ' backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["0"],'
            '"rhs_contracting_dimensions":["0"]}}}',
            ("f32[16,8]", "f32[16,32]"),
            2 * 8 * 16 * 32,
            id="cuBLAS",
        ),
        pytest.param(
            '%g = f32[8,32] custom-call(%a, %b), custom_call_target="__onednn$matmul",'
            ' backend_config={"onednn_matmul_config":{"transpose_a":true}}',
            ("f32[16,8]", "f32[16,32]"),
            2 * 8 * 16 * 32,
            id="oneDNN",
        ),
        pytest.param(
            "%c = (f32[2,8,6], u8[0]) custom-call(%a, %b), window={size=3}, dim_labels=b0f_o0i->b0f,"
            ' custom_call_target="__cudnn$convBackwardInput"',
            ("f32[2,6,5]", "f32[5,3,6]"),
            2 * 2 * 6 * 3 * 5 * 6,
            id="cuDNN, backward",
        ),
        pytest.param(
            "%c = (f32[5,3,6], u8[0]) custom-call(%a, %b), window={size=3}, dim_labels=b0f_o0i->b0f,"
            ' custom_call_target="__cudnn$convBackwardFilter"',
            ("f32[2,8,6]", "f32[2,6,5]"),
            2 * 2 * 6 * 3 * 5 * 6,
            id="cuDNN, weights",
        ),
        pytest.param(
            '%c = f32[8] custom-call(%a), custom_call_target="lapack_spotrf_ffi"', ("f32[8]",), 0, id="LAPACK"
        ),
        pytest.param(
            '%c = f32[8] custom-call(%a), custom_call_target="tpu_custom_call"',
            ("f32[8]",),
            None,
            id="Pallas",
        ),
        pytest.param(
            '%c = f32[8] custom-call(%a), custom_call_target="__cudnn$fmhaSoftmax"',
            ("f32[8]",),
            None,
            id="attention",
        ),
        pytest.param(
            '%c = f32[8] custom-call(%a), custom_call_target="__onednn$matmul"',
            ("f32[8]",),
            None,
            id="no axes",
        ),
        pytest.param("%d = f32[8] ragged-dot(%a, %b)", ("f32[8]", "f32[8]"), None, id="ragged"),
        pytest.param(
            '%c = f32[2,9,3] custom-call(%a, %b), custom_call_target="__onednn$convolution"',
            ("f32[2,9,8]", "f32[1,8,3]"),
            None,
            id="oneDNN, no window",
        ),
    ],
)
def test_the_flops_of_a_line(line, operands, expected):
    assert of_line(line, *operands) == expected


def test_a_kernel_is_not_counted_and_the_rest_is():
    message = hlo_classes()["HloModuleProto"].FromString(records("0.12.0.1")["step"])
    entry = next(one for one in message.computations if one.name == message.entry_computation_name)
    entry.instructions.add(name="k", opcode="custom-call", id=0, custom_call_target="tpu_custom_call")
    next(one for one in message.schedule.sequences if one.key == entry.id).value.instruction_ids.append(0)
    module = read_module(message.SerializeToString())
    found = counted_flops(module, executions(module))
    assert (found.known, [one.name for one in found.size_unknown]) == (671_088_640, ["k"])
    assert found.runs_unknown == ()


@pytest.mark.parametrize("where", EVERYWHERE)
def test_dots_outside_of_a_loop_of_unknown_length_are_known(where):
    module = stored(where, "while")
    found = counted_flops(module, executions(module))
    assert any(found.dots)
    assert found.runs_unknown == found.size_unknown == ()


def test_a_kernel_in_a_loop_that_never_turns_counts_as_nothing():
    program = """HloModule m

%body (s: (f32[8])) -> (f32[8]) {
  %s = (f32[8]) parameter(0)
  %k = f32[8] custom-call(%s), custom_call_target="tpu_custom_call"
  ROOT %r = (f32[8]) tuple(%k)
}

%condition (s: (f32[8])) -> pred[] {
  %s = (f32[8]) parameter(0)
  ROOT %f = pred[] constant(false)
}

ENTRY %main (x: f32[8]) -> (f32[8]) {
  %x = f32[8] parameter(0)
  %t = (f32[8]) tuple(%x)
  ROOT %w = (f32[8]) while(%t), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"0"}}
}
"""
    assert flops(module_of(program)) == 0
    assert flops(module_of(program.replace('"0"', '"1"'))) is None
