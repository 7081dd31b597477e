"""XLA's rematerialization warnings and JAX's donation warnings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core.hlo.messages import ArrayShape
from jax_array_info_core.hlo.module import Frame
from jax_array_info_core.hlo.warnings import (
    DonationWarning,
    RematerializationWarning,
    UnreadWarning,
    warnings_in,
)
from tests.logs import DONATIONS, REMATERIALIZATION, WORDINGS

pytestmark = pytest.mark.oldest_and_newest

TILES = ("{devices=[2,1,4]<=[4,2]T(1,0)}", "{devices=[1,8,1]<=[8]}")
SHAPE = ArrayShape("float32", (8, 16, 4), 2048)
LINE = (Frame("/home/me/train.py", 13, ""),)


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("2022", RematerializationWarning(*TILES)),
        ("0.4.28", RematerializationWarning(*TILES)),
        ("0.4.38", RematerializationWarning(*TILES, "add.3", "jit(two)/jit(main)/add", SHAPE, LINE)),
        ("0.7.2", RematerializationWarning(*TILES, "add.3", "jit(two)/add", SHAPE, LINE)),
        ("0.10.2", RematerializationWarning(*TILES, "add.3", "jit(two)/add", SHAPE)),
        (
            "0.12.0.1",
            RematerializationWarning(
                "{mesh['x'=4,'y'=2], [{'y'}, {}, {'x'}]}",
                "{mesh['x'=4,'y'=2], [{}, {'x', 'y'}, {}]}",
                "add.3",
                "jit(two)/add",
                SHAPE,
            ),
        ),
    ],
)
def test_each_wording_is_read(version, found):
    assert list(warnings_in(WORDINGS[version])) == [found]


@pytest.mark.parametrize(
    "change", ["(worker pid=7, ip=10.0.0.1) {}", "\x1b[33m{}\x1b[0m\r", "91%|███| 69/76\r{}"]
)
def test_prefixes_and_colors_are_ignored(change):
    assert list(warnings_in(change.format(REMATERIALIZATION))) == list(warnings_in(REMATERIALIZATION))


def test_two_warnings_in_one_line_are_two():
    assert len(list(warnings_in(REMATERIALIZATION * 2))) == 2


def test_a_line_of_json_is_read():
    text = REMATERIALIZATION.replace('"', r"\"")
    assert list(warnings_in(f'{{"message": "{text}"}}')) == list(warnings_in(REMATERIALIZATION))


def test_types_of_operands_and_metadata_of_shardings_are_not_taken_for_the_result():
    text = REMATERIALIZATION.replace(
        "add(%param, %param)", "get-tuple-element((f32[9]{0}, token[]) %p), index=1"
    )
    text = text.replace("T(1,0)}, metadata", 'T(1,0) metadata={op_name="x"}}, metadata')
    [found] = warnings_in(text)
    assert (found.shape, found.op_name) == (SHAPE, "jit(two)/add")


@given(st.integers(0, len(REMATERIALIZATION)))
def test_a_warning_that_is_cut_off_is_read_as_far_as_it_goes(end):
    [whole] = warnings_in(REMATERIALIZATION)
    for found in warnings_in(REMATERIALIZATION[:end]):
        if isinstance(found, RematerializationWarning):
            assert (found.before, found.after) == (whole.before, whole.after)
            assert found.op_name in (None, whole.op_name)
        else:
            assert isinstance(found, UnreadWarning)


def test_an_unknown_wording_is_unread():
    text = "Involuntary full rematerialization: {devices=[2]<=[2]}" + "." * 400
    assert list(warnings_in(text)) == [UnreadWarning(text[:300])]


@pytest.mark.parametrize("version", DONATIONS)
def test_each_donation_warning_is_read_once(version):
    buffers = (ArrayShape("float32", (8, 64), 2048), ArrayShape("int32", (), 4))
    found = [one for line in DONATIONS[version].splitlines() for one in warnings_in(line)]
    assert found == [DonationWarning(buffers, "")]


@pytest.mark.parametrize(
    ("text", "buffers", "unread"),
    [
        ("bfloat16[8@x,64]", [("bfloat16", (8, 64), 1024)], ""),
        ("float32[8@('x', 'y'),2]", [("float32", (8, 2), 64)], ""),
        ("int4[7], bool[3]", [("int4", (7,), 4), ("bool", (3,), 3)], ""),
        ("key<fry>[4]", [("key<fry>", (4,), 32)], ""),
        ("f32[8,64]{1,0}, pred[]", [("float32", (8, 64), 2048), ("bool", (), 1)], ""),
        ("float32[n,4], int8[2]", [("int8", (2,), 2)], "float32[n,4]"),
        ("what, float32[1]", [("float32", (1,), 4)], "what"),
        ("int8[9999999999999999999]", [], "int8[9999999999999999999]"),
    ],
)
def test_types_of_buffers_are_read(text, buffers, unread):
    [found] = warnings_in(f"Some donated buffers were not usable: {text}.")
    assert found == DonationWarning(tuple(ArrayShape(*one) for one in buffers), unread)


@given(st.text(max_size=60), st.text(max_size=60))
def test_nothing_raises_for_any_text(before, after):
    for words in (
        "Involuntary full rematerialization",
        "Some donated buffers were not usable:",
        REMATERIALIZATION,
    ):
        assert list(warnings_in(before + words + after)) is not None
