"""Out-of-memory errors in logs."""

import json
import tracemalloc

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jax_array_info_core.xla.hlo.messages import ArrayShape
from jax_array_info_core.xla.hlo.module import Frame
from jax_array_info_core.xla.hlo.oom_logs import ErrorReader, ListedBuffer, Refusal
from jax_array_info_core.xla.logs.scanner import Scanner
from tests.logs import ALLOCATOR, FAILED_ON_GPU, FAILED_ON_TPU, REFUSED

pytestmark = pytest.mark.newest

GIB = 2**30
ATTENTION = ListedBuffer(
    12 * GIB,
    ArrayShape("float32", (48, 8192, 8192), 12 * GIB),
    "jit(step)/jit(main)/attn/dot_general",
    (Frame("/home/me/model.py", 41, ""),),
)
ADDED = ListedBuffer(
    3 * GIB,
    ArrayShape("bfloat16", (24, 8192, 8192), 3 * GIB),
    "jit(step)/jit(main)/mlp/add",
    (Frame("/home/me/model.py", 58, ""),),
)
REFUSAL = Refusal(
    "Ran out of memory in memory space hbm. Used 19.32G of 15.75G hbm. Exceeded hbm capacity by 3.57G.",
    round(19.32 * GIB),
    round(15.75 * GIB),
    (ATTENTION, ADDED, ADDED),
)
ON_GPU = Refusal(
    "Out of memory while trying to allocate 17179869100 bytes.",
    21 * GIB,
    None,
    (
        ListedBuffer(
            16 * GIB,
            ArrayShape("float32", (65536, 65536), 16 * GIB),
            "jit(loss)/jit(main)/dot_general",
            (Frame("/home/me/loss.py", 9, ""),),
        ),
        ListedBuffer(GIB, ArrayShape("bfloat16", (8192, 65536), GIB)),
    ),
    17179869100,
)


def errors(text):
    """Return the errors in a log."""
    return list(read(text.encode("utf-8", "surrogatepass"), ErrorReader()).values())


def read(data, reader):
    """Return the errors in a log, by the numbers of their lines."""
    scanner = Scanner((), [reader])
    scanner.feed(data)
    scanner.end()
    return reader.end()


def prefixed(prefix, text):
    """Return the lines of a text with a prefix."""
    return [prefix + line for line in text.splitlines()]


def test_a_refusal_has_the_table_of_the_following_lines():
    assert errors(f"step 1\n{REFUSED}step 2\n1. Size: 9.00G\n") == [REFUSAL]


def test_a_sentence_may_be_wrapped():
    head, rest = REFUSED.split("\n", maxsplit=1)
    for words in ("permanent error. ", "Used 19.32G of "):
        [found] = errors(head.replace(words, words.rstrip() + "\n  ") + "\n" + rest)
        assert (found.required_nbytes, found.buffers) == (REFUSAL.required_nbytes, REFUSAL.buffers)


def test_a_failed_allocation_on_a_gpu_has_the_bytes_of_the_program_and_its_buffers():
    assert errors(f"E1122 07:02:44.350251 27487 pjrt_client.cc:2826] failed: {FAILED_ON_GPU}") == [ON_GPU]


@pytest.mark.parametrize(
    ("text", "requested", "free"),
    [
        ("Attempting to allocate 2.00G. That was not possible. There are 1.10G free.", "2.00", "1.10"),
        (
            "Error loading program 'jit_f': Attempting to reserve 6.14G at the bottom of memory. That was not"
            " possible. There are 1.50G free, 0B reserved, and 1.50G reservable.",
            "6.14",
            "1.50",
        ),
        (
            "E0100: RuntimeBufferAllocationFailure:\nError allocating device buffer: Attempting to allocate"
            " 16.00G.\nThat was not possible. There are 0.50G free.; (0x1x0_HBM0)",
            "16",
            "0.5",
        ),
        ("Attempting to reserve 6.14G at the bottom of memory. That was not possible.", "6.14", None),
        ("Out of memory while trying to allocate 16.00GiB.", "16", None),
        ("Out of memory while trying to allocate 1.50 GiB.", "1.5", None),
    ],
)
def test_a_failed_allocation_has_the_requested_and_the_free_gibibytes(text, requested, free):
    [found] = errors(f"RESOURCE_EXHAUSTED: {text}")
    assert found.requested_nbytes == round(float(requested) * GIB)
    assert found.free_nbytes == (None if free is None else round(float(free) * GIB))


@pytest.mark.parametrize(
    ("text", "requested", "free"),
    [
        ("Out of memory allocating 4503599627370496 bytes.", 2**52, None),
        ("Failed to allocate request for 1.00GiB (1073741900B) on device ordinal 0", 1073741900, None),
        (
            "Could not allocate 900 bytes in memory 0x0x0_HBM0; 4 bytes allocatable, 70 bytes available",
            900,
            70,
        ),
        ("Out of memory allocating 9999999999999999999 bytes.", 2**63 - 1, None),
    ],
)
def test_a_failed_allocation_has_the_requested_and_the_free_bytes(text, requested, free):
    [found] = errors(f"RESOURCE_EXHAUSTED: {text}")
    assert (found.requested_nbytes, found.free_nbytes) == (requested, free)


def test_a_number_that_is_too_long_is_not_a_size():
    text = "RESOURCE_EXHAUSTED: Out of memory allocating 99999999999999999999 bytes."
    assert errors(text) == []


def test_the_warning_of_the_allocator_has_the_free_bytes():
    *lines, chunk, _, limit, _, _ = ALLOCATOR.splitlines()
    warning, error = errors(
        "\n".join([*lines, *[chunk] * 1000, ALLOCATOR[ALLOCATOR.index(limit) :] + FAILED_ON_GPU])
    )
    assert (warning.requested_nbytes, warning.free_nbytes, warning.is_warning) == (16 * GIB, 10 * GIB, True)
    assert error == ON_GPU
    assert errors(ALLOCATOR.replace("by op", "by op The caller indicates that this is not a failure")) == []


@pytest.mark.parametrize(
    "text",
    [
        "RESOURCE_EXHAUSTED: Received message larger than max (5 vs. 4)",
        "live arrays at RESOURCE_EXHAUSTED: Out of memory allocating 4.0 PiB.",
        "ran out of memory trying to allocate too much",
        "Size: 3.00G",
    ],
)
def test_other_lines_are_not_errors(text):
    assert errors(text) == []


def test_an_error_about_other_memory_is_not_one():
    text = "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem. Used 20.00M of 16.00M vmem."
    assert errors(f"\x1b[31m{text}\x1b[0m\nstep 2\n") == []


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[3] ",
        "[host3]: ",
        "12: ",
        "trainer-0  | ",
        "(launch pid=7738, ip=10.142.0.6) ",
        "\x1b[36m(pid=7738)\x1b[0m ",
        "2026-11-22T07:02:44.350251Z ",
        "2026-05-04 09:05:40.721128: E    1578 tensorflow/compiler/xla/xla_client/xla_util.cc:76] ",
        "ERROR:root:",
    ],
)
def test_prefixes_of_lines_do_not_matter(prefix):
    assert errors("\n".join(prefixed(prefix, REFUSED + FAILED_ON_GPU))) == [REFUSAL, ON_GPU]


@pytest.mark.parametrize("prefix", ["[2026-11-22 07:02:44] ", "(trainer) ", "7: ", "INFO:"])
def test_a_prefix_may_be_that_of_the_first_line_alone(prefix):
    assert errors(prefix + REFUSED) == [REFUSAL]
    [failed, refused] = errors(f"{FAILED_ON_TPU}\n{prefix}{REFUSED}")
    assert (failed.buffers, refused) == ((), REFUSAL)


def test_lines_of_several_processes_are_told_apart():
    lines = zip(*(prefixed(f"(pid={number}) ", REFUSED) for number in range(5)), strict=True)
    assert errors("\n".join(line for together in lines for line in together)) == [REFUSAL] * 5


def test_an_error_in_a_line_of_json_is_read():
    lines = [json.dumps({"message": f"failed\n{text}", "step": 3}) for text in (REFUSED, FAILED_ON_GPU)]
    assert errors("\n".join(lines)) == [REFUSAL, ON_GPU]
    [found] = errors(json.dumps({"message": FAILED_ON_TPU, "step": 3}))
    assert found.message == FAILED_ON_TPU.removeprefix("ValueError: RESOURCE_EXHAUSTED: ").partition(";")[0]


def test_errors_that_differ_only_in_the_device_and_its_free_bytes_are_equal():
    text = FAILED_ON_TPU + "\n" + FAILED_ON_TPU.replace("1.10G", "1.20G").replace("0x0x0", "0x1x0")
    first, second = errors(text)
    assert first is second
    assert first.free_nbytes == round(1.1 * GIB)


def test_a_table_ends_after_many_other_lines():
    [found] = errors(f"{FAILED_ON_TPU}\n" + "step\n" * 100 + "1. Size: 9.00G\n     Shape: f32[8]\n")
    assert found.buffers == ()


def test_errors_that_differ_are_read_up_to_a_bound(monkeypatch):
    monkeypatch.setattr("jax_array_info_core.xla.logs.lines._ROOM", 10_000)
    reader = ErrorReader()
    lines = [f"RESOURCE_EXHAUSTED: Out of memory allocating {number} bytes.\n" for number in range(100)]
    refusals = read("".join(lines).encode(), reader)
    assert 0 < len(refusals) < 100
    assert len(refusals) + reader.unlisted_count == 100


def test_tables_of_any_size_take_bounded_memory():
    line = b"     Operator: " + b"x" * 20_000 + b"\n"
    reader = ErrorReader()
    scanner = Scanner((), [reader])
    tracemalloc.start()
    for number in range(200):
        scanner.feed(b"[%d] RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\n" % number)
        scanner.feed((b"[%d] " % number + line) * 100)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 << 20
    assert reader.unlisted_count > 100


@given(st.binary(max_size=60), st.integers(0, 40))
def test_any_bytes_in_between_are_ignored(data, number):
    assume(not any(word in data for word in ErrorReader.words))
    lines = REFUSED.encode().splitlines(keepends=True)
    junk = data.replace(b"\n", b"").replace(b":", b"") + b"\n"
    data = b"".join([*lines[: number + 1], junk, *lines[number + 1 :]])
    assert read(data, ErrorReader()) == {1: REFUSAL}
