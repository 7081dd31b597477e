"""Text for the memory of a program: of the device and of the host, unknown, or more than a device has."""

from dataclasses import replace

import pytest

from jax_array_info import program_diff_report
from jax_array_info.engine.render import render, text_of
from jax_array_info.reports import (
    BackwardLine,
    LargeBuffer,
    LiveAtBackward,
    ProgramMemory,
    SavedForBackward,
    UncountedFlops,
)
from tests.rich_render.tables.test_program import lines_with, text
from tests.sample_programs import STEP, TOO_LARGE, leaf, program

pytestmark = pytest.mark.oldest_and_newest


def test_the_bytes_that_a_refused_program_would_send_are_printed_if_it_is_known():
    assert lines_with(TOO_LARGE, "sent per device") == []
    refusal = replace(TOO_LARGE.out_of_memory, is_program_known=True)
    known = replace(TOO_LARGE, out_of_memory=refusal, collectives=STEP.collectives, sent=STEP.sent)
    assert lines_with(known, "sent per device") == lines_with(STEP, "sent per device")


def test_all_buffers_of_a_program_that_does_not_fit_are_shown_with_all_rows():
    buffers = tuple(
        LargeBuffer(nbytes=nbytes, shape=(nbytes,), dtype="int8", op=f"jit(step)/op{number}x")
        for number, nbytes in enumerate([2**30 >> number for number in range(25)])
    )
    refused = replace(
        TOO_LARGE,
        arguments=STEP.arguments,
        mesh=STEP.mesh,
        device_count=8,
        out_of_memory=replace(TOO_LARGE.out_of_memory, buffers=buffers),
    )
    few, every = (
        [line.split() for line in text_of(render(refused, max_rows=most)).splitlines()] for most in (10, None)
    )
    names = [f"jit(step)/op{number}x" for number in range(25)]
    assert [line[2] for line in few if len(line) > 2 and line[2].startswith("jit(step)")] == names[:10]
    assert [line[2] for line in every if len(line) > 2 and line[2].startswith("jit(step)")] == names


def test_nothing_of_a_refused_program_is_as_asked():
    values = tuple(replace(value, got=None, nbytes=None) for value in STEP.arguments)
    refused = replace(TOO_LARGE, arguments=values, mesh=STEP.mesh, device_count=8)
    assert lines_with(STEP, "as requested")
    assert lines_with(refused, "as requested") == []


def test_host_memory_is_apart_from_that_of_the_device():
    memory = ProgramMemory(temporary_nbytes=2**20, host_argument_nbytes=0, host_temporary_nbytes=384 * 2**20)
    assert lines_with(program(memory=memory), "host memory") == [
        "host memory per device: temporaries 384.0 MiB"
    ]
    more = replace(memory, host_argument_nbytes=2**20, host_output_nbytes=2**20, host_alias_nbytes=2**20)
    assert (
        "host memory per device: 385.0 MiB = arguments 1.0 MiB + outputs 1.0 MiB + temporaries 384.0 MiB - "
        "reused by donation 1.0 MiB"
    ) in " ".join(text(program(memory=more)).split())
    assert lines_with(program(memory=ProgramMemory(temporary_nbytes=1)), "host memory") == []
    diff = program_diff_report(
        program(memory=memory), program(memory=ProgramMemory(host_temporary_nbytes=2**20))
    )
    assert "host temporaries" in text(diff)


def test_unknown_memory_and_flops_are_not_zero():
    report = program(memory=ProgramMemory(), dot_flops=None)
    assert lines_with(report, "memory per device") == ["memory per device: unknown"]
    assert lines_with(report, "FLOPs") == ["matmul and convolution FLOPs: unknown"]
    partly = program(memory=ProgramMemory(temporary_nbytes=2**20))
    assert lines_with(partly, "memory per device")[0].count("unknown") == 3
    kernel = program(dot_flops=None, uncounted_flops=(UncountedFlops(reason="kernel", operation="fmha"),))
    assert lines_with(kernel, "FLOPs") == [
        "matmul and convolution FLOPs: unknown; kernel of fmha not counted"
    ]
    assert lines_with(program(memory=None), "memory") == ["memory per device: unknown"]


def test_values_in_memory_of_the_host_are_counted_and_marked():
    report = program(
        arguments=(leaf("a", "fsdp"),),
        outputs=(
            replace(
                leaf("outputs/0", "fsdp", asked=False), memory_kind="pinned_host", is_in_host_memory=True
            ),
            replace(leaf("outputs/1", "fsdp"), memory_kind="unpinned_host"),
        ),
    )
    assert lines_with(report, "in pinned_host: ") == ["in pinned_host: 1 output"]
    [row] = lines_with(report, "│ outputs/0")
    assert row.endswith("P('fsdp',) in pinned_host │")
    assert "unpinned_host" not in text(report)


def backward(saved=None, live=None):
    """Return the lines on what a program keeps for its backward pass."""
    report = program(memory=ProgramMemory(saved=saved, live_at_backward=live))
    found = text(report).split("memory per device: unknown")[1].strip("\n").splitlines()
    return [one for one in found if "backward" in one or one.startswith("  ")]


def test_bytes_on_all_devices_are_not_taken_for_those_of_one():
    lines = (BackwardLine(nbytes=2**20, global_nbytes=2**23), BackwardLine(nbytes=None, global_nbytes=2**22))
    saved = SavedForBackward(global_nbytes=12 * 2**20, lines=lines)
    assert backward(saved, LiveAtBackward(nbytes=2**20)) == [
        "saved for the backward pass by JAX: 12.0 MiB on all devices together",
        "  8.0 MiB  line unknown  1 array",
        "  4.0 MiB  line unknown  1 array",
        "live when the backward pass begins: 1.0 MiB per device (estimated from the",
        "  schedule)",
    ]


def test_what_is_unknown_is_said_with_its_reason():
    saved, live = SavedForBackward(reason="nested derivatives"), LiveAtBackward(reason="no names")
    assert backward(saved, live) == [
        "saved for the backward pass by JAX: unknown: nested derivatives",
        "live when the backward pass begins: unknown: no names",
    ]
    unknown = SavedForBackward(lines=(BackwardLine(nbytes=None),))
    assert backward(unknown) == [
        "saved for the backward pass by JAX: unknown",
        "  unknown  line unknown  1 array",
    ]


def test_without_a_trace_what_is_live_has_its_lines():
    live = LiveAtBackward(nbytes=2**20, lines=(BackwardLine(nbytes=2**20, count=2, is_in_loop=True),))
    assert backward(live=live) == [
        "live when the backward pass begins: 1.0 MiB per device (estimated from the",
        "  schedule)",
        "  1.0 MiB  line unknown  2 arrays, stacked by a loop",
    ]
    assert backward(SavedForBackward(nbytes=0, global_nbytes=0)) == [
        "saved for the backward pass by JAX: 0.0 B per device"
    ]
