"""Propagations as HTML: the user's source with specs, conflicts and origins in the margin."""

import re
from dataclasses import replace

import jax
import pytest

from jax_array_info import propagation_report, to_html, to_svg
from jax_array_info.export import document, source_text
from jax_array_info.export.document import parts_html, parts_of
from jax_array_info.reports import AxisOrigin, PropagatedLeaf, PropagationReport
from tests.core.programs.propagation.programs import struct
from tests.rich_render.export.test_program_html import links, rows
from tests.rich_render.svg.reading import parsed, words
from tests.sample_programs import WHY, line

pytestmark = pytest.mark.newest

CODE = '    h = jax.nn.gelu(x @ params["wi"])'
COLUMNS = (CODE.index("x @"), len(CODE) - 1)


def at_file(file, report=WHY):
    """Return a report whose lines are in another file, with the columns of its conflict."""

    def moved(part):
        return part if part is None else replace(part, file=str(file))

    def at(part, **fields):
        return replace(part, origin=moved(part.origin), **fields)

    def axes(part):
        return {"axes": tuple(map(at, part.axes))}

    return replace(
        report,
        values=tuple(at(one, **axes(one)) for one in report.values),
        conflicts=tuple(at(one, columns=COLUMNS) for one in report.conflicts),
        lost=tuple(at(one, constraint=moved(line(8))) for one in report.lost),
        replicated=tuple(
            at(one, loss=at(WHY.lost[0], constraint=moved(line(8))), **axes(one)) for one in report.replicated
        ),
    )


def elements(html):
    """Return the elements with an id, by id."""
    return {one.get("id"): one for one in parsed(f"<div>{html}</div>").iter() if one.get("id")}


def targets(element):
    """Return the text of what each link in an element leads to, by the text of the link."""
    return {link.text: link.get("href")[1:] for link in element.iter("a")}


def shown_again(report):
    """Return what a notebook shows of a report."""
    return report._repr_mimebundle_()["text/html"]


def row_of(html, text):
    """Return the element with an id whose text contains a text."""
    [found] = [one for one in elements(html).values() if text in "".join(one.itertext())]
    return found


def test_links_lead_from_a_mark_to_its_origin_and_back(train):
    html = to_html(at_file(train))
    marked, argument = row_of(html, "conflict over data"), row_of(html, "x  float32[512,256] P('data',)")
    constraint = row_of(html, "origin of tensor in")
    assert targets(marked)["x"] == targets(marked)["argument x"] == argument.get("id")
    assert targets(marked)["constraint train.py:8"] == constraint.get("id")
    assert targets(argument) == targets(constraint) == {"train.py:9": marked.get("id")}


def test_each_link_leads_to_an_id_of_its_own_report(train):
    """Also if a page has the report twice, or a notebook shows it again."""
    report, other = at_file(train), replace(at_file(train), name="other")
    for html in ((to_html(report), to_html(other)), (shown_again(report), shown_again(report))):
        ids = [re.findall(r' id="([^"]*)"', one) for one in html]
        assert len(set(ids[0] + ids[1])) == 2 * 4
        assert [{target for _, target in links(one)} for one in html] == [
            {f"#{name}" for name in names} for names in ids
        ]
    page = parts_html(parts_of([report, report]))
    assert parts_html(parts_of([report, report])) == page
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids)) == 2 * 4
    targets = [target.removeprefix("#") for _, target in links(page)]
    half = len(targets) // 2
    assert (set(targets[:half]), set(targets[half:])) == (set(ids[:4]), set(ids[4:]))


@pytest.mark.parametrize(
    ("code", "columns", "underlined"),
    [
        (
            "\tgröße = sin(größe) @ x",
            (len("\tgröße = ".encode()), len("\tgröße = sin(größe)".encode())),
            "sin(größe)",
        ),
        ("y = f(x)", (4, 10**15), "f(x)"),
        ("y = f(x)", (90, 99), ""),
        ("y = f(x)", (6, 4), ""),
        (CODE, COLUMNS, 'x @ params["wi"]'),
    ],
    ids=["bytes and tabs", "beyond the end", "changed line", "reversed", "inside"],
)
def test_columns_are_bytes_of_the_line(tmp_path, code, columns, underlined):
    path = tmp_path / "a.py"
    path.write_text("\n" * 8 + code, "utf-8")
    report = at_file(path)
    report = replace(report, conflicts=tuple(replace(one, columns=columns) for one in report.conflicts))
    spans = [
        one for one in parsed(f"<div>{to_html(report)}</div>").iter("span") if "wavy" in one.get("style", "")
    ]
    assert "".join(one.text for one in spans) == underlined


def test_arguments_that_differ_in_indices_are_one_row(train):
    report = at_file(train)
    paths = [f"layers/{number}/w" for number in range(4)]
    leaves = tuple(replace(report.arguments[0], path=path) for path in paths)
    values = tuple(
        replace(report.values[0], axes=(AxisOrigin(mesh_axis="data", kind="argument", path=path),))
        for path in paths
    )
    html = to_html(replace(report, arguments=leaves, values=values))
    row = row_of(html, "layers/0-3/w  float32")
    assert targets(row_of(html, "conflict over data"))["argument layers/0-3/w"] == row.get("id")
    assert "×4 dot_general" in html


def test_a_line_has_the_largest_findings_and_values_and_the_number_of_the_others(train):
    report = at_file(train)
    conflicts = tuple(replace(report.conflicts[0], op=f"op{number}", nbytes=2**number) for number in range(9))
    values = tuple(replace(report.values[0], shape=(512, number)) for number in range(9))
    report = replace(report, conflicts=conflicts, values=values)
    [notes] = [notes for number, _, notes in rows(to_html(report)) if number == 9]
    assert [note for note in notes if "conflict" in note] == [
        *(f"{2 * 2**n}.0 B  conflict over data: op{n} ik,kj->ij ×2" for n in (8, 7, 6)),
        "126.0 B  12 more: conflict",
    ]
    assert notes[-1] == "6 more values"


def test_many_users_of_an_origin_are_counted(train, monkeypatch):
    monkeypatch.setattr(source_text, "_MOST_USERS", 2)
    report = at_file(train)
    values = tuple(
        replace(report.values[0], origin=replace(report.values[0].origin, line=number))
        for number in range(3, 9)
    )
    html = to_html(replace(report, values=values))
    assert "and 5 more" in "".join(row_of(html, "x  float32[512,256]").itertext())


def test_a_report_without_lines_has_tables_only():
    for report in (
        replace(WHY, mesh=None, values=(), conflicts=(), lost=(), replicated=()),
        PropagationReport(name="f", platform="tpu", reason="killed"),
    ):
        html = to_html(report)
        assert html.count("<pre") == 1
        assert " id=" not in html


@pytest.mark.skipif(jax.__version_info__ < (0, 10, 1), reason="Shardy tells origins from JAX 0.10.1 on")
def test_a_file_that_changed_after_the_trace_stands_with_the_traced_lines(tmp_path):
    file, source = tmp_path / "layer.py", "def layer(x, w):\n    return x @ w\n"
    file.write_text(source)
    names = {}
    exec(compile(source, str(file), "exec"), names)
    report = propagation_report(names["layer"], struct((8, 4), "data"), struct((4, 8), "data"))
    assert "changed since it was traced" not in to_html(report)
    assert (1, "def layer(x, w):") in [(number, code) for number, code, _ in rows(to_html(report))]
    file.write_text("import os\n\n\n" + source)
    assert "changed since it was traced" in to_html(report)
    assert "changed since it was traced" in " ".join(words(to_svg(report)))
    assert [(number, code) for number, code, _ in rows(to_html(report))] == [(2, "    return x @ w")]


def test_the_svg_has_the_source_with_notes_below_its_lines(train):
    drawing = to_svg(at_file(train))
    shown = words(drawing)
    assert shown.index("train.py") < shown.index("conflict over data: dot_general ik,kj->ij ×2")
    assert shown.index("arguments and outputs") < shown.index("values")
    assert 'text-decoration="underline"' in drawing


def test_the_list_of_costly_lines_has_the_heads_of_the_findings_that_there_are(train):
    report = replace(at_file(train), lost=(), replicated=())
    html = to_html(report)
    assert "<b>conflict</b>" in html
    assert "<b>lost</b>" not in html
    [grid] = [one for one in parsed(f"<div>{html}</div>").iter("div") if "grid" in one.get("style", "")]
    assert [cell.text for cell in grid][2] == "512.0 KiB"


def test_lines_beyond_the_most_are_left_out(train, monkeypatch):
    monkeypatch.setattr(document, "_MOST_LINES", 1)
    assert [number for number, _, notes in rows(to_html(at_file(train))) if notes] == [11]


def test_a_leaf_that_nothing_comes_from_is_left_out(train):
    other = PropagatedLeaf(path="unused", shape=(8,), dtype="float32", spec=None, nbytes=32)
    report = at_file(train)
    html = to_html(replace(report, arguments=(*report.arguments, other)))
    assert "unused" not in html
