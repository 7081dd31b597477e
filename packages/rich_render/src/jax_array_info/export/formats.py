"""A report as SVG, as HTML, as a file. What draws is imported when it is asked for."""

from __future__ import annotations

import os
from numbers import Integral, Real
from pathlib import Path

from jax_array_info_core import Report, UnsupportedValueError
from jax_array_info_core.text import plain_text

from ..pictures.palette import ColorMap
from ..render import to_text

SUFFIXES = (".svg", ".html", ".png", ".txt")
MOST_SCALE = 10
LEAST_SCALE = 0.1


def to_svg(report: Report, *, width: int = 80, scale: float = 1.0, color_map: ColorMap | None = None) -> str:
    """Return a report as an SVG document, for white and for black pages.

    What tells which device holds which part of an array is drawn: cells with the true proportions of the
    array up to 5 to 1 (beyond, a ratio r is drawn as 5 + log₁₀(r / 5) / 2); a grid for each shard of the
    leading axes, where more than two are sharded. The colour of a cell says where its devices stand in the
    mesh. What does not fit is left out in one marked gap. Compressed proportions and gaps are noted below the
    drawing. A cell under the pointer tells its devices, processes, slice and bytes. Other reports are the
    lines that the functions print. Text can be selected; nothing is referred to outside the document, and a
    drawing is under 200 kB for any number of shards.

    Args:
        report: Any report, or a layout.
        width: Number of characters that a line of a table or panel may have.
        scale: Factor for the size of the cells.
        color_map: Colours for the cells, from 0…1 to red, green, blue in 0…1, as matplotlib's colormaps;
            the same for the same devices. When None, the hue goes along the largest axis of the mesh, the
            lightness along the next.

    Raises:
        TypeError: it is no report; ``width`` or ``scale`` is no number.
        ValueError: ``scale`` is not from 0.1 to 10, ``width`` is none, or ``color_map`` returns no colours.

    >>> from jax_array_info import spec_layout
    >>> drawing = to_svg(spec_layout((16, 8), {"data": 4}, ("data",)))
    >>> drawing.startswith("<svg "), drawing.count("<title>")
    (True, 4)
    """
    from .document import columns_of, columns_svg, title_of

    _check(width, scale)
    columns = columns_of([[report]], width=width, scale=scale, color_map=color_map)
    return columns_svg(columns, title_of(report), width)


def to_html(report: Report, *, width: int = 80, scale: float = 1.0, color_map: ColorMap | None = None) -> str:
    """Return a report as an HTML fragment, in the colours of the page that it is put into.

    It is what ``to_svg`` returns, the lines of tables and panels as ``pre``: no script, no ids, no style
    sheet, nothing that is referred to, so that any number of them stand on one page.

    Args:
        report: Any report, or a layout.
        width: Number of characters that a line of a table or panel may have.
        scale: Factor for the size of the cells.
        color_map: Colours for the cells, as in ``to_svg``.

    Raises:
        TypeError: it is no report; ``width`` or ``scale`` is no number.
        ValueError: ``scale`` is not from 0.1 to 10, ``width`` is none, or ``color_map`` returns no colours.
    """
    from .document import columns_of, parts_html

    _check(width, scale)
    [parts] = columns_of([[report]], width=width, scale=scale, color_map=color_map)
    return parts_html(parts, width)


def save_picture(
    report: Report,
    path: str | os.PathLike[str],
    *,
    width: int = 80,
    scale: float = 1.0,
    color_map: ColorMap | None = None,
) -> None:
    """Write a report to a file, as what the suffix of its name says.

    ``.svg`` is what ``to_svg`` returns, ``.html`` a page with what ``to_html`` returns, ``.txt`` what
    ``to_text`` returns, all in UTF-8. ``.png`` is the SVG on white, with two pixels for each of its own;
    resvg-py draws it, which ``pip install jax-array-info[png]`` brings. The file is written beside its
    place first: what was there stays until the new one is whole.

    Args:
        report: Any report, or a layout.
        path: The file, which is replaced.
        width: Number of characters that a line of a table or panel may have.
        scale: Factor for the size of the cells.
        color_map: Colours for the cells, as in ``to_svg``.

    Raises:
        UnsupportedValueError: (a ValueError) the suffix is none of these; for a PNG, resvg-py or a
            font is not installed.
        TypeError: it is no report; ``width`` or ``scale`` is no number.
        ValueError: ``scale`` is not from 0.1 to 10, ``width`` is none, or ``color_map`` returns no colours.
        OSError: the file cannot be written; ``filename`` is the path.
    """
    from .files import write_whole

    _check(width, scale)
    path = Path(path)
    match path.suffix.lower():
        case ".svg":
            data = to_svg(report, width=width, scale=scale, color_map=color_map).encode()
        case ".html":
            from .document import html_document, title_of

            fragment = to_html(report, width=width, scale=scale, color_map=color_map)
            data = html_document([fragment], title_of(report)).encode()
        case ".png":
            from .png import report_png

            data = report_png(report, width=width, scale=scale, color_map=color_map)
        case ".txt":
            data = f"{to_text(report, width=width)}\n".encode()
        case _:
            raise UnsupportedValueError(
                f"cannot tell the format of {str(path)!r}: use one of the suffixes {', '.join(SUFFIXES)}"
            )
    write_whole(path, data)


def _check(width: object, scale: object) -> None:
    """Raise for sizes that no picture can have."""
    message = f"scale must be a number from {LEAST_SCALE} to {MOST_SCALE}, got {plain_text(scale, repr)}"
    if not isinstance(scale, Real):
        raise TypeError(message)
    if scale < LEAST_SCALE or not scale <= MOST_SCALE:
        raise ValueError(message)
    message = f"width must be a number of characters, at least 1, got {plain_text(width, repr)}"
    if not isinstance(width, Integral):
        raise TypeError(message)
    if width < 1:
        raise ValueError(message)
