"""A layout → its drawing: cells in the colours of their holders, axes with lengths and cuts, a caption."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

from rich.cells import cell_len
from rich.color import Color
from rich.style import Style

from jax_array_info_core import Grids, Report, flat_grids
from jax_array_info_core.reports.mesh_devices import shared_mesh

from ..style import marks
from ..svg.figure import CHARACTER, FONT_SIZE, Element, Figure, above, beside, element, moved, paragraph, text
from ..svg.figure import text_width as width_of
from .captions import facet_title, footer, left_out
from .fitting import wrapped
from .palette import ColorMap, Holder, holder_styles
from .subject import CellTeller, Drawn, Subject, subject_of
from .svg_axes import SIZE, axis_of, spaced
from .svg_labels import LINE, label_lines
from .svg_plan import Plan, Span, plan_alike

MAX_NBYTES = 180_000
"""How large the drawings of a document are together; the rest up to 200 kB is for what stands over them."""
MAX_CELLS = 576
"""How many cells are drawn at most."""
LEAST_CELLS = 16
GAP = 16
_ROWS_MARK, _COLUMNS_MARK = marks("utf-8").skipped_rows, marks("utf-8").skipped_columns
MOST_BORDER = 5
"""How thick a line between processes is, where its cells are not smaller than twice that."""
MARK = 14
"""Font size of the marks of gaps."""
TITLE_LINE = 1.5 * SIZE
LEAST_TITLE = 20
"""How many characters a line of a grid's title may have, however narrow the grid is."""
LEAST_LINE = 72
"""How many characters a line under a drawing may have, however small it is."""


def layout_figures(
    reports: Sequence[Report],
    *,
    scale: float = 1.0,
    color_map: ColorMap | None = None,
    has_pointer: bool = True,
) -> list[Figure | None]:
    """Return the drawings of one document: in all of them, the same devices have the same colour.

    Args:
        reports: What to draw. Of what says of no device what it holds, there is None.
        scale: Factor for the size of the cells.
        color_map: Colours to fill with, the same for the same devices; the colours of the mesh when None.
        has_pointer: Whether a pointer can rest on the cells, which then tell more.
    """
    further = f"{'' if has_pointer else 'save an .svg or .html and '}rest the pointer on a cell"
    subjects = [subject_of(report) if isinstance(report, Drawn) else None for report in reports]
    tellers = [CellTeller(subject, flat_grids(subject.layout)) for subject in subjects if subject]
    mesh = shared_mesh([report for report in reports if isinstance(report, Drawn)])
    most = MAX_CELLS
    while True:
        plans = plan_alike([(tell.subject.layout, tell.grids) for tell in tellers], scale, most)
        holders = [
            holder for planned in plans for facet in planned.holders for row in facet for holder in row
        ]
        looks = holder_styles(holders, mesh, color_map)
        figures = [
            _whole(tell, planned, looks, further) for tell, planned in zip(tellers, plans, strict=True)
        ]
        nbytes = sum(len(ElementTree.tostring(part)) for figure in figures for part in figure.parts)
        if nbytes <= MAX_NBYTES or most <= LEAST_CELLS:
            break
        # Long slices, long lists of devices, many drawings: fewer cells.
        most = max(most * MAX_NBYTES // (nbytes + nbytes // 8), LEAST_CELLS)
    drawn = iter(figures)
    return [None if subject is None else next(drawn) for subject in subjects]


def _whole(tell: CellTeller, planned: Plan, looks: Mapping[Holder, Style], further: str) -> Figure:
    """Return the drawing of what is planned, with its caption and notes."""
    subject = tell.subject
    drawing = _facets(tell, planned, looks)
    characters = max(int(drawing.width / (CHARACTER * SIZE)), LEAST_LINE)
    whole = above([_caption(subject, characters), drawing, _notes(tell, planned, characters, further)])
    return replace(whole, title=" ".join(subject.caption))


def _caption(subject: Subject, characters: int) -> Figure:
    """Return what it is that is drawn."""
    fewer = characters * SIZE // FONT_SIZE
    first, *others = [wrapped(line, fewer) for line in subject.caption]
    return above([paragraph(first, font_weight="bold"), *(paragraph(lines) for lines in others)], 0)


def _notes(tell: CellTeller, planned: Plan, characters: int, further: str) -> Figure:
    """Return what is said below: what letters mean, what is left out or compressed, whose the devices are."""
    subject = tell.subject
    notes = list(left_out(tell.grids, planned.shown, subject.names))
    if planned.compressed and not subject.is_mesh:
        notes.append(planned.compressed)
    notes += planned.labelling.notes
    if not planned.labelling.names:
        notes.append(f"{further} for its devices")
    notes += footer(subject.layout, characters, subject.names)
    return paragraph([line for note in notes for line in wrapped(note, characters)], SIZE)


def _facets(tell: CellTeller, planned: Plan, looks: Mapping[Holder, Style]) -> Figure:
    """Return the grids, each with its axes, over it which part of the leading axes it is."""
    subject, grids = tell.subject, tell.grids
    axes: list[Element] = []
    left, top, right, bottom = 0.0, 0.0, planned.width, planned.height
    if grids.axes:
        across = axis_of(subject, grids.axes[-1], planned.columns)
        axes += across.across()
        left, top = across.underhang, across.room_of_across
        right = max(right + across.overhang, across.title_length)
    if len(grids.axes) == 2:
        down = axis_of(subject, grids.axes[0], planned.rows)
        axes += down.down()
        left = down.room_of_down
        bottom = max(bottom, down.title_length)
    titles = _titles(subject, grids, planned.facets, left + right)
    right = max(right, *(width_of(line, SIZE) - left for lines in titles for line in lines), 0)
    # However many lines a title has, the grids beside each other are at one height.
    room = TITLE_LINE * max(map(len, titles))
    figures = []
    for number, lines in enumerate(titles):
        parts = [*_cells(planned, number, looks, tell), *_borders(planned, number, tell)]
        parts += [*_gaps(planned), *axes]
        for below, line in zip(reversed(range(len(lines))), lines, strict=True):
            baseline = -top - SIZE / 2 - below * TITLE_LINE
            parts.append(text(-left, baseline, line, font_size=SIZE, font_weight="bold"))
        whole = moved(Figure(0, 0, tuple(parts)), left, top + room)
        figures.append(Figure(left + right, room + top + bottom + SIZE / 2, (whole,)))
    rows: list[Figure] = []
    for first in range(0, len(figures), planned.facets_across):
        row: list[Figure] = []
        for number in range(first, min(first + planned.facets_across, len(figures))):
            if number and planned.facets[number] > planned.facets[number - 1] + 1:
                # Between facets that have others between them.
                (row if row else rows).append(paragraph([_COLUMNS_MARK if row else _ROWS_MARK]))
            row.append(figures[number])
        rows.append(beside(row, GAP))
    return above(rows, GAP)


def _titles(subject: Subject, grids: Grids, facets: Sequence[int], width: float) -> list[list[str]]:
    """Return the title of each grid in lines as long as it is wide, broken between axes where that may be."""
    characters = max(int(width / (CHARACTER * SIZE)), LEAST_TITLE)
    names = [name + subject.over_words(axis) for axis, name in enumerate(subject.names)]
    titles = []
    for facet in facets:
        lines: list[str] = []
        for piece in facet_title(subject.layout, grids, names, facet, is_mesh=subject.is_mesh):
            if lines and cell_len(f"{lines[-1]}, {piece}") <= characters:
                lines[-1] += f", {piece}"
            else:
                lines += wrapped(piece, characters)
        titles.append(lines)
    return titles


def _cells(planned: Plan, number: int, looks: Mapping[Holder, Style], tell: CellTeller) -> Iterator[Element]:
    """Yield the cells of a grid, row by row: each a rectangle and its label, which have a title."""
    for row, holders in zip(planned.rows, planned.holders[number], strict=True):
        cells: list[Element] = []
        for column, holder in zip(planned.columns, holders, strict=True):
            words = tell(planned.facets[number], row.shard, column.shard, holder)
            fill = _page_color(looks[holder].bgcolor)
            parts = [
                element("title", words=words),
                element("rect", x=column.start, width=column.size, height=row.size, fill=fill),
            ]
            size = planned.labelling.size
            lines = label_lines(planned.labelling.names.get(holder, ""), column.size, row.size, size)
            middle = column.start + column.size / 2
            first = row.size / 2 + (0.84 - LINE * len(lines) / 2) * size
            ink = _page_color(looks[holder].color)
            for place, line in enumerate(lines):
                parts.append(text(middle, first + place * LINE * size, line, fill=ink))
            cells.append(element("g", *parts))
        line_of_cells = element("g", *cells, font_size=planned.labelling.size, text_anchor="middle")
        yield moved(Figure(0, 0, (line_of_cells,)), 0, row.start)


def _gaps(planned: Plan) -> Iterator[Element]:
    """Yield the marks of the rows and columns that are left out."""
    for at in planned.column_gaps:
        for mark, middle in _marks(_COLUMNS_MARK, planned.rows):
            yield text(at, middle + 0.35 * MARK, mark, font_size=MARK, text_anchor="middle")
    for at in planned.row_gaps:
        for mark, middle in _marks(_ROWS_MARK, planned.columns):
            yield text(middle, at + 0.35 * MARK, mark, font_size=MARK, text_anchor="middle")


def _marks(mark: str, spans: Sequence[Span]) -> list[tuple[str, float]]:
    """Return the mark of a gap for each row or column that has room for it, with its place."""
    return spaced([(mark, span.start + span.size / 2, 1.2 * MARK) for span in spans])


def _borders(planned: Plan, number: int, tell: CellTeller) -> Iterator[Element]:
    """Yield the lines between cells of different processes: black with white in it, seen on any colours."""
    owners = [[tell.processes(holder) for holder in row] for row in planned.holders[number]]
    strokes = []
    for row, line in zip(planned.rows, owners, strict=True):
        for (left, right), (one, other) in zip(pairwise(planned.columns), pairwise(line), strict=True):
            if one != other:
                strokes.append(f"M{_between(left, right):.1f} {row.start:.1f}v{row.size:.1f}")
    for (upper, lower), lines in zip(pairwise(planned.rows), pairwise(owners), strict=True):
        for column, one, other in zip(planned.columns, *lines, strict=True):
            if one != other:
                strokes.append(f"M{column.start:.1f} {_between(upper, lower):.1f}h{column.size:.1f}")
    if strokes:
        path = "".join(strokes)
        width = min(MOST_BORDER, *(span.size / 2 for span in (*planned.rows, *planned.columns)))
        yield element("path", d=path, stroke="#000", stroke_width=width)
        yield element("path", d=path, stroke="#fff", stroke_width=0.4 * width)


def _between(one: Span, other: Span) -> float:
    return (one.start + one.size + other.start) / 2


def _page_color(color: Color | None) -> str:
    """Return a colour of a cell or of its label."""
    assert color is not None
    return color.get_truecolor().hex
