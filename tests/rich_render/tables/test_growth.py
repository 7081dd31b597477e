"""Lines and tables on the growth of live arrays."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from jax_array_info import collect_reports, print_growth, to_text, track_arrays
from jax_array_info.engine import render
from jax_array_info.errors import UnsupportedValueError
from jax_array_info.reports import CollectedArrays, GrowthReport, Origin, OriginGrowth, SourceLine

pytestmark = pytest.mark.oldest_and_newest

ADA = Origin(file="/home/me/ada.py", line=88, function="update")
LOAD = Origin(file="data.py", line=7, function="load")
GIB = 2**30

STILL = OriginGrowth(
    origin=None, content="int8[4]", count=0, device_nbytes=(), freed_count=0, freed_device_nbytes=()
)
"""An allocation site without new and freed arrays."""


def site(**fields):
    """Return the growth of an allocation site."""
    return dataclasses.replace(STILL, **fields)


def rising(count_per_step, nbytes_per_step, **fields):
    """Return the growth of an allocation site whose arrays rose at every step."""
    rates = {"count_per_step": count_per_step, "nbytes_per_step": nbytes_per_step}
    return site(rose_every_step=True, **rates, **fields)


GREW = GrowthReport(
    platform="cpu",
    steps=100,
    origins=(
        rising(
            1.0,
            1.5 * GIB,
            origin=ADA,
            content="float32[402653184]",
            count=99,
            device_nbytes=((0, 99 * 3 * GIB // 2),),
        ),
        site(origin=LOAD, content="uint8[64,32]", freed_count=3, freed_device_nbytes=((1, 6144),)),
        site(
            content="int32[]",
            count=2,
            device_nbytes=((1, 8), (2, 8)),
            freed_count=1,
            freed_device_nbytes=((0, 4),),
        ),
    ),
    count_before=10,
    count=107,
    nbytes_before=((0, GIB), (1, 7), (2, 7), (3, 7)),
    nbytes=((0, 150 * GIB), (1, 7), (2, 7), (3, 0)),
    nbytes_source="profile",
    origins_known="known",
)


def test_rising_arrays_are_printed_before_new_and_freed_arrays():
    assert to_text(GREW).splitlines() == [
        "+1 array, +1.5 GiB (sum over 4 devices) per step, made at ada.py:88 update",
        "                    new and freed jax arrays after 100 steps                    ",
        "┏━━━━━┳━━━━━━━━━━━┳━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━┓",
        "┃ new ┃  new size ┃ freed ┃ freed size ┃ largest            ┃ made at          ┃",
        "┡━━━━━╇━━━━━━━━━━━╇━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━┩",
        "│  99 │ 148.5 GiB │       │            │ float32[402653184] │ ada.py:88 update │",
        "│     │           │     3 │    6.0 KiB │ uint8[64,32]       │ data.py:7 load   │",
        "│   2 │    16.0 B │     1 │      4.0 B │ int32[]            │ unknown          │",
        "└─────┴───────────┴───────┴────────────┴────────────────────┴──────────────────┘",
        "                Sizes are sums over the devices of this process.                ",
        "101 new arrays, 4 freed, 107 alive, 10 at the start",
        "CPU 0: 150.0 GiB, 149.0 GiB more than at the start",
        "CPU 1,2: 7.0 B each, same as at the start",
        "CPU 3: 0.0 B, 7.0 B less than at the start",
        "Shared buffers are counted once per array above, and once per device here.",
    ]
    alone = dataclasses.replace(
        GREW, origins=GREW.origins[:2], nbytes=((0, 150 * GIB), *GREW.nbytes_before[1:])
    )
    assert "Shared buffers" not in to_text(alone)


def test_rising_arrays_that_the_collector_freed_were_held_by_cycles():
    def first_line(count=0):
        freed = CollectedArrays(origin=ADA, content="int8[4]", count=3, device_nbytes=((0, 12),))
        rose = rising(1.0, 4.0, origin=ADA, count=count)
        report = dataclasses.replace(GREW, origins=(rose,), collected=True, freed_by_collection=(freed,))
        return to_text(report, width=120).splitlines()[0].partition("update")[2]

    assert first_line() == ", held by reference cycles"
    assert first_line(count=1) == ""


def test_the_referrer_of_rising_arrays_is_in_their_line():
    def words(*holders, others=0, garbage=0, state="complete"):
        found = {"holders": holders, "other_holder_count": others, "garbage_count": garbage}
        rose = rising(1.0, 4.0, origin=ADA, count=3, **found)
        text = to_text(dataclasses.replace(GREW, origins=(rose,), holders=state), width=200)
        lines = text.splitlines()
        return lines[0].partition("update")[2], lines[1].strip()

    losses = [f"train.losses[{step}]" for step in range(100)]
    title = "new and freed jax arrays after 100 steps"
    assert words(*losses) == (", held by train.losses[0:100]", title)
    assert words(*losses, "loss") == (", held by train.losses[0:100] and 1 more", title)
    assert words(*losses, others=1) == (", held by train.losses[0:100] and 1 more", title)
    assert words() == (", no Python referrer found (held by JAX or C++)", title)
    assert words(garbage=3) == (", garbage in reference cycles: gc.collect() frees them", title)
    mixed = ", held by train.losses[0:100], 1 garbage in a reference cycle: gc.collect() frees it"
    assert words(*losses, garbage=1) == (mixed, title)
    assert words(state="not asked") == ("", title)
    found, note = words(state="incomplete")
    assert found == ", no Python referrer found (search incomplete)"
    assert note.startswith("The search for referrers was incomplete, so there may be more.")


def test_on_one_device_nothing_is_summed_and_no_device_is_the_fullest():
    one_device = to_text(dataclasses.replace(GREW, nbytes_before=((0, GIB),), nbytes=((0, 150 * GIB),)))
    assert "sum over" not in one_device
    assert "Sizes are" not in one_device
    without_rises = to_text(dataclasses.replace(GREW, origins=GREW.origins[1:]))
    assert "Sizes are sums over the devices of this process." in without_rises
    assert "sum over" not in without_rises


def test_arrays_in_host_memory_have_lines_of_their_own():
    report = dataclasses.replace(GREW, host_nbytes_before=((0, 2048),), host_nbytes=((0, 1024), (1, 1024)))
    lines = [line for line in to_text(report).splitlines() if "in host memory" in line]
    assert lines == [
        "CPU 0: 1.0 KiB in host memory, 1.0 KiB less than at the start",
        "CPU 1: 1.0 KiB in host memory, 1.0 KiB more than at the start",
    ]


@pytest.mark.parametrize(
    ("count", "nbytes", "origin", "words"),
    [
        (2.25, 0.0, ADA, "+2.2 arrays per step, made at ada.py:88 update"),
        (0.0, 4096.0, ADA, "+4.0 KiB (sum over 4 devices) per step, made at ada.py:88 update"),
        (-1.0, 10.0, ADA, "-1 array, +10.0 B (sum over 4 devices) per step, made at ada.py:88 update"),
        (
            1.0,
            16.0,
            None,
            "+1 array, +16.0 B (sum over 4 devices) per step, float32[4], allocation site unknown",
        ),
    ],
)
def test_a_rise_is_printed_in_arrays_and_bytes(count, nbytes, origin, words):
    rose = rising(count, nbytes, origin=origin, content="float32[4]")
    assert to_text(dataclasses.replace(GREW, origins=(rose,)), width=100).splitlines()[0] == words


def test_arrays_that_rose_at_some_steps_follow_arrays_that_rose_at_every_step():
    at_times = site(
        origin=ADA,
        count=4,
        device_nbytes=((0, 65536),),
        rose_steps=4,
        rose_count=4,
        rose_nbytes=65536,
        rose_content="float32[64,64]",
    )
    unknown = site(rose_steps=2, rose_count=2, rose_nbytes=8, rose_content="int8[4]")
    always = rising(1.0, 4.0, origin=LOAD, content=None, rose_content="float32[]")
    report = dataclasses.replace(GREW, origins=(always, at_times, unknown))
    assert to_text(report, width=120).splitlines()[:3] == [
        "+1 array, +4.0 B (sum over 4 devices) per step, made at data.py:7 load: float32[]",
        "+4 arrays, +64.0 KiB (sum over 4 devices) in 4 of 100 steps, made at ada.py:88 update: float32[64,64]",
        "+2 arrays, +8.0 B (sum over 4 devices) in 2 of 100 steps, int8[4], allocation site unknown",
    ]
    assert text_of(report, max_rows=0).splitlines()[:2] == [
        "+1 array, +4.0 B (sum over 4 devices) per step, made at 1 more line",
        "+6 arrays, +64.0 KiB (sum over 4 devices) in some of 100 steps, made at 2 more lines",
    ]


def test_what_rose_no_more_is_not_the_answer():
    full, other = (
        dataclasses.replace(
            GREW.origins[1],
            rose_steps=8,
            rose_count=8,
            rose_nbytes=2 * 2**20,
            stopped_at=step,
            rose_content="int8[4]",
        )
        for step in (9, 30)
    )
    lines = text_of(dataclasses.replace(GREW, origins=(full, other)), max_rows=1, width=120).splitlines()
    amount = "+8 arrays, +2.0 MiB (sum over 4 devices)"
    assert lines[:3] == [
        "no steady growth in 100 steps",
        f"no growth since step 9, {amount} until then, made at data.py:7 load: int8[4]",
        f"no growth any more: {amount} before, made at 1 more line",
    ]
    leak = dataclasses.replace(full, stopped_at=None)
    assert to_text(dataclasses.replace(GREW, origins=(leak, full)), width=120).splitlines()[:2] == [
        f"{amount} in 8 of 100 steps, made at data.py:7 load: int8[4]",
        f"no growth since step 9, {amount} until then, made at data.py:7 load: int8[4]",
    ]


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (1, "1 view not counted: it shares the memory of other arrays"),
        (16, "16 views not counted: they share the memory of other arrays"),
    ],
)
def test_the_number_of_views_is_printed(count, words):
    assert words in to_text(dataclasses.replace(GREW, view_count=count)).splitlines()


def test_without_new_or_freed_arrays_there_is_no_table():
    same = dataclasses.replace(GREW, origins=(), count=10, nbytes=GREW.nbytes_before)
    assert to_text(same).splitlines()[:3] == [
        "no steady growth in 100 steps",
        "0 new arrays, 0 freed, 10 alive, 10 at the start",
        "CPU 0: 1.0 GiB, same as at the start",
    ]


@pytest.mark.parametrize(("steps", "after"), [(0, ""), (1, " after 1 step")])
def test_without_a_trend_the_call_that_makes_one_is_named_once(steps, after):
    text = to_text(dataclasses.replace(GREW, steps=steps, origins=GREW.origins[1:]), width=120)
    first = f"growth per step: unknown{after}; call .step() on the tracker at the end of each step"
    assert text.splitlines()[0] == first
    assert text.count("step()") == 1
    assert ".step()" not in to_text(GREW)


def test_the_line_that_called_an_allocation_site_is_named():
    caller = SourceLine(file="train.py", line=12, function="train")
    made = dataclasses.replace(ADA, callers=(caller,))
    grew = dataclasses.replace(GREW.origins[0], origin=made)
    twice = dataclasses.replace(grew, caller_count=3)
    freed = CollectedArrays(origin=made, content="int8[4]", count=1, device_nbytes=(), caller_count=2)
    report = dataclasses.replace(GREW, origins=(grew, twice), collected=True, freed_by_collection=(freed,))
    lines = to_text(report, width=140).splitlines()
    assert lines[:2] == [
        "+1 array, +1.5 GiB (sum over 4 devices) per step, made at ada.py:88 update from train.py:12 train",
        "+1 array, +1.5 GiB (sum over 4 devices) per step, made at ada.py:88 update from train.py:12 train and 2 more callers",
    ]
    assert lines[-1].endswith("made at ada.py:88 update from train.py:12 train and 1 more caller")


def test_collected_arrays_are_printed_with_their_allocation_site():
    freed = (
        CollectedArrays(origin=ADA, content="float32[1024]", count=2, device_nbytes=((0, 8192),)),
        CollectedArrays(origin=None, content="int8[4]", count=1, device_nbytes=((0, 4),)),
    )
    report = dataclasses.replace(GREW, collected=True, freed_by_collection=freed)
    assert to_text(report, width=120).splitlines()[-3:] == [
        "gc.collect() freed 3 arrays that reference counting had not:",
        "  2 arrays, 8.0 KiB, float32[1024], made at ada.py:88 update",
        "  1 array, 4.0 B, int8[4]",
    ]
    nothing = dataclasses.replace(GREW, collected=True)
    assert to_text(nothing).endswith("gc.collect() freed no arrays")
    assert "gc.collect()" not in to_text(GREW)


def text_of(report, width=100, **options):
    return render.text_of(render.render(report, width=width, **options), width=width)


def test_past_max_rows_one_row_has_the_sum_of_the_rest():
    elsewhere = site(count=1, device_nbytes=((1, 5), (3, 9)), freed_count=2, freed_device_nbytes=((1, 6144),))
    report = dataclasses.replace(GREW, origins=(*GREW.origins, elsewhere))
    assert "│   3 │    30.0 B │     6 │   12.0 KiB │ 3 more  " in text_of(report, max_rows=1)
    with pytest.raises(ValueError, match="max_rows must be at least 0, or None for all rows, got -1"):
        text_of(report, max_rows=-1)


def test_past_max_rows_rising_and_collected_arrays_have_one_line_each():
    rose = [
        rising(1.0, 1024.0 * line, origin=Origin(file="a.py", line=line, function="f"), content="int8[1024]")
        for line in (3, 2, 1)
    ]
    freed = tuple(
        CollectedArrays(origin=None, content="int8[4]", count=2, device_nbytes=((device, 4), (7, 4)))
        for device in range(3)
    )
    report = dataclasses.replace(GREW, origins=tuple(rose), collected=True, freed_by_collection=freed)
    lines = text_of(report, max_rows=1).splitlines()
    assert lines[:2] == [
        "+1 array, +3.0 KiB (sum over 4 devices) per step, made at a.py:3 f",
        "+2 arrays, +3.0 KiB (sum over 4 devices) per step, made at 2 more lines",
    ]
    assert lines[-4:-2] == ["  2 arrays, 8.0 B, int8[4]", "  2 more: 4 arrays, 16.0 B"]
    assert lines[-2:] == [
        "Sizes are sums over the devices of this process.",
        "4 rows are left out: max_rows=None shows all",
    ]
    assert "more" not in text_of(report, max_rows=None).partition("alive")[2].replace("more than", "")


def test_without_a_table_a_footer_explains_the_sizes_of_collected_arrays():
    freed = (CollectedArrays(origin=None, content="int8[4]", count=1, device_nbytes=((0, 4),)),)
    report = dataclasses.replace(GREW, origins=(), collected=True, freed_by_collection=freed)
    assert to_text(report).splitlines()[-1] == "Sizes are sums over the devices of this process."
    one_device = dataclasses.replace(report, nbytes_before=((0, GIB),), nbytes=((0, GIB),))
    assert "Sizes" not in to_text(one_device)


def test_at_40_columns_all_text_is_kept():
    text = to_text(GREW, width=40)
    assert max(map(len, text.splitlines())) <= 40
    assert "…" not in text
    rows = [line[1:-1].split("│") for line in text.splitlines() if line.startswith("│")]
    columns = ["".join(cell.strip() for cell in column) for column in zip(*rows, strict=True)]
    assert columns[:2] == ["99148.5 GiB216.0 B", "36.0 KiB14.0 B"]
    words = "float32[402653184]ada.py:88 updateuint8[64,32]data.py:7 loadint32[]unknown"
    assert columns[2].replace(" ", "") == words.replace(" ", "")


@pytest.mark.parametrize("growth", [None, track_arrays, "growth"])
def test_a_value_other_than_a_tracker_raises(growth):
    with pytest.raises(UnsupportedValueError, match=r"expected a tracker from track_arrays\(\), got <class"):
        print_growth(growth)


def test_a_report_is_printed_with_what_it_has():
    with pytest.raises(TypeError, match="a GrowthReport is printed as it is: remove collect=, referrers="):
        print_growth(GREW, collect=True, referrers=True)


def test_without_allocation_sites_there_is_a_footer_and_no_column():
    text = to_text(dataclasses.replace(GREW, origins_known="not told by this jax"))
    assert "Allocation sites are not available in this version of JAX." in " ".join(text.split())
    assert "made at" not in text.partition("\n")[2]


def test_the_verb_prints_what_to_text_returns_and_can_be_collected(capsys, no_arrays):
    with track_arrays() as growth:
        kept = []
        for _ in range(3):
            kept.append(jnp.zeros(256))
            growth.step()
        print_growth(growth)
    text = capsys.readouterr().out
    assert text == to_text(growth.report()) + "\n"
    total = f" (sum over {len(jax.devices())} devices)" if len(jax.devices()) > 1 else ""
    assert text.startswith(f"+1 array, +1.0 KiB{total} per step, made at test_growth.py:")
    with collect_reports() as reports:
        print_growth(growth, collect=True, referrers=True, max_seconds=None)
    assert (reports[0].collected, reports[0].holders) == (True, "complete")
    assert capsys.readouterr().out == ""
