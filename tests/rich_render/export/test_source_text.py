"""Source of a program in pictures: lines with notes, as printed text."""

from dataclasses import replace

import pytest

from jax_array_info import config, to_html, to_svg
from jax_array_info.engine.render import text_of
from jax_array_info.export.program_lines import program_margin
from jax_array_info.export.source_text import source_text as drawn_source
from jax_array_info_core.reports import ProgramMemory, SourceLine, Temporary
from tests.rich_render.export.test_program_html import at_lines, moved
from tests.rich_render.svg.reading import words
from tests.sample_programs import STEP, gather, line, program

pytestmark = pytest.mark.oldest_and_newest

SOURCE = '''
lines that move or keep bytes, per device and call

train.py
⋮ 6 lines
 7  def loss(params, x):
 8      """Return the loss."""
 9      h = jax.nn.gelu(x @ params["wi"])
        │ 512.0 KiB  all-gather over fsdp, params/wi
        │   1.0 MiB  all-reduce over fsdp, backward
        │ 512.0 KiB  all-reduce over data, backward
        │   3.0 MiB  live at once: float32[8,64,512] ×3
10      return jnp.mean((h @ params["wo"]) ** 2)
        │ 256.0 KiB  all-gather over fsdp, params/wo
        │ 512.0 KiB  all-reduce over tensor, forward
        │ 512.0 KiB  live at once: float32[256,512]
⋮ 4 lines'''


def source_text(report, width=80, **options):
    """Return the source of a report as text."""
    shown = text_of(drawn_source(program_margin(report), **options), width=width)
    return "\n".join(line.rstrip() for line in shown.split("\n"))


def test_each_line_has_its_notes_below_it(train):
    assert source_text(moved(STEP, train)) == SOURCE


def test_long_code_and_notes_are_wrapped_below_their_begin(train):
    shown = source_text(moved(STEP, train), width=31).split("\n")
    assert max(map(len, shown)) <= 31
    start = shown.index(" 9      h = jax.nn.gelu(x @")
    assert shown[start + 2 : start + 5] == [
        "        │ 512.0 KiB  all-gather",
        "        │            over fsdp,",
        "        │            params/wi",
    ]


def test_source_stands_between_the_summary_and_the_tables_of_a_picture(train):
    shown = words(to_svg(moved(STEP, train)))
    summary = next(place for place, line in enumerate(shown) if line.startswith("sent per device and call"))
    assert summary < shown.index("train.py") < shown.index("collectives")


def test_lines_without_source_stand_with_their_numbers():
    assert source_text(at_lines("/gone/away.py", 7, 3)).split("\n")[3:] == [
        "away.py  source not available",
        "3",
        "   │ 341.3 KiB  all-gather over fsdp",
        "7",
        "   │ 146.3 KiB  all-gather over fsdp",
    ]


def test_max_rows_keeps_the_costliest_lines(train):
    shown = source_text(at_lines(train, 3, 9, 14), max_rows=1)
    assert "1.0 MiB" not in shown.replace("341.3", "")
    assert shown.count("│") == 1
    assert shown.endswith("and 2 more lines")


def test_a_program_whose_lines_are_unknown_has_no_source():
    assert source_text(program()) == ""


def test_hostile_source_is_escaped(tmp_path):
    path = tmp_path / "hostile.py"
    path.write_text("x = '\x1b[31m[red]'\n", "utf-8")
    assert "1  x = '\\x1b[31m[red]'" in source_text(at_lines(path, 1)).split("\n")


def test_callers_are_named_as_in_tables(train, monkeypatch):
    origin = replace(line(9, file=str(train)), callers=(SourceLine(file="a.py", line=3, function="step"),))
    report = program(replace(gather("w", 9), origin=origin))
    assert "from a.py:3" not in source_text(report) + to_html(report)
    monkeypatch.setattr(config, "callers", 2)
    assert "all-gather over fsdp, w, from a.py:3 step" in source_text(report)


def test_counters_of_loops_have_no_notes(train):
    def value(shape, nbytes, at):
        return Temporary(shape=shape, dtype="float32", nbytes=nbytes, origin=line(at, file=str(train)))

    memory = ProgramMemory(temporaries=(value((512,), 2048, 9), value((), 4, 9)))
    assert "float32[]" in source_text(program(memory=memory))
    memory = ProgramMemory(temporaries=(value((2048,), 8192, 9), value((), 4, 9)))
    assert "float32[]" not in source_text(program(memory=memory))
