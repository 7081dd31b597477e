"""Parsers and formatters of meshes, specs and XLA shardings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import sharding_layout
from jax_array_info_core.errors import LayoutError, NotationError
from jax_array_info_core.geometry.layouts.notation import (
    parse_array,
    parse_logical_axes,
    parse_names,
    parse_rule,
)
from jax_array_info_core.geometry.layouts.spec import as_spec
from jax_array_info_core.layouts import (
    Spec,
    format_mesh,
    format_spec,
    parse_mesh,
    parse_shape,
    parse_spec,
    parse_xla_sharding,
    spec_of_xla,
)
from tests.arrays import FakeDevice, mesh_of
from tests.core.geometry.layouts.test_layout_laws import named_shardings

pytestmark = pytest.mark.once_per_version


@pytest.mark.parametrize(
    ("text", "mesh"),
    [
        ("data=8,fsdp=32", {"data": 8, "fsdp": 32}),
        (" data = 8 , fsdp=32 ", {"data": 8, "fsdp": 32}),
        ("x=1", {"x": 1}),
        ("'a b'=2", {"a b": 2}),
    ],
)
def test_meshes_are_parsed_and_formatted(text, mesh):
    assert parse_mesh(text) == mesh
    assert list(parse_mesh(text)) == list(mesh)
    assert parse_mesh(format_mesh(mesh)) == mesh


@pytest.mark.parametrize(
    ("text", "shape"),
    [("16", (16,)), ("16,16", (16, 16)), ("(16, 16)", (16, 16)), ("()", ()), ("(3,)", (3,)), ("0,4", (0, 4))],
)
def test_shapes_are_parsed(text, shape):
    assert parse_shape(text) == shape


@pytest.mark.parametrize(
    ("texts", "spec"),
    [
        (("P()", "", "PartitionSpec()", "()"), Spec(())),
        (("P('data',)", "data", "P('data')", 'P("data")', "P(('data',))"), Spec((("data",),))),
        (("P(None, ('data', 'fsdp'))", "-,data+fsdp"), Spec(((), ("data", "fsdp")))),
        (("P(UNCONSTRAINED, 'a')", "?,a", "P(P.UNCONSTRAINED, 'a')"), Spec(((), ("a",)), unconstrained=(0,))),
        (("P('a', unreduced={'b'})",), Spec((("a",),), unreduced=("b",))),
        (("P(None)", "-"), Spec(((),))),
    ],
)
def test_specs_are_parsed_and_formatted(texts, spec):
    for text in texts:
        assert parse_spec(text) == spec
    assert parse_spec(str(spec)) == spec
    assert parse_spec(format_spec(spec)) == spec


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("*mlp/w*=fsdp,tensor", ("*mlp/w*", Spec((("fsdp",), ("tensor",))))),
        ("*=P(None, ('a', 'b'))", ("*", Spec(((), ("a", "b"))))),
        ("w=P('a', unreduced={'b'})", ("w", Spec((("a",),), unreduced=("b",)))),
        ("params/[0]=-,a", ("params/[0]", Spec(((), ("a",))))),
        ("a b = x", ("a b ", Spec((("x",),)))),
        ("*=?", ("*", Spec(((),), unconstrained=(0,)))),
    ],
)
def test_a_rule_is_divided_at_its_first_equals_sign(text, rule):
    assert parse_rule(text) == rule


@pytest.mark.parametrize("text", ["*=-", "*=", "*=P()", "*=-,-", "*=P(None)"])
def test_a_rule_that_shards_nothing_fits_arrays_with_any_number_of_axes(text):
    assert parse_rule(text) == ("*", Spec(()))


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("embed=fsdp", (("embed", ("fsdp",)),)),
        (
            " embed = fsdp + tensor , norm=- ,mlp=tensor",
            (("embed", ("fsdp", "tensor")), ("norm", ()), ("mlp", ("tensor",))),
        ),
        ("a=x,a=y", (("a", ("x",)), ("a", ("y",)))),
        ("'kv-heads'='a b'", (("kv-heads", ("a b",)),)),
    ],
)
def test_logical_axes_are_parsed_with_their_mesh_axes(text, axes):
    assert parse_logical_axes(text) == axes


def test_names_of_mesh_axes_are_parsed():
    assert parse_names("data") == ("data",)
    assert parse_names(" data, 'a b' ") == ("data", "a b")


@pytest.mark.parametrize(
    ("text", "array"),
    [
        ("float32[64,128]@data,-", ("float32", (64, 128), Spec((("data",), ())))),
        (" f32 [ 64, 128 ] @ P('data', None)", ("float32", (64, 128), Spec((("data",), ())))),
        ("s32[]", ("int32", (), Spec(()))),
        ("i32[0]@", ("int32", (0,), Spec(()))),
        ("pred[8]@x+y", ("bool", (8,), Spec((("x", "y"),)))),
        ("bool[8]", ("bool", (8,), Spec(()))),
        ("u4[8]", ("uint4", (8,), Spec(()))),
        ("i8[8]", ("int8", (8,), Spec(()))),
        ("bf16[8]", ("bfloat16", (8,), Spec(()))),
        ("c64[8]", ("complex64", (8,), Spec(()))),
        ("float32[64@data,128]", ("float32", (64, 128), Spec((("data",), ())))),
        ("f32[8 @ (x, y), 8@z]", ("float32", (8, 8), Spec((("x", "y"), ("z",))))),
        ("f8e4m3fn[8]@?", ("float8_e4m3fn", (8,), Spec(((),), unconstrained=(0,)))),
    ],
)
def test_arrays_are_parsed_with_their_short_dtypes_and_their_specs(text, array):
    assert parse_array(text) == array


XLA = [
    "{replicated}",
    "{manual}",
    "{unknown}",
    "{maximal device=3}",
    "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}",
    "{devices=[2,1,4]<=[4,2]T(1,0)}",
    "{devices=[4,2]0,1,2,3,4,5,6,7}",
    "{devices=[2,2]3,1,0,2}",
    "{devices=[2,2,2]<=[8] last_tile_dims={manual, replicated}}",
]


@pytest.mark.parametrize("text", XLA)
def test_xla_shardings_are_formatted_as_they_were_parsed(text):
    assert str(parse_xla_sharding(text)) == text


@pytest.mark.parametrize(
    ("function", "text", "shown"),
    [
        (parse_mesh, "data=x,fsdp=2", "expected a number\n  data=x,fsdp=2\n       ^"),
        (parse_mesh, "data=0", "expected a number of at least 1\n  data=0\n       ^"),
        (parse_mesh, "data=8,data=2", "mesh axis 'data' is listed twice\n  data=8,data=2\n         ^"),
        (parse_mesh, "data", "expected '=' and the size of the axis\n  data\n      ^"),
        (parse_mesh, "", "expected the name of a mesh axis\n  \n  ^"),
        (parse_mesh, "a=1 b=2", "expected the end\n  a=1 b=2\n      ^"),
        (parse_shape, "16,x", "expected a number\n  16,x\n     ^"),
        (parse_shape, "-3", "expected a number\n  -3\n  ^"),
        (parse_spec, "P(None, data fsdp)", "expected ',' or ')'\n  P(None, data fsdp)\n               ^"),
        (parse_spec, "-,,a", "expected the name of a mesh axis\n  -,,a\n    ^"),
        (parse_spec, "a,", "expected the name of a mesh axis\n  a,\n    ^"),
        (parse_spec, "P(__import__('os'))", "expected ',' or ')'\n  P(__import__('os'))\n              ^"),
        (parse_spec, "P('')", "expected a name between the quotes\n  P('')\n    ^"),
        (parse_array, "f32", "expected '[' and the shape, such as [8,4]\n  f32\n     ^"),
        (parse_array, "[8]", "expected a dtype and a shape, such as float32[8,4]\n  [8]\n  ^"),
        (parse_array, "f32[8", "expected ',' or ']'\n  f32[8\n       ^"),
        (parse_array, "f32[8]data", "expected '@' and a spec, or the end\n  f32[8]data\n        ^"),
        (parse_array, "f32[8]@x,", "expected the name of a mesh axis\n  f32[8]@x,\n           ^"),
        (parse_array, "f32[8@x]@y", "expected '@' and a spec, or the end\n  f32[8@x]@y\n          ^"),
        (parse_array, "f4[8]", "'f4' is not a dtype: use one such as float32, bf16 or int4\n  f4[8]\n  ^"),
        (parse_array, "key[8]", "'key' is not a dtype: use one such as float32, bf16 or int4\n  key[8]\n  ^"),
        (parse_rule, "*mlp*", "expected '=' and a spec after the pattern\n  *mlp*\n       ^"),
        (parse_rule, "=x", "expected a pattern of paths before the '='\n  =x\n  ^"),
        (parse_rule, "*=x,,y", "expected the name of a mesh axis\n  *=x,,y\n      ^"),
        (parse_logical_axes, "embed", "expected '=' and a mesh axis, or '-' for none\n  embed\n       ^"),
        (parse_logical_axes, "embed=", "expected the name of a mesh axis\n  embed=\n        ^"),
        (parse_logical_axes, "-=x", "expected the name of a logical axis\n  -=x\n  ^"),
        (parse_names, "data,", "expected the name of a mesh axis\n  data,\n       ^"),
        (
            parse_xla_sharding,
            "{devices=[2,2]<=[8]}",
            "4 tiles, but 8 devices\n  {devices=[2,2]<=[8]}\n            ^",
        ),
        (
            parse_xla_sharding,
            "{devices=[2]0,0}",
            "a device is listed twice\n  {devices=[2]0,0}\n              ^",
        ),
        (
            parse_xla_sharding,
            "{devices=[4]<=[2,2]T(0,0)}",
            "expected a permutation of the 2 axes of [2,2]\n  {devices=[4]<=[2,2]T(0,0)}\n                       ^",
        ),
        (parse_xla_sharding, "\x1b[31m", r"expected '{'" + "\n  \\x1b[31m\n  ^"),
    ],
)
def test_errors_mark_the_position_with_a_caret(function, text, shown):
    with pytest.raises(NotationError) as raised:
        function(text)
    assert str(raised.value) == f"cannot be read: {shown}"


@pytest.mark.newest
@given(st.text(max_size=30))
def test_any_other_text_raises_only_notation_errors(text):
    parsers = (parse_mesh, parse_shape, parse_spec, parse_xla_sharding)
    for function in (*parsers, parse_rule, parse_logical_axes, parse_names):
        try:
            function(text)
        except NotationError as error:
            assert 0 <= error.position <= len(text)


@given(named_shardings())
def test_specs_and_meshes_round_trip_through_text(case):
    _, mesh, sharding = case
    spec = as_spec(sharding.spec)
    assert parse_spec(str(spec)) == parse_spec(format_spec(spec)) == spec
    assert parse_mesh(format_mesh(mesh)) == mesh


@given(named_shardings())
def test_an_xla_sharding_from_jax_is_equivalent_to_its_spec(case):
    shape, mesh, sharding = case
    plain = NamedSharding(
        mesh_of(tuple(mesh.values()), tuple(mesh), [FakeDevice(n) for n in range(sharding.mesh.size)]),
        sharding.spec,
    )
    hlo = plain._to_xla_hlo_sharding(len(shape))
    found = parse_xla_sharding(str(hlo))
    spec = spec_of_xla(found, mesh)
    if found.kind == "maximal":
        assert sharding.mesh.size == 1
        return
    assert spec is not None
    respelled = NamedSharding(plain.mesh, P(*(names or None for names in spec.axes)))
    assert respelled.devices_indices_map(shape) == plain.devices_indices_map(shape)
    if found.kind == "tiled":
        assert np.array_equal(
            np.sort(found.device_ids, -1), np.sort(sharding_layout(shape, plain).device_ids, -1)
        )


@pytest.mark.parametrize(
    ("text", "mesh", "spec"),
    [
        (
            "{devices=[2,1,4]<=[8] last_tile_dims={unreduced}}",
            {"a": 2, "b": 4},
            Spec((("a",),), unreduced=("b",)),
        ),
        (
            "{devices=[2,2,2]<=[8] last_tile_dims={unreduced, replicated}}",
            {"a": 2, "b": 2, "c": 2},
            Spec((("a",),), unreduced=("b",)),
        ),
        ("{devices=[8]<=[8]}", {"x": 4, "one": 1, "y": 2}, Spec((("x", "y"),))),
        ("{devices=[2,2]<=[4]}", {"x": 4}, None),
        ("{devices=[4]0,2,1,3}", {"x": 4}, None),
        ("{devices=[2]5,7}", {"x": 2}, None),
        ("{replicated}", {"x": 4}, Spec(())),
        ("{manual}", {"x": 4}, None),
        ("{maximal device=3}", {"x": 4}, None),
        ("{devices=[2,2]<=[4] last_tile_dims={manual}}", {"x": 4}, None),
    ],
)
def test_an_xla_sharding_becomes_the_equivalent_spec(text, mesh, spec):
    assert spec_of_xla(parse_xla_sharding(text), mesh) == spec


class Counting(str):
    """A str that counts the characters copied by slicing."""

    copied = 0

    def __getitem__(self, key):
        found = super().__getitem__(key)
        Counting.copied += len(found)
        return found


@pytest.mark.parametrize("entry", ["-", "?", "a+b", "'c d'", "  - "])
def test_a_long_spec_is_parsed_without_copying_the_rest_of_the_text(entry):
    text = Counting(",".join([entry] * 500))
    Counting.copied = 0
    assert len(parse_spec(text).axes) == 500
    assert Counting.copied <= len(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{devices=[" + ",".join("1" * 70) + "]<=[1]}", "more than (63|31) tile or device dimensions"),
        ("{devices=[1]<=[" + ",".join("1" * 70) + "]}", "more than (63|31) tile or device dimensions"),
        (
            "{devices=[" + ",".join(["9" * 18] * 30) + "]<=[1]}",
            r"9.7e\+539 tiles, but 1 devices|1.0e\+540 tiles, but 1 devices",
        ),
    ],
)
def test_a_sharding_with_too_many_axes_or_tiles_is_rejected(text, problem):
    with pytest.raises(NotationError, match=problem):
        parse_xla_sharding(text)


def test_a_sharding_of_too_many_devices_is_parsed_but_has_no_layout():
    sharding = parse_xla_sharding("{devices=[999999999999]<=[999999999999]}")
    with pytest.raises(LayoutError, match="999999999999 devices exceed the limit of 1048576"):
        _ = sharding.device_ids
    with pytest.raises(LayoutError, match="exceed the limit of 1048576"):
        spec_of_xla(sharding, {"x": 999999999999})
