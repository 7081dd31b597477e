"""Tests of notebooks as pages: text, code and output."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from docs_hooks.blocks import PageError
from docs_hooks.notebooks import notebook_page, run_cells
from docs_hooks.running import Shown


def run(*sources):
    return run_cells.__wrapped__(sources, None)


def test_a_notebook_page_has_a_download_link_and_the_output_of_each_cell(tmp_path):
    path = tmp_path / "some.ipynb"
    cells = [new_markdown_cell("# Title"), new_code_cell("x = 1"), new_code_cell("print('```', x)")]
    nbformat.write(new_notebook(cells=cells), path)
    page = notebook_page(path, None)
    assert page.startswith(
        "# Title\n\n[Download this notebook](some.ipynb)\n\n``````python\nx = 1\n``````\n\n"
    )
    assert page.count("``````output\n") == 1
    assert "<pre>``` 1</pre>" in page
    assert all(cell.get("outputs", []) == [] for cell in nbformat.read(path, as_version=4).cells)


def test_cells_show_printed_text_and_the_html_of_their_value():
    html = "type('', (), {'_repr_html_': lambda self: '<b>x</b>'})()"
    assert run("x = 1\nprint(x)", html, "x + 1") == [[Shown("1\n")], [Shown(html="<b>x</b>")], [Shown("2")]]


@pytest.mark.parametrize("sources", [("x = 0", "1 / x", "x = 2"), ("", "1 / 0", "")])
def test_an_error_names_the_failing_cell(sources):
    with pytest.raises(PageError, match=r"^ code cell 2: (.|\n)*ZeroDivisionError"):
        run(*sources)


def test_a_png_output_becomes_an_img_element():
    code = "import IPython.display as d; d.Image(data=b'\\x89PNG\\r\\n\\x1a\\n', format='png')"
    [[shown]] = run(code)
    assert shown.html == '<img alt="" src="data:image/png;base64,iVBORw0KGgo=">'


def test_every_report_of_a_list_is_shown():
    code = "from jax_array_info import planned_mesh_report\n[planned_mesh_report({'data': 3}), planned_mesh_report({'model': 2})]"
    [_, [shown]] = run("%load_ext jax_array_info", code)
    assert "mesh data=3" in shown.html
    assert "mesh model=2" in shown.html
    assert shown.html.count("<rect") == 5
