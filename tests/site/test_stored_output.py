"""Tests of the output that pages store as text, and of the comparison with what their code prints."""

import subprocess
import sys

import pytest

from docs_hooks.blocks import PageError
from docs_hooks.generated import generated_pages
from docs_hooks.pages import difference, page_with_frames, page_with_text
from docs_hooks.running import Shown
from docs_hooks.terminal import transcript
from tests.site.conftest import ROOT

BARE = """# Page

```python devices="1"
x = 20
```

```python devices="1"
print(x)
print("  \\x1b[1mbold\\x1b[0m  ")
```

Text.

=== "Shell"

    ```console
    $ echo one \\
        two
    $ true
    $ printf 'a\\n\\nb\\n'
    ```
"""
STORED = """# Page

```python devices="1"
x = 20
```

```python devices="1"
print(x)
print("  \\x1b[1mbold\\x1b[0m  ")
```

```text
20
  bold
```

Text.

=== "Shell"

    ```console
    $ echo one \\
        two
    one two
    $ true
    $ printf 'a\\n\\nb\\n'
    a

    b
    ```
"""


def test_output_is_stored_as_text_below_code_and_below_each_command():
    assert page_with_text(BARE, None) == STORED


def test_stored_output_is_replaced_and_the_same_output_stays():
    assert page_with_text(STORED, None) == STORED
    stale = STORED.replace("20\n  bold", "19\n  bold\nmore").replace("    a\n\n    b\n", "    c\n")
    assert page_with_text(stale, None) == STORED


def test_output_of_code_that_prints_nothing_is_removed():
    page = '```python devices="1"\n1\n```\n'
    assert page_with_text(f"{page}\n```text\nstale\n```\n", None) == page


def test_text_that_is_not_directly_below_a_block_is_not_its_output():
    page = '```python devices="1"\n1\n```\n\nSay:\n\n```text\nx\n```\n\n```python\nprint(1)\n```\n\n```text\ny\n```\n'
    assert page_with_text(page, None) == page


def test_the_text_of_a_displayed_value_is_stored():
    code = (
        "class Picture:\n"
        "    def _repr_mimebundle_(self):\n"
        "        return {'text/plain': 'P', 'text/html': '<b>P</b>'}\n"
        "print('before')\nPicture()\n"
    )
    page = page_with_text(f'```python devices="1"\n{code}```\n', None)
    assert page.endswith("```\n\n```text\nbefore\nP\n```\n")


def test_a_transcript_has_neither_colors_nor_links_nor_trailing_lines():
    link = "\x1b]8;;file:///x\x1b\\x\x1b]8;;\x1b\\"
    assert transcript([Shown(f"\x1b[31mred\x1b[0m {link}   \n\n", command="show")]) == "$ show\nred x\n"


def varying(stored):
    return f'```console varies="[0-9]+ ms"\n$ echo took $((3 + 4)) ms, twice\n{stored}```\n'


def test_a_part_that_varies_keeps_the_stored_text():
    assert page_with_text(varying("took 12 ms, twice\n"), None) == varying("took 12 ms, twice\n")


@pytest.mark.parametrize("stored", ["", "took 12 ms, once\n", "took 12 s, twice\n"])
def test_other_parts_are_compared_with_the_printed_output(stored):
    assert page_with_text(varying(stored), None) == varying("took 7 ms, twice\n")


@pytest.mark.parametrize(
    "block", ["```console\n$ echo '$ x'\n```\n", '```python devices="1"\nprint("```")\n```\n']
)
def test_output_that_would_be_read_in_another_way_is_an_error(block):
    with pytest.raises(PageError, match=r"^3: the output of this block cannot be stored"):
        page_with_text(f"# Page\n\n{block}", None)


def test_output_with_ticks_is_stored_in_a_longer_fence():
    code = '````python devices="1"\nprint("```")\n````\n'
    assert page_with_text(code, None) == f"{code}\n````text\n```\n````\n"


def test_the_site_shows_frames_in_place_of_the_stored_text():
    assert page_with_frames(STORED, None) == page_with_frames(BARE, None)
    assert "```text" not in page_with_frames(STORED, None)


def test_a_difference_has_its_line_a_diff_and_what_to_do():
    assert difference(STORED, STORED) == ""
    assert difference("# Page\n\n1\n2\n", "# Page\n\n1\n3\n") == (
        "4: the stored output differs from the printed output; nox -s docs -- --write writes it\n"
        "--- stored output\n+++ printed output\n@@ -1,4 +1,4 @@\n # Page\n \n 1\n-2\n+3"
    )


@pytest.mark.parametrize(("name", "text"), generated_pages().items(), ids=generated_pages())
def test_the_pages_that_are_generated_from_the_source_are_stored(name, text):
    stored = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert stored == text, "nox -s docs -- --write writes it"


def test_the_program_writes_the_pages_that_differ_and_prints_the_errors_of_others(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name, text in {"a.md": BARE, "b.md": "```console\n$ false\n```\n", "c.md": STORED}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "docs_hooks", "a.md", "b.md", "c.md"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout) == (1, "a.md: written\n")
    assert process.stderr.startswith("b.md:1: a block fails:\n\n$ false\n")
    assert (tmp_path / "a.md").read_text(encoding="utf-8") == STORED
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.md", "b.md", "c.md"]
