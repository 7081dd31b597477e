"""Text for programs whose collectives cross slices or hosts."""

import pytest

from jax_array_info.export.margins import _collective_words as collective_words
from jax_array_info_core.layouts import MeshAxes
from jax_array_info_core.programs.collectives import totals_of
from jax_array_info_core.reports import Collective, ProgramReport
from tests.rich_render.tables.test_program import text
from tests.sample_programs import line

pytestmark = pytest.mark.oldest_and_newest


def step(*links, **bandwidths):
    """Return the report on a program with a collective over each link."""
    rows = tuple(
        Collective(
            kind=kind,
            axes=(axis,),
            group_size=2,
            dtype="float32",
            shape=(1024, 1024),
            sent_nbytes=nbytes,
            origin=line(9),
            link=link,
        )
        for link, (kind, axis, nbytes) in zip(
            links, [("all-reduce", "data", 100663296), ("all-gather", "fsdp", 1288490189)], strict=False
        )
    )
    return ProgramReport(
        name="step",
        platform="tpu",
        topology="2*v5p:2x2x1",
        device_count=8,
        mesh=MeshAxes(("data", "fsdp"), (2, 4)),
        collectives=rows,
        sent=totals_of(rows, bandwidths),
    )


def test_the_bytes_over_links_come_first_and_each_collective_has_its_link():
    expected = """
DCN 96.0 MiB (at least 16.1 ms), ICI 1.2 GiB per call; no findings
step, 2*v5p:2x2x1, 8 TPU devices: data=2, fsdp=4
memory per device: unknown
sent per device and call: 1.3 GiB
   1.2 GiB  all-gather over fsdp  train.py:9 loss
  96.0 MiB  all-reduce over data  train.py:9 loss
"""
    shown = text(step("dcn", "ici", dcn=6_250_000_000))
    assert shown.startswith(expected.lstrip("\n"))
    table = """
┏━━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━┳━━━━━━┳━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━┓
┃    total ┃ collective ┃ over ┃ link ┃ array              ┃ line            ┃
┡━━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━╇━━━━━━╇━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━┩
│ 96.0 MiB │ all-reduce │ data │ DCN  │ float32[1024,1024] │ train.py:9 loss │
│  1.2 GiB │ all-gather │ fsdp │ ICI  │ float32[1024,1024] │ train.py:9 loss │
└──────────┴────────────┴──────┴──────┴────────────────────┴─────────────────┘
"""
    assert table.strip() in shown


def test_links_that_tell_nothing_are_not_shown():
    for link in ("ici", "same-host", None):
        shown = text(step(link))
        assert shown.startswith("no findings\nstep, ")
        assert "by " not in shown
        assert "link" not in shown


def test_the_notes_of_a_line_have_slow_links():
    assert list(collective_words(step("dcn").collectives[0], None)) == ["all-reduce over data", "by DCN"]
    assert list(collective_words(step("ici").collectives[0], None)) == ["all-reduce over data"]
