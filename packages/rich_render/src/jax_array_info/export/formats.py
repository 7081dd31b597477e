"""Reports as SVG, HTML, PNG and files."""

from __future__ import annotations

import os
from numbers import Integral, Real
from pathlib import Path

from jax_array_info_core.base.text import plain_text
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.reports import Report

from ..engine.render import to_text
from ..pictures.palette import ColorMap
from ..svg import paragraph, svg
from .document import columns_of, columns_svg, html_document, parts_html, title_of

SUFFIXES = (".svg", ".html", ".png", ".txt")
MOST_SCALE = 10
LEAST_SCALE = 0.1


def to_svg(report: Report, *, width: int = 80, scale: float = 1.0, color_map: ColorMap | None = None) -> str:
    """Return a report as an SVG document that is legible on white and on black pages.

    If the report has a layout, each shard is drawn as a cell. If more than two axes are sharded, one grid is
    drawn for each position along the leading sharded axes. The color of a cell shows the position of its
    devices in the mesh; its tooltip lists devices, processes, slice and bytes. A report without a layout is
    shown as the text that is printed. That of a ``ProgramReport`` or a ``PropagationReport`` also has the
    lines of the Python files that the report names, as far as they can be read here, with the bytes that each
    line moves or keeps, or with the shardings of its values.

    The drawing keeps the aspect ratio of the array up to 5:1 and compresses larger ratios. Shards that do not
    fit are left out, and a gap marks their place. If the ratio is compressed or shards are left out, a note
    below the drawing gives the details. Text can be selected, the document needs no other files, and its
    drawings take less than 200 kB in total, for any number of shards.

    Args:
        report: Any report, such as an ``ArrayReport`` or a ``ShardingLayout``.
        width: Characters per line of a table or panel.
        scale: Factor for the size of the cells, from 0.1 to 10.
        color_map: Function from a number between 0 and 1 to ``(red, green, blue)``, each between 0 and 1,
            such as a Matplotlib colormap. Shards on the same devices have the same color. If None, the hue
            follows the position along the largest axis of the mesh, and the lightness the position along the
            next.

    Raises:
        TypeError: If ``report`` is not a report, ``scale`` is not a number, ``width`` is not an integer, or
            ``color_map`` is not callable.
        ValueError: If ``scale`` is not between 0.1 and 10, ``width`` is less than 1, or ``color_map`` does
            not return colors.

    >>> from jax_array_info import spec_layout
    >>> drawing = to_svg(spec_layout((16, 8), {"data": 4}, ("data",)))
    >>> drawing.startswith("<svg "), drawing.count("<title>")
    (True, 4)
    """
    _check(width, scale)
    return columns_svg(columns_of([[report]], scale=scale, color_map=color_map), title_of(report), width)


def to_html(report: Report, *, width: int = 80, scale: float = 1.0, color_map: ColorMap | None = None) -> str:
    """Return a report as an HTML fragment in the colors of the surrounding page.

    Layouts are drawn as in ``to_svg``; tables and panels become ``pre`` elements. The fragment contains no
    scripts, style sheets or references to other files, so a page can include any number of fragments.

    The fragment of a ``ProgramReport`` or a ``PropagationReport`` has links to its source lines. Their ids
    begin with a hash of the report; no other fragment has ids. In a notebook, a report that is shown again
    has other ids.

    Args:
        report: Any report, such as an ``ArrayReport`` or a ``ShardingLayout``.
        width: Characters per line of a table or panel.
        scale: Factor for the size of the cells, from 0.1 to 10.
        color_map: Colors for the cells, as in ``to_svg``.

    Raises:
        TypeError: If ``report`` is not a report, ``scale`` is not a number, ``width`` is not an integer, or
            ``color_map`` is not callable.
        ValueError: If ``scale`` is not between 0.1 and 10, ``width`` is less than 1, or ``color_map`` does
            not return colors.

    >>> from jax_array_info import planned_mesh_report
    >>> to_html(planned_mesh_report({"data": 4})).count("<rect")
    4
    """
    _check(width, scale)
    [parts] = columns_of([[report]], scale=scale, color_map=color_map)
    return parts_html(parts, width)


def save_picture(
    report: Report,
    path: str | os.PathLike[str],
    *,
    width: int = 80,
    scale: float = 1.0,
    color_map: ColorMap | None = None,
) -> None:
    """Save a report to a file, in the format given by the suffix.

    - ``.svg``: the output of ``to_svg``.
    - ``.html``: a page with the output of ``to_html``.
    - ``.txt``: the output of ``to_text``.
    - ``.png``: the SVG on a white background, at twice its size. It needs resvg-py:
      ``pip install jax-array-info[png]``.

    Text files are written in UTF-8. An existing file is replaced only when the new one is complete.

    Args:
        report: Any report, such as an ``ArrayReport`` or a ``ShardingLayout``.
        path: The file to write.
        width: Characters per line of a table or panel.
        scale: Factor for the size of the cells, from 0.1 to 10.
        color_map: Colors for the cells, as in ``to_svg``.

    Raises:
        UnsupportedValueError: (a ValueError) If the suffix is not one of these, or if a PNG is requested and
            resvg-py or a font is not installed.
        TypeError: If ``report`` is not a report, ``scale`` is not a number, ``width`` is not an integer, or
            ``color_map`` is not callable.
        ValueError: If ``scale`` is not between 0.1 and 10, ``width`` is less than 1, or ``color_map`` does
            not return colors.
        OSError: If the file cannot be written. ``filename`` is the path.

    >>> import os, tempfile
    >>> from jax_array_info import planned_mesh_report
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_picture(planned_mesh_report({"data": 4}), f"{folder}/mesh.svg")
    ...     os.listdir(folder)
    ['mesh.svg']
    """
    from jax_array_info_core.base.files import write_whole

    _check(width, scale)
    path = Path(path)
    match path.suffix.lower():
        case ".svg":
            data = to_svg(report, width=width, scale=scale, color_map=color_map).encode()
        case ".html":
            fragment = to_html(report, width=width, scale=scale, color_map=color_map)
            data = html_document([fragment], title_of(report)).encode()
        case ".png":
            data = report_png(report, width=width, scale=scale, color_map=color_map)
        case ".txt":
            data = f"{to_text(report, width=width)}\n".encode()
        case _:
            raise UnsupportedValueError(
                f"unknown file suffix in {str(path)!r}: use one of {', '.join(SUFFIXES)}"
            )
    write_whole(path, data)


def _check(width: object, scale: object) -> None:
    """Check that ``width`` and ``scale`` are usable sizes."""
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


def report_png(report: Report, *, width: int, scale: float, color_map: ColorMap | None) -> bytes:
    """Return a report as a PNG: its SVG on white at twice the size in pixels.

    Raises:
        UnsupportedValueError: (a ValueError) If resvg-py or a font is not installed.
    """
    try:
        import resvg_py
    except ImportError:
        raise UnsupportedValueError(
            "PNG output needs resvg-py, which is not installed: pip install 'jax-array-info[png]',"
            " or save a .svg"
        ) from None

    def drawn(document: str) -> bytes:
        return bytes(resvg_py.svg_to_bytes(svg_string=document, zoom=2, background="#ffffff"))

    # Without a font, resvg leaves out all text without an error.
    if drawn(svg(paragraph(["M"]))) == drawn(svg(paragraph([" "]))):
        raise UnsupportedValueError(
            "PNG output needs a font, and none is installed: install one, such as DejaVu Sans Mono (Debian:"
            " apt install fonts-dejavu-core), or save a .svg"
        )
    columns = columns_of([[report]], scale=scale, color_map=color_map, has_pointer=False)
    return drawn(columns_svg(columns, width=width, color="#000"))
