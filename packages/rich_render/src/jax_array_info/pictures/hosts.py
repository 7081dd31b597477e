"""Heat maps of the bytes of processes, as text and as SVG: one cell for each process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.style import Style
from rich.text import Text

from jax_array_info_core import format_bytes
from jax_array_info_core.base.text import printable
from jax_array_info_core.facts.reports.hosts import LEVELS, HostCell
from jax_array_info_core.reports import HostsReport

from ..style import WARNING
from ..svg import COLORS, FONT_SIZE, Element, Figure, element, paragraph, stacked, text, text_width
from .palette import amount_color, readable
from .svg_plan import SIZE

GROUP = 8
"""Number of cells between gaps."""
_MOST_ACROSS = 64
_MISSING, _UNREAD = ".", "?"
_LARGE, _SMALL = 18, 9
"""Side of a cell in pixels: of few cells, which have a digit, and of many."""
_MOST_LARGE = 256
_MOST_TOOLTIPS = 1024
"""Maximum number of cells with tooltips: more would take over 200 kB."""
_GAP = 1


def hosts_picture(report: HostsReport, *, width: int, use_color: bool) -> Text:
    """Return the heat map as text: a digit for each process, and a line with their meaning.

    Args:
        report: The processes.
        width: Maximum line length in characters.
        use_color: Whether to fill the cells.
    """
    cells = report.cells
    label = len(str(cells[-1].first))
    across = _MOST_ACROSS
    while across > GROUP and label + across + across // GROUP > width:
        across -= GROUP
    looks = [readable(amount_color(level / (LEVELS - 1))) for level in range(LEVELS)] if use_color else []
    lines: list[Text] = []
    for start in range(0, len(cells), across):
        line = Text(f"{cells[start].first:>{label}}")
        for number, cell in enumerate(cells[start : start + across]):
            line.append(" " if number % GROUP == 0 else "")
            line.append(_digit(cell), _look(cell, looks))
        lines.append(line)
    return Text("\n").join([*lines, *(Text(line) for line in _legend(report, cells))])


def _digit(cell: HostCell) -> str:
    if cell.host is None:
        return _UNREAD if cell.is_unread else _MISSING
    return str(cell.level)


def _look(cell: HostCell, looks: Sequence[Style]) -> Style | str:
    fill = looks[cell.level] if looks and cell.host is not None else Style()
    return fill + Style(bold=True, underline=True) if cell.is_different else fill


def _legend(report: HostsReport, cells: Sequence[HostCell]) -> Iterator[str]:
    """Yield what the digits and the marks mean."""
    least, most = format_bytes(report.emptiest_nbytes), format_bytes(report.fullest_nbytes)
    words = [f"digits: 0 is {least}" + ("" if report.is_even else f", {LEVELS - 1} is {most}")]
    if any(cell.host is None and not cell.is_unread for cell in cells):
        words.append(f"{_MISSING} is missing")
    if any(cell.host is None and cell.is_unread for cell in cells):
        words.append(f"{_UNREAD} is not read")
    yield "; ".join(words)
    if cells[0].last:
        yield f"Each cell is the fullest of {cells[0].last + 1} processes."


def hosts_figure(report: HostsReport) -> Figure:
    """Return the heat map as SVG. Processes whose arrays differ have a red border."""
    cells = report.cells
    side = _LARGE if len(cells) <= _MOST_LARGE else _SMALL
    across = next(count for count in (8, 16, 32, _MOST_ACROSS) if count * count >= len(cells) or count == 64)
    left = text_width(str(cells[-1].first), SIZE) + 6
    places = {
        number: (left + _along(number % across, side), float((number // across) * (side + _GAP)))
        for number in range(len(cells))
    }
    rows = -(-len(cells) // across)
    labels = [
        text(
            left - 6,
            row * (side + _GAP) + side / 2 + SIZE / 3,
            str(cells[row * across].first),
            font_size=min(SIZE, side + 1),
            text_anchor="end",
        )
        for row in range(rows)
    ]
    drawn = list(_fills(cells, places, side)) if len(cells) > _MOST_TOOLTIPS else []
    drawn += [
        _cell(cell, *places[number], side)
        for number, cell in enumerate(cells)
        if cell.is_different or cell.host is None or len(cells) <= _MOST_TOOLTIPS
    ]
    width = left + _along(min(across, len(cells)) - 1, side) + side
    grid = Figure(width, rows * (side + _GAP), (*labels, *drawn))
    title = paragraph([f"bytes {report.bytes_words} on each process"], font_weight="bold")
    legend, *notes = _legend(report, cells)
    if side == _SMALL:
        least, most = format_bytes(report.emptiest_nbytes), format_bytes(report.fullest_nbytes)
        legend = f"light is {least}, dark is {most}"
        if any(cell.host is None for cell in cells):
            legend += "; a dashed border is missing or not read"
    if any(cell.is_different for cell in cells):
        legend += "; a red border has other arrays"
    figure = stacked([title, grid, paragraph([legend, *notes], SIZE)])
    return replace(figure, title="bytes of each process")


def _along(number: int, side: int) -> float:
    """Return the distance of a column from the first, with gaps between groups."""
    return number * (side + _GAP) + number // GROUP * 4.0


def _fills(cells: Sequence[HostCell], places: dict[int, tuple[float, float]], side: int) -> Iterator[Element]:
    """Yield one path for all cells of a level."""
    for level in range(LEVELS):
        found = [places[n] for n, cell in enumerate(cells) if cell.host is not None and cell.level == level]
        if found:
            squares = "".join(f"M{x:.0f} {y:.0f}h{side}v{side}h-{side}z" for x, y in found)
            yield element("path", d=squares, fill=_fill(level))


def _fill(level: int) -> str:
    return amount_color(level / (LEVELS - 1)).get_truecolor().hex


def _cell(cell: HostCell, x: float, y: float, side: int) -> Element:
    """Return a cell with its tooltip, and its digit if it is large."""
    looks: dict[str, float | str] = {"fill": "none" if cell.host is None else _fill(cell.level)}
    if cell.is_different:
        looks |= {"stroke": COLORS[WARNING], "stroke_width": 2}
    elif cell.host is None:
        looks |= {"stroke": "currentColor", "stroke_dasharray": "2 2"}
    inset = 1 if "stroke" in looks else 0
    size = side - 2 * inset
    square = element(
        "rect",
        element("title", words=_tooltip(cell)),
        words=None,
        x=x + inset,
        y=y + inset,
        width=size,
        height=size,
        **looks,
    )
    if side == _SMALL:
        return square
    digit: dict[str, float | str] = {"font_size": SIZE, "text_anchor": "middle", "pointer_events": "none"}
    if cell.host is not None:
        color = readable(amount_color(cell.level / (LEVELS - 1))).color
        digit["fill"] = color.get_truecolor().hex if color else "currentColor"
    return element("g", square, text(x + side / 2, y + side / 2 + FONT_SIZE / 3, _digit(cell), **digit))


def _tooltip(cell: HostCell) -> str:
    if cell.host is None:
        several = f"processes {cell.first}-{cell.last}" if cell.last > cell.first else f"process {cell.first}"
        return f"{several}: {'not read' if cell.is_unread else 'missing'}"
    return printable(
        f"process {cell.host.process} on {cell.host.host_name}: {format_bytes(cell.host.nbytes)}"
        + (", its arrays differ" if cell.is_different else "")
    )
