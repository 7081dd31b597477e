"""Rows of tables add up to their total, or the total says what it is; ``each`` is written where one is meant."""

import re
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jax_array_info.engine.render import render, text_of, to_text
from jax_array_info.reports import ProgramMemory
from jax_array_info_core.base.quantities import parse_bytes
from jax_array_info_core.facts.pages.program_parts import memory_parts
from tests.rich_render.tables.live_reports import group, report_of
from tests.sample_programs import SCAN, STEP, program

pytestmark = pytest.mark.newest

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


PART = re.compile(r"([-+]) ([a-zA-Z, ]+?) ([0-9.]+ [KMG]?i?B|unknown)")


def memory_line(memory, platform="tpu"):
    """Return the bytes and the parts in the line of a memory; None as bytes that are unknown."""
    text = " ".join((to_text(program(memory=memory, platform=platform))).split())
    found = re.search(
        r"(?<!host )memory per device: (?:about )?([0-9.]+ [KMG]?i?B) (?:at the peak \(|of HBM = |= )([^()]*)",
        text,
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
    parts = memory_parts(memory)
    assert sum(nbytes for nbytes, _ in parts) == memory.needed_nbytes
