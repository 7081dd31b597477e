"""Source of a program that moves or keeps bytes, in HTML and as text. Stored pages have it without the files."""

import linecache
import os
from dataclasses import replace

import pytest

from jax_array_info import config, to_html, to_svg
from jax_array_info.engine.render import text_of
from jax_array_info.export import document, source_lines
from jax_array_info.export.source_text import program_margin
from jax_array_info.export.source_text import source_text as drawn_source
from jax_array_info_core.programs.sent_totals import totals_of
from jax_array_info_core.reports import ProgramMemory, SourceLine, Temporary
from tests.rich_render.svg.reading import parsed, words
from tests.sample_programs import STEP, gather, line, program

pytestmark = pytest.mark.newest

TRAIN = '''"""A model."""

import jax
import jax.numpy as jnp


def loss(params, x):
    """Return the loss."""
    h = jax.nn.gelu(x @ params["wi"])
    return jnp.mean((h @ params["wo"]) ** 2)


def step(params, x):  # <script>alert("&amp;")</script>
    return jax.grad(loss)(params, x)
'''


def moved(report, file):
    """Return a report whose lines are in another file."""

    def at(part):
        return part if part.origin is None else replace(part, origin=replace(part.origin, file=str(file)))

    memory = report.memory
    if memory is not None:
        memory = replace(memory, temporaries=tuple(map(at, memory.temporaries)))
    collectives = tuple(map(at, report.collectives))
    return replace(
        report,
        collectives=collectives,
        sent=totals_of(collectives),
        constraints=tuple(map(at, report.constraints or ())),
        rematerializations=tuple(map(at, report.rematerializations)),
        memory=memory,
    )


def at_lines(file, *numbers, **fields):
    """Return a report with an all-gather on each line of a file."""
    return moved(program(*(gather(None, number, 2**20 // number) for number in numbers), **fields), file)


def rows(html):
    """Return the number, the code and the notes of each line of source."""
    found = []
    for element in parsed(f"<div>{html}</div>").iter("div"):
        if "flex-wrap" in element.get("style", ""):
            code, *notes = element
            number, _, text = "".join(code.itertext()).strip().partition("  ")
            if number.isdigit():  # an argument has none
                words = ["".join(note.itertext()) for part in notes for note in part]
                found.append((int(number), text, words))
    return found


def links(html):
    """Return the text of each link with the target's id."""
    return [(link.text, link.get("href")) for link in parsed(f"<div>{html}</div>").iter("a")]


def test_source_is_escaped(train):
    html = to_html(at_lines(train, 14))
    assert "&lt;script&gt;alert(&quot;&amp;amp;&quot;)&lt;/script&gt;" in html
    assert "<script" not in html


def test_long_functions_and_gaps_are_folded(tmp_path):
    path = tmp_path / "long.py"
    body = "".join(f"    x = x + {number}\n" for number in range(100))
    path.write_text(f"import jax\n\n\ndef f(x):\n{body}    return x\n")
    html = to_html(at_lines(path, 50))
    assert [number for number, *_ in rows(html)] == [4, *range(46, 55)]
    assert "⋮ 3 lines" in html
    assert "⋮ 41 lines" in html
    assert "⋮ 51 lines" in html


@pytest.mark.parametrize(
    "content",
    [None, b"", b"\0\0\0", b"x = '\xff'\n", b"# coding: nonsense\n", b"#" * (2**21 + 1)],
    ids=["missing", "empty", "binary", "not UTF-8", "unknown encoding", "huge"],
)
def test_lines_of_a_file_that_cannot_be_read_stand_with_their_numbers(tmp_path, content):
    path = tmp_path / "gone.py"
    if content is not None:
        path.write_bytes(content)
    html = to_html(at_lines(path, 7, 3))
    assert [(number, code, len(notes)) for number, code, notes in rows(html)] == [(3, "", 1), (7, "", 1)]


def test_a_line_of_a_missing_file_has_the_text_that_the_report_has(tmp_path):
    [gathered] = at_lines(tmp_path / "gone.py", 7).collectives
    report = program(replace(gathered, origin=replace(gathered.origin, code="    x = f(x)")))
    assert [row[:2] for row in rows(to_html(report))] == [(7, "    x = f(x)")]


def test_a_line_beyond_the_end_of_a_changed_file_stands_with_its_number(train):
    html = to_html(at_lines(train, 9, 1000))
    assert [number for number, *_ in rows(html)] == [7, 8, 9, 10, 1000]


def test_files_that_are_not_python_are_not_read(tmp_path):
    """A report can come from someone else's JSON."""
    (tmp_path / "key").write_text("secret")
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "folder.py").mkdir()
    for name in ("key", "pipe.py", "folder.py"):
        html = to_html(at_lines(tmp_path / name, 1))
        assert "secret" not in html
        assert "source not available" in html


def test_notebook_cells_are_read(monkeypatch):
    cell = ["x = 1\n", "y = gather(x)\n"]
    name = "/tmp/ipykernel_1/234.py"
    monkeypatch.setitem(linecache.cache, name, (20, None, cell, name))
    assert rows(to_html(at_lines(name, 2)))[1][:2] == (2, "y = gather(x)")


def test_declared_encodings_are_followed(tmp_path):
    path = tmp_path / "latin.py"
    path.write_bytes("# coding: latin-1\nx = 'größe'\n".encode("latin-1"))
    assert source_lines.source_lines(str(path)) == ["# coding: latin-1", "x = 'größe'"]


def test_ranges_are_short_functions_as_a_whole():
    lines = TRAIN.splitlines()
    assert source_lines.shown_ranges(lines, [9]) == [range(7, 11)]
    assert source_lines.shown_ranges(lines, [9, 13]) == [range(7, 15)]
    assert source_lines.shown_ranges(lines, [1]) == [range(1, 6)]
    assert source_lines.shown_ranges(lines, []) == []


def test_many_marked_lines_are_summed(monkeypatch, train):
    monkeypatch.setattr(document, "_MOST_LINKS", 2)
    html = to_html(at_lines(train, 3, 4, 9, 10, 14))
    assert len(links(html)) == 2
    assert "and 3 more lines" in html


def test_a_program_whose_lines_are_unknown_has_tables_only():
    html = to_html(program())
    assert source_text(program()) == ""
    assert html.count("<pre") == 1
    assert "lines that move" not in html


def test_a_line_of_no_file_has_no_source():
    report = program(gather(None, 1))
    report = replace(report, collectives=(replace(report.collectives[0], origin=line(1, file="<string>")),))
    assert "source not available" in to_html(report)


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


def test_a_page_folds_what_the_lines_replace():
    """Layers that differ in an index share a note, too."""
    gathers = [gather(f"layers/{number}/w", 3, 2**20) for number in range(4)]
    page = to_html(program(*gathers))
    folded = page[page.index("<details>") : page.index("</details>")]
    assert "all-gather over fsdp, layers/0-3/w ×4" in page
    assert "layers/0/w" not in page
    assert page.count("<details>") == 2
    assert "lines by cost" not in folded
    assert page.index("lines by cost") > 0
