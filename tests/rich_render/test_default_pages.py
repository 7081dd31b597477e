"""Laws of the default page of every stored report: it stays on a screen, with its answer first and sums whole."""

import re
from functools import cache
from io import StringIO
from itertools import chain

import pytest
from rich.cells import cell_len

from jax_array_info import to_text
from jax_array_info.engine.render import on_console, planned_rows, print_page, render, shown_blocks, text_of
from jax_array_info.reports import CheckReport, ProgramDiff, ProgramReport, TreeReport
from jax_array_info.style import terminal_console
from jax_array_info_core.base.quantities import format_bytes, parse_bytes
from jax_array_info_core.facts.pages import page
from jax_array_info_core.facts.pages.blocks import (
    Column,
    Entries,
    Further,
    Note,
    Picture,
    Rule,
    Sentence,
    Table,
    Verbatim,
    cut,
    left_out,
    limited,
    longest_list,
)
from jax_array_info_core.facts.pages.tree_rows import is_counted, leaf_sums
from tests.goldens import FOLDER, NAMES, stored

pytestmark = pytest.mark.newest

MOST_LINES = 40
FIRST = 15
"""Number of lines that a reader sees at a glance."""
SIZE = re.compile(r"([0-9.]+ [KMGT]?i?B)( each)?")
TIMES = re.compile(r" \ufdd0([0-9]+)")
NARROW = (30, 50, 79)
"""Widths of which each page has one, besides the narrowest; the stored pages have five others."""
MANY = 5
"""Number of findings that may need more lines, since each keeps its title, its problem and its fix."""
MADE_UP = {name for name in NAMES if "\\u202e" in (FOLDER / f"{name}.json").read_text()}
"""Reports with every field set, and with texts of any length and any characters."""


def names(*classes):
    """Return the names of the stored reports of some classes, but for those that are made up."""
    return [name for name in NAMES if name not in MADE_UP and isinstance(report_of(name), classes)]


@cache
def report_of(name):
    return stored(name)[0]


@cache
def page_of(name):
    """Return the blocks of the default page."""
    return shown_blocks([*page(report_of(name))], "fit")


def shown(name):
    """Return the blocks of the default page that are no pictures."""
    return [block for block in page_of(name) if not isinstance(block, Picture)]


def lines_of(blocks):
    return text_of(on_console(blocks)).splitlines()


def first_lines(name):
    """Return the first lines of the default page as one line."""
    return " ".join(" ".join(lines_of(shown(name))[:FIRST]).split())


def size_of(text, count=1):
    """Return the bytes in a text, and the most by which they are rounded."""
    found = SIZE.search(text)
    if found is None:
        return 0, 0
    number, unit = found[1].split()
    times = count if found[2] else 1
    return times * parse_bytes(found[1]), times * parse_bytes(f"0.05 {unit}") if "." in number else 0


def assert_sum(sizes, total):
    """Assert that sizes add up to a number of bytes, as far as they are printed."""
    sizes = list(sizes)
    assert abs(sum(nbytes for nbytes, _ in sizes) - total) <= sum(rounded for _, rounded in sizes) + 1


@pytest.mark.parametrize("name", NAMES)
def test_a_default_page_fits_a_screen_of_any_width_and_tells_how_many_rows_are_left_out(name):
    report = report_of(name)
    lines = lines_of(shown(name))
    assert_at_most_40(lines, report, name in MADE_UP)
    words = re.findall(r"(\d+) rows? (?:is|are) left out: max_rows=None shows all", " ".join(lines))
    assert len(words) <= 1
    every = [block for block in cut(page(report), None) if not isinstance(block, Picture)]
    whole = lines_of(every)
    assert "left out: max_rows" not in " ".join(whole)
    assert 0 < int(words[0]) <= left_out(page(report), 0) if words else whole == lines
    blocks = [block for block in page_of(name) if not (isinstance(block, Verbatim) and block.is_whole)]
    for width in (20, NARROW[NAMES.index(name) % len(NARROW)]):
        text = text_of(on_console(blocks, width=width), width=width)
        assert max(map(cell_len, text.splitlines())) <= width


def assert_at_most_40(lines, report, is_made_up):
    """Assert that a page is a screen, or that its findings alone are more and it has no other row."""
    has_many_findings = len(getattr(report, "findings", ())) >= MANY
    if len(lines) <= MOST_LINES:
        return
    assert is_made_up or has_many_findings
    always = [block for block in page(report) if not isinstance(block, Further)]
    none, one = (
        lines_of([block for block in cut(always, most) if not isinstance(block, Picture)]) for most in (0, 1)
    )
    note = 1  # the line on the rows that are left out
    assert MOST_LINES <= len(none) < len(lines) <= len(one) + note


def assert_full(blocks):
    """Assert that no list has room for one row more."""
    limits = planned_rows(blocks)

    def line_count(limits):
        return len(lines_of(chain(*(cut([block], most) for block, most in zip(blocks, limits, strict=True)))))

    assert line_count(limits) < MOST_LINES
    for place, block in enumerate(blocks):
        if limits[place] < longest_list(block):
            further = [most + (other == place) for other, most in enumerate(limits)]
            assert line_count(further) >= MOST_LINES


@pytest.mark.parametrize("name", names(ProgramDiff, TreeReport))
def test_no_list_of_a_default_page_has_room_for_one_row_more(name):
    assert_full([block for block in page(report_of(name)) if not isinstance(block, Picture)])


def test_a_row_that_is_taller_in_its_table_costs_no_row_of_another():
    def table(tall_with=None):
        """Return a table of 40 rows, whose row for the others has more lines if they are so many."""
        others = lambda hidden: {"path": ["more"] * (4 if len(hidden) == tall_with else 1)}  # noqa: E731
        rows = limited(range(40), lambda number: {"path": str(number)}, others)
        return Table("leaves", [Column("path")], [rows])

    for count in range(1, 40):
        assert_full([table(count), table()])


@pytest.mark.parametrize("name", names(TreeReport))
def test_the_rows_of_a_tree_add_up_to_all_leaves(name):
    report = report_of(name)
    rows = (row for block in shown(name) if isinstance(block, Table) for part in block.parts for row in part)
    cells = [cell.text if isinstance(cell, Note) else cell for row in rows for cell in row["per device"]]
    sums = leaf_sums(report.rows)
    assert_sum(map(size_of, cells), sums.nbytes + sums.host_nbytes)


@pytest.mark.parametrize("name", names(CheckReport, ProgramReport))
def test_the_rows_of_a_finding_add_up_to_all_leaves(name):
    report = report_of(name)
    findings, sizes, found = iter(report.findings), {}, None
    for block in shown(name):
        if isinstance(block, Rule) and block.end.startswith("jai-cli explain"):
            found = sizes.setdefault(id(next(findings)), [])
        elif found is not None and isinstance(block, Entries):
            times = [TIMES.search(row[1]) for row in block.rows]
            found += [
                size_of(row[0], int(several[1]) if several else 1)
                for row, several in zip(block.rows, times, strict=True)
            ]
        elif found is not None and isinstance(block, Sentence):
            if block.text.startswith("and "):
                found.append(size_of(block.text))
            elif block.hang and not block.indent:  # the lines below the findings
                found = None
    assert next(findings, None) is None
    for finding in report.findings:
        if sizes[id(finding)]:
            assert_sum(sizes[id(finding)], sum((leaf.nbytes or 0) * leaf.count for leaf in finding.leaves))


@pytest.mark.parametrize("name", names(CheckReport, ProgramReport))
def test_every_finding_has_its_title_its_problem_and_its_fix(name):
    report = report_of(name)
    text = " ".join(to_text(report).split())
    for finding in report.findings:
        syntax = report.syntax if isinstance(report, CheckReport) else "python"
        assert f"{finding.code} {finding.name}" in first_lines(name)
        assert " ".join(finding.problem.split()) in text
        assert " ".join(finding.remedy_in(syntax).split()) in text


@pytest.mark.parametrize("name", names(ProgramReport))
def test_a_program_begins_with_its_memory_and_its_traffic(name):
    report = report_of(name)
    first = first_lines(name)
    if report.memory is not None and report.memory.needed_nbytes is not None:
        assert format_bytes(report.memory.needed_nbytes) in first
    if report.is_known:
        assert "sent per device and call: " in first
    if report.sent_nbytes:
        assert f"sent per device and call: {format_bytes(report.sent_nbytes)}" in first


@pytest.mark.parametrize("name", names(TreeReport))
def test_a_tree_begins_with_its_total_what_can_be_saved_and_its_largest_leaf(name):
    report = report_of(name)
    first = first_lines(name)
    if report.rows:
        assert format_bytes(report.fullest_device_nbytes) in first
    if report.avoidable_nbytes:
        assert format_bytes(report.avoidable_nbytes) in first
    leaves = [row for row in report.rows if is_counted(row)]
    if largest := max(leaves, key=lambda row: row.shard_nbytes, default=None):
        assert largest.path.split("/")[-1] in first


class Terminal(StringIO):
    """A file that is a terminal, or a pipe."""

    def __init__(self, is_terminal):
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self):
        return self.is_terminal


@pytest.mark.parametrize(
    ("is_terminal", "more", "is_again"),
    [(True, -16, True), (True, 0, True), (True, 1, False), (True, 40, False), (False, -16, False)],
)
def test_a_terminal_that_a_page_and_a_prompt_do_not_fit_ends_with_its_first_line(
    is_terminal, more, is_again, monkeypatch
):
    """Also with ``FORCE_COLOR``, a pipe has each line once."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("LINES", str(len(lines_of(shown("check-report-11"))) + more))
    file = Terminal(is_terminal)
    print_page(terminal_console(file=file), render(report_of("check-report-11")))
    first, *_, last = file.getvalue().splitlines()
    assert (first == last) == is_again
