"""XLA's rematerialization warnings and JAX's donation warnings, alone and in logs that are read piece by piece."""

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core.xla.hlo.messages import ArrayShape
from jax_array_info_core.xla.hlo.module import Frame
from jax_array_info_core.xla.hlo.oom_logs import ErrorReader
from jax_array_info_core.xla.hlo.warnings import (
    LONGEST,
    DonationWarning,
    RematerializationWarning,
    UnreadWarning,
    WarningReader,
    warnings_in,
)
from jax_array_info_core.xla.logs.scanner import Scanner
from tests.core.xla.hlo.test_oom_logs import ON_GPU, REFUSAL
from tests.logs import DONATIONS, FAILED_ON_GPU, REFUSED, REMATERIALIZATION, WORDINGS

pytestmark = pytest.mark.newest

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


LOG = "\n".join(
    ["step 1", *WORDINGS.values(), "step 2", *DONATIONS.values(), "größe", REMATERIALIZATION, REFUSED]
)
LOG += FAILED_ON_GPU


def scan(*pieces):
    reader = WarningReader()
    scanner = Scanner((), [reader])
    for piece in pieces:
        scanner.feed(piece)
    scanner.end()
    return reader.end(), scanner.line_count


@given(st.lists(st.integers(0, len(LOG)), max_size=6))
def test_the_pieces_do_not_matter(ends):
    data = LOG.encode()
    bounds = [0, *sorted(ends), len(data)]
    pieces = [data[start:stop] for start, stop in itertools.pairwise(bounds)]
    expected = [one for line in LOG.splitlines() for one in warnings_in(line)]
    warnings, errors = WarningReader(), ErrorReader()
    scanner = Scanner((), [warnings, errors])
    for piece in pieces:
        scanner.feed(piece)
    scanner.end()
    assert warnings.end() == expected
    lines = [number for number, line in enumerate(LOG.splitlines(), 1) if "RESOURCE_EXHAUSTED" in line]
    assert errors.end() == dict(zip(lines, [REFUSAL, ON_GPU], strict=True))
    assert scanner.line_count == len(LOG.splitlines())


@pytest.mark.parametrize("text", ["", "\n", "step 1\n", "step 1", "a\nb", "a\r\nb\r\n"])
def test_lines_are_counted_with_and_without_a_last_line_break(text):
    assert scan(text.encode()) == ([], len(text.splitlines()))


@given(st.integers(1, len(WORDINGS["0.10.2"])))
def test_a_warning_that_is_wrapped_is_read(width):
    text = WORDINGS["0.10.2"]
    start = text.index("Involuntary") + len("Involuntary full rematerialization")
    end = min(start + width, text.index(" efficiently"))
    found, _ = scan(f"{text[:end]}\n{text[end:]}\n{text}\n".encode())
    [expected] = warnings_in(text)
    assert [(one.before, one.after) for one in found] == [(expected.before, expected.after)] * 2


def test_a_list_of_buffers_that_is_wrapped_is_read():
    log = (
        "[0] Some donated buffers were not usable: float32[8,64],\r\n[0] ShapedArray(int32[4]), bfloat16[2,\r\n3],"
        " float32[8,64].\r\n[0] See an explanation at https://docs.jax.dev\r\nfloat32[9]\r\n"
    )
    [found], _ = scan(log.encode())
    assert [one.dims for one in found.buffers] == [(8, 64), (4,), (2, 3), (8, 64)]
    assert found.unread == ""


@pytest.mark.parametrize("next_line", ["loss=[1.5] f32[3,3]", "[host3]: step 5"])
@pytest.mark.parametrize("reset", ["\x1b[0m", "\x1b[m", "\x1b[39;49m"])
def test_a_color_at_the_end_of_a_line_is_not_a_bracket(reset, next_line):
    log = f"UserWarning: Some donated buffers were not usable: float32[8,64].{reset}\n{next_line}\n"
    [found], _ = scan(log.encode())
    assert ([one.dims for one in found.buffers], found.unread) == ([(8, 64)], "")
    log = f"Some donated buffers were not usable: float32[8,{reset}\n64],{reset} \nint32[4].{reset}\n{next_line}\n"
    [found], _ = scan(log.encode())
    assert ([one.dims for one in found.buffers], found.unread) == ([(8, 64), (4,)], "")


def test_the_line_after_an_unfinished_warning_is_read():
    log = f"Some donated buffers were not usable: float32[8],\nstep 1\n{REMATERIALIZATION}\n"
    found, _ = scan(log.encode())
    assert found == [*warnings_in(log.splitlines()[0]), *warnings_in(REMATERIALIZATION)]
    log = f"Involuntary full rematerialization. The\n{REMATERIALIZATION}\n"
    found, _ = scan(log.encode())
    assert found == [
        UnreadWarning("Involuntary full rematerialization. The"),
        *warnings_in(REMATERIALIZATION),
    ]


def test_a_line_of_any_length_takes_bounded_memory():
    reader = WarningReader()
    scanner = Scanner((), [reader])
    chunk = b"x" * LONGEST
    for piece in (*[chunk] * 9, REMATERIALIZATION.encode(), *[chunk] * 19):
        scanner.feed(piece)
        assert len(scanner._unfinished) <= 6 * LONGEST
    scanner.feed(b"\n")
    scanner.end()
    assert reader.end() == list(warnings_in(REMATERIALIZATION))
    assert scanner.line_count == 1


def test_wrapped_lines_take_bounded_memory():
    reader = WarningReader()
    scanner = Scanner((), [reader])
    line = b"f32[8]," * 20_000 + b"\n"
    tracemalloc.start()
    for piece in (*[b"Some donated buffers were not usable:\n" + line] * 500, *[line] * 500):
        scanner.feed(piece)
    scanner.end()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(reader.end()) + reader.unlisted_count == 500
    assert peak < 100 << 20


def test_warnings_that_differ_are_read_up_to_a_bound(monkeypatch):
    monkeypatch.setattr("jax_array_info_core.xla.logs.lines._ROOM", 10_000)
    reader = WarningReader()
    lines = [f"Some donated buffers were not usable: f32[{number}]".encode() for number in range(100)]
    reader.read(lines, range(100), 1)
    unlisted = reader.unlisted_count
    assert 0 < unlisted < 100
    assert len(reader.end()) == 100 - unlisted
    # Then all are only counted: a flood takes no time.
    reader.read(lines, range(100), 101)
    assert (reader.end(), reader.unlisted_count) == ([], unlisted + 100)


def test_the_end_of_a_line_of_json_does_not_matter():
    reader = WarningReader()
    lines = [f'{{"text": "{REMATERIALIZATION}", "step": {number}}}'.encode() for number in range(20_000)]
    reader.read(lines, range(20_000), 1)
    assert (len(reader.end()), reader.unlisted_count) == (20_000, 0)


@given(st.binary(max_size=80))
def test_bytes_that_are_not_utf8_are_ignored(data):
    found, _ = scan(data.replace(b"\n", b"") + b" " + REMATERIALIZATION.encode() + b" \xff\n")
    assert found == list(warnings_in(REMATERIALIZATION))
