"""Reports as PNG images."""

from __future__ import annotations

from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.reports import Report

from ..pictures.palette import ColorMap
from ..svg import paragraph, svg
from .document import columns_of, columns_svg

_ZOOM = 2


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
        return bytes(resvg_py.svg_to_bytes(svg_string=document, zoom=_ZOOM, background="#ffffff"))

    # Without a font, resvg leaves out all text without an error.
    if drawn(svg(paragraph(["M"]))) == drawn(svg(paragraph([" "]))):
        raise UnsupportedValueError(
            "PNG output needs a font, and none is installed: install one, such as DejaVu Sans Mono (Debian:"
            " apt install fonts-dejavu-core), or save a .svg"
        )
    columns = columns_of([[report]], width=width, scale=scale, color_map=color_map, has_pointer=False)
    return drawn(columns_svg(columns, width=width, color="#000"))
