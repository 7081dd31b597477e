"""What a page's blocks do when they run."""

import os
import re

import pytest

from docs_hooks import running
from docs_hooks.blocks import BlockError, Shown, block_of
from docs_hooks.running import run_blocks
from docs_hooks.terminal import THEME, coloured, frame

COUNT = "import jax; print(len(jax.devices()))"


def python(source, **options):
    return block_of("python", source, options)


def console(source, **options):
    return block_of("console", source, options)


def texts(*blocks):
    return ["".join(shown.text for shown in pieces) for pieces in run_blocks(blocks)]


def test_blocks_with_as_many_devices_share_a_process_and_each_has_its_own_output():
    assert texts(
        python(f"{COUNT}; x = 5", devices="2"),
        python(COUNT, devices="3"),
        python("x += 1; print(x)", devices="2"),
        python("print('x' in globals())", devices="2", fresh="yes"),
    ) == ["2\n", "3\n", "6\n", "False\n"]


def test_files_and_commands_share_the_folder_of_the_page_and_its_name_is_not_shown():
    assert texts(
        python("import os; print(os.getcwd(), __file__)", devices="1"),
        python("print(6 * 7)\n", file="answers/six.py"),
        console("$ python answers/six.py > answers/six.txt\n$ cat answers/six.txt\n$ pwd"),
        python("print(open('answers/six.txt').read())", devices="1"),
    ) == [". example.py\n", "", "42\n.\n", "42\n\n"]


def test_what_is_printed_has_colours_and_the_width_of_the_block():
    code = "from rich import print\nfrom rich.rule import Rule\nprint('[red]x[/]', Rule())"
    [printed] = texts(python(code, devices="1", width="30"))
    assert "\x1b[31mx" in printed
    assert len(printed.splitlines()[-1]) < 60
    assert re.search(r'<span style="color: #ff7b72[^"]*">x</span>', coloured(printed))


def test_lines_are_counted_in_each_block_and_their_source_is_known():
    source = """
import inspect
from jax_array_info import live_array_report
class A: pass
def f(): return 1
"""
    assert texts(
        python("import jax.numpy as jnp\nx = 1", devices="1"),
        python(source, devices="1"),
        console("$ true"),
        python("\nkept = jnp.zeros(3)", devices="1"),
        python("print(live_array_report(origins=True).groups[0].origin)", devices="1"),
        python("print(inspect.getsource(f), inspect.getsource(A))", devices="1"),
    )[4:] == [
        "block3.py:2 <module>\n",
        "def f(): return 1\n class A: pass\n\n",
    ]


def test_the_last_expression_shows_its_picture_and_what_subprocesses_and_errors_print_is_shown_too():
    source = """
import os, sys
class Picture:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": "P", "text/html": "<b>P</b>"}
os.system("echo below")
print("error", file=sys.stderr)
Picture()
"""
    assert run_blocks([python(source, devices="1")]) == [(Shown("below\nerror\n"), Shown(html="<b>P</b>"))]


def test_every_colour_of_a_terminal_is_legible():
    def luminance(colour):
        parts = [c / 3294.6 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
        return sum(part * weight for part, weight in zip(parts, (0.2126, 0.7152, 0.0722), strict=True))

    def contrast(colour):
        return (luminance(colour) + 0.05) / (luminance(THEME.background_color) + 0.05)

    colours = [THEME.foreground_color, *(THEME.ansi_colors[number] for number in range(1, 16))]
    assert [(tuple(colour), contrast(colour)) for colour in colours if contrast(colour) < 4.5] == []


def test_text_is_data_in_a_frame():
    shown = frame([Shown("<script>alert(1)</script> [bold]x[/] :smile:", command="echo <b>")])
    assert "<script>" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt; [bold]x[/] :smile:" in re.sub("</?span[^>]*>", "", shown)
    assert "echo &lt;b&gt;" in shown


def test_an_exception_that_is_expected_is_shown_by_its_last_line():
    assert texts(python("import json\njson.loads('')", devices="1", raises="ValueError")) == [
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n"
    ]


def test_notes_of_an_exception_are_not_its_last_line():
    source = "e = ValueError('two\\nlines')\ne.add_note('a note')\nraise e"
    assert texts(python(source, devices="1", raises="ValueError")) == ["ValueError: two\nlines\n"]


def test_a_class_has_no_picture():
    source = (
        "class A:\n    def _repr_mimebundle_(self):\n        1 / 0\n    _repr_html_ = _repr_mimebundle_\nA"
    )
    assert run_blocks([python(source, devices="1")]) == [()]


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (
            python("a = 1\n1 / 0", devices="1"),
            r'File "block1.py", line 2.*\n.*1 / 0.*(.|\n)*ZeroDivisionError',
        ),
        (python("a =", devices="1"), "SyntaxError"),
        (python("1 / 0", devices="1", raises="ValueError"), "ZeroDivisionError"),
        (python("1 / 1", devices="1", raises="ValueError"), "it does not raise ValueError"),
        (python("import sys; sys.exit(3)", devices="1"), "SystemExit: 3"),
        (python("import os; os._exit(3)", devices="1"), "its process ended with 3"),
        (console("$ echo before; exit 4"), r"exits with 4, not with 0\nbefore"),
        (console("$ false | cat"), "exits with 1, not with 0"),
        (console("$ true", exit="1"), "exits with 0, not with 1"),
        (console("echo"), "does not begin with"),
        (python("", file="../outside.py"), "not in the page's folder"),
    ],
)
def test_a_block_that_does_not_do_what_it_says_is_an_error(block, reason):
    with pytest.raises(BlockError, match=reason) as raised:
        run_blocks([block])
    assert raised.value.block is block


@pytest.mark.parametrize(
    "block",
    [python("print('so far')\nwhile True: pass", devices="1"), console("$ echo so far; sleep 100")],
)
def test_a_block_that_does_not_end_is_ended_and_what_it_printed_is_shown(block, monkeypatch):
    monkeypatch.setattr(running, "SECONDS", 5.0)
    with pytest.raises(BlockError, match=r"5 s\)?\nso far\n"):
        run_blocks([block])


def test_a_command_may_have_an_exit_code_of_its_own_and_go_on_in_the_next_line():
    assert texts(console("$ echo one \\\n    two; exit 1", exit="1")) == ["one two\n"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"device": "8"}, "no option device; it has devices, file, fresh, raises, width"),
        ({"devices": "eight"}, 'devices="eight" is no number'),
        ({"devices": "8", "fresh": "1"}, 'fresh="1" is neither yes nor no'),
    ],
)
def test_an_option_that_means_nothing_is_an_error(options, reason):
    with pytest.raises(ValueError, match=reason):
        python("", **options)


def test_settings_of_the_builder_do_not_come_onto_pages(monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    monkeypatch.setenv("JAX_LOG_COMPILES", "1")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("LC_ALL", "C")
    code = "import os; print(sorted(n for n in os.environ if n[:4] in ('JAX_', 'XLA_', 'PYTH')), '\u2713')"
    assert (
        texts(python(code, devices="1"), console(f'$ python -c "{code}"', devices="1"))
        == [
            "['JAX_PLATFORMS', 'PYTHONHASHSEED', 'PYTHONPATH', 'PYTHONUNBUFFERED', 'PYTHONUTF8', 'XLA_FLAGS'] ✓\n"
        ]
        * 2
    )
