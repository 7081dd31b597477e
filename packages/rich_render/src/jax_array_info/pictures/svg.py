"""SVG drawings of layouts: colored cells, axes with shard bounds, captions and notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from xml.etree import ElementTree

from rich.color import Color
from rich.style import Style

from jax_array_info_core.facts.reports.mesh import Placed, shared_mesh
from jax_array_info_core.reports import Report

from ..style import marks, packed, wrapped
from ..svg import (
    CHARACTER,
    FONT_SIZE,
    Element,
    Figure,
    element,
    moved,
    paragraph,
    side_by_side,
    stacked,
    text,
    text_width,
)
from .palette import ColorMap, DeviceGroup, group_styles
from .subject import Subject, facet_title, footer, left_out, subject_of
from .svg_plan import (
    LINE,
    ROOM_ACROSS,
    SIZE,
    Span,
    SvgPlan,
    axis_across,
    axis_down,
    between,
    gaps,
    label_lines,
    plan_alike,
    spaced,
)

MAX_NBYTES = 180_000
"""Maximum size of all drawings of a document; tables and panels share the rest of its 200 kB."""
MAX_CELLS = 576
"""Maximum number of cells in a drawing."""
LEAST_CELLS = 16
GAP = 16
_ROWS_MARK, _COLUMNS_MARK = marks("utf-8").skipped_rows, marks("utf-8").skipped_columns
MOST_BORDER = 3
"""Width of a frame round a host; half a cell if that is less."""
_SLICE_WIDTH = 2
"""Width of a frame round a slice, relative to one round a host."""
MARK = 14
"""Font size of the marks in gaps."""
TITLE_LINE = 1.5 * SIZE
LEAST_TITLE = 20
"""Minimum line length of a grid's title, in characters."""
LEAST_LINE = 72
"""Minimum line length of captions and notes, in characters."""


def layout_figures(
    reports: Sequence[Report],
    *,
    scale: float = 1.0,
    color_map: ColorMap | None = None,
    has_pointer: bool = True,
) -> list[Figure | None]:
    """Return the drawings of one document, in which the same devices always have the same color.

    Args:
        reports: The reports to draw. A report without a device layout gives None.
        scale: Factor for the size of the cells.
        color_map: Colors of the cells; None for the colors of the mesh.
        has_pointer: Whether the reader can hover over a cell to see its tooltip.
    """
    hint = f"{'' if has_pointer else 'save an .svg or .html and '}hover over a cell"
    drawable = [report if isinstance(report, Placed) else None for report in reports]
    subjects = [report and subject_of(report) for report in drawable]
    known = [subject for subject in subjects if subject]
    mesh = shared_mesh([report for report in drawable if report])
    most = MAX_CELLS
    while True:
        plans = plan_alike(known, scale, most)
        groups = (group for plan in plans for facet in plan.groups for row in facet for group in row)
        looks = group_styles(groups, mesh, color_map)
        figures = [_drawing(subject, plan, looks, hint) for subject, plan in zip(known, plans, strict=True)]
        nbytes = sum(len(ElementTree.tostring(part)) for figure in figures for part in figure.parts)
        if nbytes <= MAX_NBYTES or most <= LEAST_CELLS:
            drawn = iter(figures)
            return [next(drawn) if subject else None for subject in subjects]
        # Too large because of long slices, long device lists or many drawings: draw fewer cells.
        most = max(most * MAX_NBYTES // (nbytes + nbytes // 8), LEAST_CELLS)


def _drawing(subject: Subject, plan: SvgPlan, looks: Mapping[DeviceGroup, Style], hint: str) -> Figure:
    """Return the drawing of a layout, with its caption and notes."""
    grids = _facets(subject, plan, looks)
    characters = max(int(grids.width / (CHARACTER * SIZE)), LEAST_LINE)
    drawing = stacked([_caption(subject, characters), grids, _notes(subject, plan, characters, hint)])
    return replace(drawing, title=" ".join(subject.caption))


def _caption(subject: Subject, characters: int) -> Figure:
    """Return the caption above a drawing."""
    fewer = characters * SIZE // FONT_SIZE
    first, *others = [wrapped(line, fewer) for line in subject.caption]
    return stacked([paragraph(first, font_weight="bold"), *(paragraph(lines) for lines in others)], 0)


def _notes(subject: Subject, plan: SvgPlan, characters: int, hint: str) -> Figure:
    """Return the notes below a drawing: omitted cells, the aspect ratio, labels, processes, patterns."""
    notes = list(left_out(subject, plan.shown))
    if plan.ratio_note and not subject.is_mesh:
        notes.append(plan.ratio_note)
    notes += plan.labels.notes if plan.labels else [f"{hint} for its devices"]
    notes += footer(subject, characters)
    return paragraph([line for note in notes for line in wrapped(note, characters)], SIZE)


def _facets(subject: Subject, plan: SvgPlan, looks: Mapping[DeviceGroup, Style]) -> Figure:
    """Return the grids in rows, with a mark in place of grids that are left out."""
    figures = _grids(subject, plan, looks)
    rows: list[Figure] = []
    for first in range(0, len(figures), plan.facets_across):
        row: list[Figure] = []
        for number in range(first, min(first + plan.facets_across, len(figures))):
            if number and plan.facets[number] > plan.facets[number - 1] + 1:
                (row if row else rows).append(paragraph([_COLUMNS_MARK if row else _ROWS_MARK]))
            row.append(figures[number])
        rows.append(side_by_side(row, GAP))
    return stacked(rows, GAP)


def _grids(subject: Subject, plan: SvgPlan, looks: Mapping[DeviceGroup, Style]) -> list[Figure]:
    """Return each grid with its axes and title."""
    shown = subject.grids.axes
    axes: list[Element] = []
    margin, top, right, bottom = 0.0, 0.0, plan.width, plan.height
    if shown:
        axes, margin, right = axis_across(subject, shown[-1], plan.columns)
        top = ROOM_ACROSS
    if len(shown) == 2:
        down, margin, bottom = axis_down(subject, shown[0], plan.rows)
        axes += down
    titles = [_title(subject, facet, margin + right) for facet in plan.facets]
    right = max(right, *(text_width(line, SIZE) - margin for lines in titles for line in lines), 0)
    # Titles differ in their number of lines; grids in a row are aligned all the same.
    room = TITLE_LINE * max(map(len, titles))
    figures = []
    for number, lines in enumerate(titles):
        parts = [*_cells(subject, plan, number, looks), *_borders(subject, plan, number), *_gaps(plan), *axes]
        for below, line in zip(reversed(range(len(lines))), lines, strict=True):
            baseline = -top - SIZE / 2 - below * TITLE_LINE
            parts.append(text(-margin, baseline, line, font_size=SIZE, font_weight="bold"))
        grid = moved(Figure(0, 0, tuple(parts)), margin, top + room)
        figures.append(Figure(margin + right, room + top + bottom + SIZE / 2, (grid,)))
    return figures


def _title(subject: Subject, facet: int, width: float) -> list[str]:
    """Return the title of a grid in lines of its width, broken between axes if possible."""
    characters = max(int(width / (CHARACTER * SIZE)), LEAST_TITLE)
    names = [name + subject.over_words(axis) for axis, name in enumerate(subject.names)]
    return packed(facet_title(subject, facet, names), ", ", characters)


def _cells(
    subject: Subject, plan: SvgPlan, number: int, looks: Mapping[DeviceGroup, Style]
) -> Iterator[Element]:
    """Yield the cells of a grid by row: each a rectangle and a label with a common tooltip."""
    size = plan.font_size
    for row, groups in zip(plan.rows, plan.groups[number], strict=True):
        cells: list[Element] = []
        for column, group in zip(plan.columns, groups, strict=True):
            tooltip = subject.cell_title(plan.facets[number], row.shard, column.shard, group)
            look = looks[group]
            fill = _page_color(look.bgcolor)
            parts = [
                element("title", words=tooltip),
                element("rect", x=column.start, width=column.size, height=row.size, fill=fill),
            ]
            label = plan.labels.write(group) if plan.labels else ""
            lines = label_lines(label, column.size, row.size, size)
            first = row.size / 2 + (0.84 - LINE * len(lines) / 2) * size
            for place, line in enumerate(lines):
                baseline = first + place * LINE * size
                parts.append(text(column.middle, baseline, line, fill=_page_color(look.color)))
            cells.append(element("g", *parts))
        line_of_cells = element("g", *cells, font_size=size, text_anchor="middle")
        yield moved(Figure(0, 0, (line_of_cells,)), 0, row.start)


def _gaps(plan: SvgPlan) -> Iterator[Element]:
    """Yield the marks in place of rows and columns that are left out."""
    for at in gaps(plan.columns):
        for mark, middle in _marks(_COLUMNS_MARK, plan.rows):
            yield text(at, middle + 0.35 * MARK, mark, font_size=MARK, text_anchor="middle")
    for at in gaps(plan.rows):
        for mark, middle in _marks(_ROWS_MARK, plan.columns):
            yield text(middle, at + 0.35 * MARK, mark, font_size=MARK, text_anchor="middle")


def _marks(mark: str, spans: Sequence[Span]) -> list[tuple[str, float]]:
    """Return the mark of a gap and its position, for each row or column with room for it."""
    return spaced([(mark, span.middle, 1.2 * MARK) for span in spans])


def _borders(subject: Subject, plan: SvgPlan, number: int) -> Iterator[Element]:
    """Yield the frames round hosts and slices: white on black, visible on any color, wider round slices.

    The outline of the grid has none of its own for an array.
    """
    frames, facet = subject.frames, plan.facets[number]
    strokes: dict[int, list[str]] = {1: [], 2: []}

    def add(weight: int, stroke: str) -> None:
        if weight:
            strokes[weight].append(stroke)

    width = min(MOST_BORDER, *(span.size / 2 for span in (*plan.rows, *plan.columns)))
    columns = list(_edges(plan.columns, has_outline=subject.is_mesh))
    rows = list(_edges(plan.rows, has_outline=subject.is_mesh))
    for row in plan.rows:
        weights = frames.across(facet, row.shard)
        for line, x in columns:
            add(weights[line], f"M{x:.1f} {row.start:.1f}v{row.size:.1f}")
    for line, y in rows:
        weights = frames.down(facet, line)
        for column in plan.columns:
            add(weights[column.shard], f"M{column.start:.1f} {y:.1f}h{column.size:.1f}")
    for weight, pieces in strokes.items():
        if pieces:
            path, wide = "".join(pieces), width * (_SLICE_WIDTH if weight == 2 else 1)
            yield element("path", d=path, stroke="#000", stroke_width=wide, stroke_linecap="square")
            yield element("path", d=path, stroke="#fff", stroke_width=0.4 * wide, stroke_linecap="square")


def _edges(spans: Sequence[Span], *, has_outline: bool) -> Iterator[tuple[int, float]]:
    """Yield each line between rows or columns, with its position; before and after a gap, both lines."""
    if has_outline:
        yield spans[0].shard, spans[0].start
        yield spans[-1].shard + 1, spans[-1].end
    for span, other, middle in between(spans):
        if other.shard == span.shard + 1:
            yield other.shard, middle
        else:
            yield span.shard + 1, span.end
            yield other.shard, other.start


def _page_color(color: Color | None) -> str:
    """Return the hexadecimal color of a cell or its label."""
    assert color is not None
    return color.get_truecolor().hex
