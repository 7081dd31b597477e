"""Rows of tables add up to their total, or the total says what it is; ``each`` is written where one is meant."""

import re
from dataclasses import replace

import jax
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jax.sharding import SingleDeviceSharding

from jax_array_info.engine.render import on_console, render, text_of, to_text
from jax_array_info.reports import Finding, FindingLeaf, ProgramMemory
from jax_array_info_core import reshard_report
from jax_array_info_core.pages.blocks import cut
from jax_array_info_core.pages.findings import finding_blocks
from jax_array_info_core.pages.program_memory import memory_parts
from jax_array_info_core.quantities import parse_bytes
from tests.rich_render.tables.live_reports import group, report_of
from tests.sample_programs import SCAN, STEP, program

pytestmark = pytest.mark.oldest_and_newest

SIZE = re.compile(r"(?P<size>[0-9.]+ [KMG]?i?B)(?P<each> each)?")
TIMES = re.compile(r"×(?P<count>[0-9]+)")


def row_bytes(text):
    """Return the bytes of a row: those of one times their number if it says ``each``."""
    size, times = SIZE.search(text), TIMES.search(text)
    if size is None:
        return 0
    assert times or not size["each"], text
    return parse_bytes(size["size"]) * (int(times["count"]) if size["each"] else 1)


# Sizes are whole KiB, which are printed exactly.
GROUPS = st.lists(
    st.tuples(st.integers(1, 30), st.integers(1, 5), st.sampled_from([(0,), (1,), (0, 1)]), st.booleans()),
    min_size=1,
    max_size=5,
)


@settings(max_examples=30)
@given(GROUPS, st.sampled_from(["shape", "dtype", "device", "sharding"]), st.sampled_from([None, 0, 2]))
def test_rows_of_live_arrays_add_up_or_the_total_is_that_of_the_fullest_device(groups, by, max_rows):
    made, held = [], {0: 0, 1: 0}
    for length, count, devices, is_scalar in groups:
        shape, nbytes = ((), 1024) if is_scalar else ((256 * length,), 1024 * length)
        counts = tuple((device, count) for device in devices)
        made.append(replace(group(shape, nbytes, count, devices=len(devices)), device_counts=counts))
        for device in devices:
            held[device] += nbytes * count
    report = report_of(*made, device_nbytes=tuple(held.items()))
    text = text_of(render(report, by=by, max_rows=max_rows))
    lines = [line for line in text.splitlines() if line.startswith("│")]
    total = next(line for line in reversed(lines) if SIZE.search(line))
    rows = [line for line in lines if SIZE.search(line.split("│")[1]) and line is not total]
    found = sum(row_bytes(line.split("│")[1] + (TIMES.search(line) or [""])[0]) for line in rows)
    assert row_bytes(total) == max(held.values())
    assert (found == row_bytes(total)) == ("fullest device" not in total)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("program memory", ["  3.0 KiB  a ×3", "  2.0 KiB  b", "  ×n: n alike; the bytes are their sum"]),
        ("different arrays", ["  3.0 KiB  a ×3", "  2.0 KiB  b", "  ×n: n alike; the bytes are their sum"]),
        ("full replication", ["  1.0 KiB each  a ×3", "       2.0 KiB  b"]),
    ],
)
def test_alike_leaves_of_a_finding_have_their_sum_or_each(kind, expected):
    leaves = (
        FindingLeaf(path="b", shape=(), dtype="", nbytes=2048),
        FindingLeaf(path="a", shape=(), dtype="", nbytes=1024, count=3),
    )
    finding = Finding(kind=kind, problem="Problem.", remedy="", leaves=leaves)
    page = on_console(cut(finding_blocks([finding], total=0), None))
    assert [line.rstrip() for line in text_of(page).splitlines()][-len(expected) :] == expected
    assert str(leaves[1]) == "a ×3: 1.0 KiB each"
    assert str(leaves[0]) == "b: 2.0 KiB"


@pytest.mark.needs_devices(8)
@pytest.mark.parametrize(
    ("devices", "words"), [((1, 2), "all leaves, fullest device"), ((1, 1), "all leaves ")]
)
def test_the_total_of_a_resharding_says_if_leaves_go_to_different_devices(devices, words):
    tree = {name: jax.device_put(jax.numpy.ones(1024), jax.devices()[0]) for name in "ab"}
    targets = {
        name: SingleDeviceSharding(jax.devices()[device]) for name, device in zip("ab", devices, strict=True)
    }
    assert words in to_text(reshard_report(tree, targets), width=120)


PART = re.compile(r"([-+]) ([a-zA-Z, ]+?) ([0-9.]+ [KMG]?i?B|unknown)")


def memory_line(memory, platform="tpu"):
    """Return the bytes and the parts in the line of a memory; None as bytes that are unknown."""
    text = " ".join((to_text(program(memory=memory, platform=platform))).split())
    found = re.search(
        r"(?<!host )memory per device: (?:about )?([0-9.]+ [KMG]?i?B) (?:at the peak \(|= )([^()]*)", text
    )
    parts = [
        (name, None if size == "unknown" else parse_bytes(size) * (-1 if sign == "-" else 1))
        for sign, name, size in PART.findall(f"+ {found[2]}")
    ]
    return parse_bytes(found[1]), parts


# Sums of whole KiB below 1 MiB are printed exactly.
BYTES = st.none() | st.integers(0, 200).map(lambda size: 1024 * size)


@settings(max_examples=100)
@given(
    st.builds(
        ProgramMemory,
        argument_nbytes=BYTES,
        output_nbytes=BYTES,
        alias_nbytes=BYTES,
        temporary_nbytes=BYTES,
        code_nbytes=BYTES,
        peak_nbytes=BYTES,
    ),
    st.sampled_from(["cpu", "gpu", "tpu"]),
)
def test_the_parts_of_the_memory_of_a_program_add_up(memory, platform):
    assume(memory.needed_nbytes is not None)
    total, parts = memory_line(memory, platform)
    assert total == memory.needed_nbytes
    if all(nbytes is not None for _, nbytes in parts):
        assert sum(nbytes for _, nbytes in parts) == total
    else:
        assert None in (
            memory.argument_nbytes,
            memory.output_nbytes,
            memory.alias_nbytes,
            memory.temporary_nbytes,
        )


@pytest.mark.parametrize("report", [STEP, SCAN], ids=["sum", "peak"])
def test_the_parts_of_the_memory_of_stored_reports_add_up(report):
    memory = report.memory
    parts = memory_parts(memory, report.platform)
    assert sum(nbytes for nbytes, _ in parts) == memory.needed_nbytes


def test_what_is_left_of_a_peak_is_named():
    memory = ProgramMemory(
        argument_nbytes=24 * 2**20, output_nbytes=24 * 2**20, alias_nbytes=24 * 2**20, peak_nbytes=42 * 2**20
    )
    mib = 2**20
    assert memory_line(memory) == (
        42 * mib,
        [
            ("arguments", 24 * mib),
            ("outputs", 24 * mib),
            ("temporaries, VMEM and constants", 18 * mib),
            ("reused by donation", -24 * mib),
        ],
    )
    assert memory_line(memory, "gpu")[1][2][0] == "temporaries and constants"
    less = replace(memory, peak_nbytes=20 * mib)
    assert memory_line(less)[1][2] == ("not live at the peak", -4 * mib)
