"""Tests of building pages from fences and of stopping at invalid ones."""

import logging
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from tests.site.conftest import ROOT


@pytest.fixture
def built(tmp_path):
    """A function that builds a site of one page and returns its HTML."""

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
    assert message.startswith('docs/page.md:9: a block fails:\n\nprint("so far")\n1 / x\n\n')
    assert "\nso far\nTraceback" in message
    assert 'File "block2.py", line 2' in message
    assert message.endswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(
    ("fence", "reason"),
    [
        ('```python device="1"\n1\n```', "unknown field `device`"),
        ('```python devices="eight"\n1\n```', "Expected `int`, got `str` - at `$.devices`"),
        ('```python devices="8" fresh="1"\n1\n```', "Invalid enum value '1' - at `$.fresh`"),
        ("```python devices=1\n1\n```", 'Options must have the form name="value"'),
        ('```python devices="1\n1\n```', 'Options must have the form name="value"'),
        ('```{.python devices="1"}\n1\n```', 'Options must have the form name="value"'),
        ('```py devices="1"\n1\n```', "Invalid value 'py'"),
        ('```bash exit="1"\n$ false\n```', "Invalid value 'bash'"),
        ("```Console\n$ true\n```", "Invalid value 'Console'"),
        ("```console\necho\n```", r"matching regex '\\A\\$ '"),
        ('```python devices="1"\n1\n', "No closing fence"),
        ('    ```python devices="1"\n    1\n```', "No closing fence"),
    ],
)
def test_a_fence_with_invalid_options_stops_the_build(fence, reason, built, caplog):
    with pytest.raises(Abort):
        built(f'# Page\n\n```python devices="1"\n```\n\n* a\n\n{fence}')
    assert caplog.messages[0].startswith("docs/page.md:8: this fence cannot run: ")
    assert reason in caplog.messages[0]


def test_a_page_with_another_stored_output_stops_a_strict_build(built, caplog):
    page = '# Page\n\n```python devices="1"\nprint(2)\n```\n\n```text\n1\n```\n'
    with pytest.raises(Abort):
        built(page, strict=True)
    message = caplog.messages[0]
    assert message.startswith(
        "docs_hooks: docs/page.md:8: the stored output differs from the printed output; "
    )
    assert message.endswith("\n ```text\n-1\n+2\n ```")


def test_a_page_with_another_stored_output_is_shown_with_the_printed_one(built):
    html = built('# Page\n\n```python devices="1"\nprint(2)\n```\n\n```text\n1\n```\n')
    assert re.findall(r'<div class="terminal".*?<pre>(.*?)</pre>', html, re.S) == ["2"]
    assert "<code>1" not in html


def test_a_fence_that_markdown_does_not_parse_stops_the_build(built, caplog):
    with pytest.raises(Abort):
        built('# Page\n\nText.\n\n    ```python devices="1"\n    print(1)\n    ```\n')
    assert caplog.messages[-1] == "docs/page.md: Markdown does not parse the fence of a block"


def test_fences_without_options_do_not_stop_the_build(built):
    assert "only shown" in built(
        '# Page\n\n```\n$ x\n```\n\n```toml title="a b" hl_lines="1"\nx = 1\n```\n\n'
        '````text\n```python devices=1\n````\n\n~~~py\n"only shown"\n~~~\n\nA line with ```ticks``` is none.\n'
    )


def test_output_is_below_each_block_including_in_tabs(built):
    html = built(
        '# Page\n\n```python devices="1"\nx = 20\n```\n\n'
        '=== "Python"\n\n    ```python devices="1"\n    print(x + 1)\n    ```\n\n'
        '=== "Shell"\n\n    ```console\n    $ echo shell\n    ```\n\n```python\nprint("only shown")\n```\n'
    )
    frames = re.findall(r'<div class="terminal".*?<pre>(.*?)</pre>', html, re.S)
    assert frames == ["21", '<span class="command">echo shell</span>\nshell']


def test_a_block_has_its_name_above_it_if_an_output_mentions_it(built):
    html = built(
        '# Page\n\n```python devices="1"\ndef f():\n    1 / 0\n```\n\n```console\n$ true\n```\n\n```python devices="1"\n'
        "import traceback\ntry:\n    f()\nexcept ZeroDivisionError as e:\n    place = traceback.extract_tb(e.__traceback__)[-1]\n"
        '    print(f"{place.filename}:{place.lineno} {place.line}")\n```\n'
    )
    assert re.findall(r'<span class="filename">(.*?)</span>', html) == ["block1.py"]
    assert "block1.py:2 1 / 0" in html


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_ctrl_c_ends_the_build_and_the_processes_of_its_pages(tmp_path):
    (tmp_path / "docs").mkdir()
    fifo = tmp_path / "pid"
    os.mkfifo(fifo)
    (tmp_path / "docs" / "page.md").write_text(f"```console\n$ echo $$ > {fifo}; exec sleep 600\n```\n")
    hook = ROOT / "docs_hooks" / "hook.py"
    settings = f"site_name: x\ntheme: mkdocs\nplugins: []\nhooks: [{hook}]\nmarkdown_extensions: [pymdownx.superfences]\n"
    (tmp_path / "mkdocs.yml").write_text(settings)
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-f", str(tmp_path / "mkdocs.yml")]
    reset_sigint = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    with subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True, preexec_fn=reset_sigint
    ) as build:
        sleeping = int(fifo.read_text())  # waits until the page runs
        os.killpg(build.pid, signal.SIGINT)
        assert build.wait() != 0
    deadline = time.monotonic() + 60
    while is_running(sleeping):  # until the system has collected the process, which the build left
        assert time.monotonic() < deadline
        time.sleep(0.1)
