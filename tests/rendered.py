"""Every text of a report: on terminals and on pages."""

from io import StringIO
from typing import get_args
from xml.etree import ElementTree

from jax_array_info.engine.render import print_columns, render, text_of, to_text
from jax_array_info.export.document import html_document, title_of
from jax_array_info.export.formats import to_html, to_svg
from jax_array_info.style import terminal_console
from jax_array_info_core.facts.reports.live import By
from jax_array_info_core.reports import DevicesReport, LiveArrayReport


def as_text(report, width):
    """Yield the text of a report from every function that writes to a terminal."""
    yield to_text(report, width=width)
    if isinstance(report, LiveArrayReport):
        yield from (text_of(render(report, width=width, by=by), width=width) for by in get_args(By))
    if isinstance(report, DevicesReport):
        yield text_of(render(report, width=width, kinds=True), width=width)
    console = terminal_console(file=StringIO(), plain=True, most=width)
    print_columns(console, [[report]])
    yield console.file.getvalue()


def words_of(xml):
    """Return the texts and attribute values of an XML document."""
    root = ElementTree.fromstring(xml)
    return "\n".join([*root.itertext(), *(value for found in root.iter() for value in found.attrib.values())])


def as_pages(report, width):
    """Yield the texts of a report's SVG and HTML."""
    yield words_of(to_svg(report, width=width))
    fragment = to_html(report, width=width)
    yield words_of(fragment)
    page = html_document([fragment], title_of(report)).partition("\n")[2]
    yield words_of(page)


def harmful(text):
    """Return the characters that a terminal or a page must not get."""
    return [char for char in text if char != "\n" and not char.isprintable()]
