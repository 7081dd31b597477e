"""A notebook as a page: its text, its code, and what a kernel shows when it runs them."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from docs_hooks.blocks import Block, BlockError, Shown
from docs_hooks.notebooks import markdown_of, run_notebook


@pytest.fixture
def written(tmp_path):
    """Writes a notebook of a heading and cells of code; returns its path and its blocks."""

    def write(*sources):
        cells = [new_markdown_cell("# Title"), *map(new_code_cell, sources)]
        path = tmp_path / "some.ipynb"
        nbformat.write(new_notebook(cells=cells), path)
        return path, [Block("cell", source, line=number) for number, source in enumerate(sources, start=1)]

    return write


def test_a_notebook_is_a_page_with_a_link_to_itself_and_a_fence_for_each_cell(written):
    path, _ = written("x = 1", "print('```')")
    assert markdown_of(path).split("\n\n") == [
        "# Title",
        "[Download this notebook](some.ipynb)",
        '```python cell="1"\nx = 1\n```',
        "````python cell=\"2\"\nprint('```')\n````\n",
    ]


def test_cells_show_what_they_print_and_the_html_of_what_they_return(written):
    html = "type('', (), {'_repr_html_': lambda self: '<b>x</b>'})()"
    path, blocks = written("x = 1\nprint(x)", html, "x + 1")
    assert run_notebook(path, blocks) == [(Shown("1\n"),), (Shown(html="<b>x</b>"),), (Shown("2"),)]
    assert all(cell.get("outputs", []) == [] for cell in nbformat.read(path, as_version=4).cells)


def test_a_cell_that_fails_is_named_with_its_error(written):
    path, blocks = written("x = 0", "1 / x", "x = 2")
    with pytest.raises(BlockError, match="ZeroDivisionError") as raised:
        run_notebook(path, blocks)
    assert raised.value.block is blocks[1]


def test_the_cell_that_fails_is_named_though_one_before_it_is_empty(written):
    path, blocks = written("", "# nothing", "1 / 0", "")
    with pytest.raises(BlockError, match="ZeroDivisionError") as raised:
        run_notebook(path, blocks)
    assert raised.value.block is blocks[2]


def test_a_picture_of_points_is_shown_as_one(written):
    code = "import IPython.display as d; d.Image(data=b'\\x89PNG\\r\\n\\x1a\\n', format='png')"
    [[shown]] = run_notebook(*written(code))
    assert shown.html == '<img alt="" src="data:image/png;base64,iVBORw0KGgo=">'


def test_each_report_of_a_list_is_shown(written):
    code = "from jax_array_info import mesh_plan\n[mesh_plan({'data': 3}), mesh_plan({'model': 2})]"
    [[shown]] = run_notebook(*written(code))
    assert "mesh data=3" in shown.html
    assert "mesh model=2" in shown.html
    assert shown.html.count("<rect") == 5
