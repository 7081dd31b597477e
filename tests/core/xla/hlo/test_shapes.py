import ml_dtypes
import numpy as np
import pytest

from jax_array_info_core.xla.hlo.messages import ArrayShape, dtype_of
from jax_array_info_core.xla.hlo.source import read_array
from tests.hlo_texts import entry_of

pytestmark = pytest.mark.newest


@pytest.mark.parametrize(
    ("name", "dtype", "nbytes"),
    [
        ("f32", "float32", 400),
        ("bf16", "bfloat16", 200),
        ("f16", "float16", 200),
        ("pred", "bool", 100),
        ("s32", "int32", 400),
        ("u8", "uint8", 100),
        ("s4", "int4", 50),
        ("u2", "uint2", 25),
        ("f8e4m3fn", "float8_e4m3fn", 100),
        ("f8e5m2", "float8_e5m2", 100),
        ("f8e8m0fnu", "float8_e8m0fnu", 100),
        ("f4e2m1fn", "float4_e2m1fn", 50),
        ("c64", "complex64", 800),
        ("c128", "complex128", 1600),
    ],
)
def test_types_have_the_names_of_jax_and_their_bytes_packed(name, dtype, nbytes):
    if dtype not in np.sctypeDict and not hasattr(ml_dtypes, dtype):
        pytest.skip(f"ml_dtypes {ml_dtypes.__version__} has no {dtype}")
    assert read_array(f"{name}[20,5]{{1,0}}") == ArrayShape(dtype, (20, 5), nbytes)


@pytest.mark.parametrize("name", ["token", "opaque"])
def test_types_without_data_have_no_bytes(name):
    assert read_array(f"{name}[]") == ArrayShape(name, (), 0)


@pytest.mark.parametrize("name", ["f33", "x32", "f8e9", "s", "float32", ""])
def test_an_unknown_type_is_none(name):
    assert dtype_of(name) is None
    assert read_array(f"{name}[4]") is None


@pytest.mark.parametrize(
    ("layout", "space"),
    [
        ("", 0),
        ("{1,0}", 0),
        ("{1,0:T(8,128)}", 0),
        ("{1,0:T(8,128)(2,1)S(1)}", 1),
        ("{1,0:S(5)}", 5),
        ("{1,0:T(8,128)S(1)SC(0:64)}", 1),
        ("{1,0:T(8,128)SC(0:64)}", 0),
        ("{1,0:T(8,128)(2,1)E(4)S(3)}", 3),
    ],
)
def test_the_layout_has_the_memory_space(layout, space):
    assert read_array(f"f32[2,4]{layout}") == ArrayShape("float32", (2, 4), 32, space)


def test_a_bounded_axis_takes_the_memory_of_its_bound():
    assert read_array("f32[<=8,4]{1,0}") == ArrayShape("float32", (8, 4), 128)


def typed(text):
    """Return a parameter of a type."""
    module = entry_of(f"ROOT %p = {text} parameter(0)")
    assert module.unknown_types == ()
    return module.parameters()[0]


def test_nested_tuples_are_flat_with_the_index_of_the_outermost_element():
    found = typed("((f32[2]{0}, (bf16[4]{0})), s32[], (), token[])")
    assert [one.dtype for one in found.shapes] == ["float32", "bfloat16", "int32", "token"]
    assert found.groups == (0, 0, 1, 3)
    assert typed("(f32[2]{0})").groups == (0,)
    assert typed("f32[2]{0}").groups == ()
    assert typed("()").shapes == ()


@pytest.mark.parametrize(
    "text", ["bf16[20,5]{1,0:T(8,128)(2,1)S(1)}", "c128[]", "token[]", "pred[8,0]{1,0}", "s4[3]{0:S(5)}"]
)
def test_a_record_has_the_types_that_its_text_says(text):
    """Logs have types as text, programs as messages."""
    assert typed(text).shapes == (read_array(text),)
    assert typed(f"({text})").shapes == (read_array(f"({text})"),)


def test_an_instruction_of_an_unknown_type_is_known_to_be_one():
    """A later version of XLA may have further types. Their size is not taken for nothing."""
    module = entry_of("%p = f99[4]{0} parameter(0)", "ROOT %t = (f32[], f99[4]{0}) tuple(%x, %p)")
    assert [one.name for one in module.unknown_types] == ["p", "t"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "f32",
        "f32[",
        "f32[a]",
        "f32[?,4]",
        "f32[-1]",
        "(f32[2]",
        "(f32[2], f32[2])",
        "()",
        "f32[2])",
        "f32[2] f32[2]",
        "f32[2],f32[2]",
        "f32[" + "2," * 64 + "2]",
        "f32[" + "9" * 20 + "]",
        "f32[" + ",".join(["9" * 19] * 17) + "]",
    ],
)
def test_what_is_no_type_is_none(text):
    assert read_array(text) is None
