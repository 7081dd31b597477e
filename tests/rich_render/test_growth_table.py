import dataclasses

import jax.numpy as jnp
import pytest

from jax_array_info import (
    CollectedArrays,
    GrowthReport,
    Origin,
    OriginGrowth,
    collect_reports,
    config,
    print_growth,
    to_text,
    track_arrays,
)
from jax_array_info.growth_table import growth_table

ADA = Origin("/home/me/ada.py", 88, "update")
LOAD = Origin("data.py", 7, "load")
GIB = 2**30

GREW = GrowthReport(
    "cpu",
    100,
    (
        OriginGrowth(ADA, "float32[402653184]", 99, 99 * 3 * GIB // 2, 0, 0, 1.0, 1.5 * GIB, True),
        OriginGrowth(LOAD, "uint8[64,32]", 0, 0, 3, 6144, 0.0, 0.0, False),
        OriginGrowth(None, "int32[]", 2, 8, 1, 4, 0.0, 0.0, False),
    ),
    10,
    107,
    ((0, GIB), (1, 7), (2, 7), (3, 7)),
    ((0, 150 * GIB), (1, 7), (2, 7), (3, 0)),
    "profile",
    "known",
)


def test_first_comes_what_rose_at_every_step_then_what_is_new_and_freed():
    assert to_text(GREW).splitlines() == [
        "+1 array, +1.5 GiB per step, made at ada.py:88 update",
        "                  new and freed jax arrays after 100 steps                   ",
        "┏━━━━━┳━━━━━━━━━━━┳━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━┓",
        "┃ new ┃      size ┃ freed ┃    size ┃ largest            ┃ made at          ┃",
        "┡━━━━━╇━━━━━━━━━━━╇━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━┩",
        "│  99 │ 148.5 GiB │       │         │ float32[402653184] │ ada.py:88 update │",
        "│     │           │     3 │ 6.0 KiB │ uint8[64,32]       │ data.py:7 load   │",
        "│   2 │     8.0 B │     1 │   4.0 B │ int32[]            │ unknown          │",
        "└─────┴───────────┴───────┴─────────┴────────────────────┴──────────────────┘",
        "101 arrays new, 4 arrays freed, 107 alive, 10 at the start",
        "CPU 0: 150.0 GiB, 149.0 GiB more than at the start",
        "CPU 1,2: 7.0 B, as at the start",
        "CPU 3: 0.0 B, 7.0 B less than at the start",
    ]


@pytest.mark.parametrize(
    ("count", "nbytes", "origin", "words"),
    [
        (2.25, 0.0, ADA, "+2.2 arrays per step, made at ada.py:88 update"),
        (0.0, 4096.0, ADA, "+4.0 KiB per step, made at ada.py:88 update"),
        (-1.0, 10.0, ADA, "-1 array, +10.0 B per step, made at ada.py:88 update"),
        (1.0, 16.0, None, "+1 array, +16.0 B per step, float32[4] of unknown origin"),
    ],
)
def test_a_rise_is_told_in_arrays_and_bytes(count, nbytes, origin, words):
    rose = OriginGrowth(origin, "float32[4]", 0, 0, 0, 0, count, nbytes, True)
    assert to_text(dataclasses.replace(GREW, origins=(rose,))).splitlines()[0] == words


def test_nothing_new_is_no_table():
    same = dataclasses.replace(GREW, origins=(), count=10, nbytes=GREW.nbytes_before)
    assert to_text(same).splitlines()[:2] == [
        "0 arrays new, 0 arrays freed, 10 alive, 10 at the start",
        "CPU 0: 1.0 GiB, as at the start",
    ]


def test_what_the_collection_freed_is_told_with_the_cycle():
    freed = (
        CollectedArrays(ADA, "float32[1024]", 2, 8192, "Node.me → Node"),
        CollectedArrays(None, "int8[4]", 1, 4, None),
    )
    report = dataclasses.replace(GREW, collected=True, freed_by_collection=freed)
    assert to_text(report, width=120).splitlines()[-3:] == [
        "gc.collect() was run; only that freed 3 arrays:",
        "  2 arrays, 8.0 KiB, float32[1024], made at ada.py:88 update, in the reference cycle Node.me → Node",
        "  1 array, 4.0 B, int8[4]",
    ]
    nothing = dataclasses.replace(GREW, collected=True)
    assert to_text(nothing).endswith("gc.collect() was run; it freed no array")
    assert "gc.collect()" not in to_text(GREW)


def test_past_max_rows_the_rest_is_one_row():
    from rich.console import Console

    console = Console(width=80)
    with console.capture() as capture:
        console.print(growth_table(GREW, max_rows=1))
    assert "│   2 │           │     4 │      │ 2 more             │                  │" in capture.get()
    with pytest.raises(ValueError, match="max_rows is a number of rows, or None for all; got -1"):
        growth_table(GREW, max_rows=-1)


def test_a_jax_that_does_not_tell_origins_is_said():
    text = to_text(dataclasses.replace(GREW, origins_known="not told by this jax"))
    assert "this jax does not tell who made an array" in " ".join(text.split())
    assert "made at" not in text.partition("\n")[2]


def test_text_of_others_is_printed_as_written_in_what_the_console_has():
    from io import StringIO

    from rich.console import Console

    cycle = CollectedArrays(Origin("a[red].py", 1, "größe\x1b[31m"), "int8[4]", 1, 4, "[/oops].me → ?")
    console = Console(file=StringIO(), width=200)
    console.print(
        growth_table(
            dataclasses.replace(GREW, collected=True, freed_by_collection=(cycle,)), encoding="ascii"
        ),
        highlight=False,
    )
    said = console.file.getvalue().splitlines()[-1]
    assert said.endswith(
        r"int8[4], made at a[red].py:1 gr\xf6\xdfe\x1b[31m, in the reference cycle [/oops].me \u2192 ?"
    )


def test_what_is_printed_is_what_to_text_returns_and_may_be_gathered(capsys, no_arrays):
    with track_arrays() as growth:
        kept = []
        for _ in range(3):
            kept.append(jnp.zeros(256))
            growth.step()
        print_growth(growth)
    text = capsys.readouterr().out
    assert text == to_text(growth.report()) + "\n"
    assert text.startswith("+1 array, +1.0 KiB per step, made at test_growth_table.py:")
    with collect_reports() as reports:
        print_growth(growth, collect=True)
    assert reports[0].collected
    assert capsys.readouterr().out == ""


def test_who_shall_not_print_does_not(capsys):
    with track_arrays() as growth:
        pass
    config.process = 1
    try:
        print_growth(growth)
    finally:
        config.process = "all"
    assert capsys.readouterr() == ("", "")
    print_growth(growth)
    assert "0 arrays new" in capsys.readouterr().out
