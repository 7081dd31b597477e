"""How a build goes through the fences of its pages, and stops when one of them is wrong."""

import logging
import re

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from tests.site.conftest import ROOT


@pytest.fixture
def built(tmp_path):
    """Builds a site of one page; returns the page's HTML."""

    def build_page(markdown, **settings):
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "page.md").write_text(markdown)
        hook = ROOT / "docs_hooks" / "hook.py"
        (tmp_path / "mkdocs.yml").write_text(
            f"site_name: x\ntheme: mkdocs\nplugins: []\nhooks: [{hook}]\n"
            "markdown_extensions: [pymdownx.superfences, pymdownx.tabbed, md_in_html]\n"
        )
        logging.getLogger("mkdocs").setLevel(logging.ERROR)
        build(load_config(str(tmp_path / "mkdocs.yml"), **settings))
        return (tmp_path / "site" / "page" / "index.html").read_text()

    return build_page


def test_a_failing_block_stops_the_build_with_page_line_code_and_error(built, caplog):
    page = '# Page\n\n```python devices="1"\nx = 0\n```\n\nText.\n\n```python devices="1"\nprint("so far")\n1 / x\n```\n'
    with pytest.raises(Abort):
        built(page)
    [message] = caplog.messages
    assert message.startswith('docs/page.md:9: a block fails:\n\nprint("so far")\n1 / x\n\nso far\n')
    assert message.endswith("ZeroDivisionError: division by zero\n")


def test_a_wrong_option_stops_the_build_with_page_and_line(built, caplog):
    with pytest.raises(Abort):
        built('# Page\n\n```python device="1"\nx = 0\n```\n')
    [message] = caplog.messages
    assert message.startswith("docs/page.md:3: a python block has no option device; it has devices")


@pytest.mark.parametrize(
    ("fence", "reason"),
    [
        ("```python devices=1\n1\n```", 'the options of this fence are not name="value": python devices=1'),
        ('```python devices="1\n1\n```', "the options of this fence are not"),
        ('```{.python devices="1"}\n1\n```', "the options of this fence are not"),
        ('```py devices="1"\n1\n```', "a block of py is not run; one of python or console is"),
        ('```Python devices="1"\n1\n```', "a block of Python is not run"),
        ('```bash exit="1"\n$ false\n```', "a block of bash is not run"),
        ("```Console\n$ true\n```", "a block of Console is not run"),
        ('```python devices="1"\n1\n', "this fence is not closed"),
        ('    ```python devices="1"\n    1\n```', "this block is not run"),
    ],
)
def test_a_fence_that_would_be_shown_though_it_means_to_run_stops_the_build(fence, reason, built, caplog):
    with pytest.raises(Abort):
        built(f'# Page\n\n```python devices="1"\n```\n\n* a\n\n{fence}')
    assert caplog.messages[0].startswith(f"docs/page.md:8: {reason}")


def test_fences_that_are_shown_do_not_stop_the_build(built):
    assert "only shown" in built(
        '# Page\n\n```\n$ x\n```\n\n```toml title="a b" hl_lines="1"\nx = 1\n```\n\n'
        '````text\n```python devices=1\n````\n\n~~~py\n"only shown"\n~~~\n\nA line with ```ticks``` is none.\n'
    )


@pytest.mark.parametrize(
    ("only", "strict", "reason"),
    [
        ("typo.md,page.md", False, "JAI_DOCS_ONLY: docs has no page typo.md"),
        ("page.md", True, "JAI_DOCS_ONLY leaves out what a strict build must run"),
    ],
)
def test_pages_that_are_asked_for_alone_are_there_and_no_site_is_made_of_them(
    only, strict, reason, built, caplog, monkeypatch
):
    monkeypatch.setenv("JAI_DOCS_ONLY", only)
    with pytest.raises(Abort):
        built("# Page\n", strict=strict)
    assert caplog.messages[0].startswith(reason)


def test_a_page_shows_the_output_under_each_block_in_tabs_too(built):
    html = built(
        '# Page\n\n```python devices="1"\nx = 20\n```\n\n'
        '=== "Python"\n\n    ```python devices="1"\n    print(x + 1)\n    ```\n\n'
        '=== "Shell"\n\n    ```console\n    $ echo shell\n    ```\n\n```python\nprint("only shown")\n```\n'
    )
    frames = re.findall(r'<div class="terminal".*?<pre>(.*?)</pre>', html, re.S)
    assert frames == ["21", '<span class="command">echo shell</span>\nshell']


def test_a_block_has_its_name_above_it_where_an_output_speaks_of_it(built):
    html = built(
        '# Page\n\n```python devices="1"\ndef f():\n    1 / 0\n```\n\n```console\n$ true\n```\n\n```python devices="1"\n'
        "import traceback\ntry:\n    f()\nexcept ZeroDivisionError as e:\n    place = traceback.extract_tb(e.__traceback__)[-1]\n"
        '    print(f"{place.filename}:{place.lineno} {place.line}")\n```\n'
    )
    assert re.findall(r'<span class="filename">(.*?)</span>', html) == ["block1.py"]
    assert "block1.py:2 1 / 0" in html
