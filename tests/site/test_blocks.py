"""Tests of running the blocks of a page."""

import os
import re

import pytest

from docs_hooks import running
from docs_hooks.blocks import blocks_of
from docs_hooks.running import BlockError, Shown, code_as_it_is
from docs_hooks.terminal import THEME, colored, frame

COUNT = "import jax; print(len(jax.devices()))"


def block(language, source, options):
    info = " ".join([language, *(f'{name}="{value}"' for name, value in options.items())])
    [placed] = blocks_of(f"``````{info}\n{source}\n``````")
    return placed.block


def python(source, **options):
    return block("python", source, options)


def console(source, **options):
    return block("console", source, options)


def run(*blocks):
    return running.run_blocks.__wrapped__(blocks, None)


def texts(*blocks):
    return ["".join(shown.text for shown in pieces) for pieces in run(*blocks)]


def test_blocks_share_a_process_until_a_fresh_one_and_have_separate_outputs():
    assert texts(
        python(f"{COUNT}; x = 5", devices="2"),
        python("x += 1; print(x)", devices="2"),
        python(f"{COUNT}; print('x' in globals())", devices="3", fresh="yes"),
    ) == ["2\n", "6\n", "3\nFalse\n"]


def test_files_and_commands_share_a_folder_whose_path_is_hidden():
    assert texts(
        python("import os; print(os.getcwd(), __file__)", devices="1"),
        python("print(6 * 7)\n", file="six.py"),
        console("$ python six.py > six.txt\n$ cat six.txt\n$ pwd"),
        python("print(open('six.txt').read())", devices="1"),
    ) == [". example.py\n", "", "42\n.\n", "42\n\n"]


def test_output_has_colors_and_the_width_of_the_block():
    code = "from rich import print\nfrom rich.rule import Rule\nprint('[red]x[/]', Rule())"
    [printed] = texts(python(code, devices="1", width="30"))
    assert "\x1b[31mx" in printed
    assert len(printed.splitlines()[-1]) < 60
    assert re.search(r'<span style="color: #ff7b72[^"]*">x</span>', colored(printed))


def test_line_numbers_are_per_block_and_source_code_is_available():
    source = """
import inspect
from jax_array_info import live_array_report
def f(): return 1
"""
    assert texts(
        python("import jax.numpy as jnp\nx = 1", devices="1"),
        python(source, devices="1"),
        console("$ true"),
        python("\nkept = jnp.zeros(3)", devices="1"),
        python("print(live_array_report(origins=True).groups[0].origin)", devices="1"),
        python("print(inspect.getsource(f))", devices="1"),
    )[4:] == [
        "block3.py:2 <module>\n",
        "def f(): return 1\n\n",
    ]


def test_output_includes_pictures_of_expressions_subprocesses_and_stderr():
    source = """
import os, sys
class Picture:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": "P", "text/html": "<b>P</b>"}
os.system("echo below")
print("error", file=sys.stderr)
Picture()
"""
    [shown] = run(python(source, devices="1"))
    assert shown == [Shown("below\nerror\n"), Shown(html="<b>P</b>", plain="P")]


def test_every_color_of_a_terminal_is_legible():
    def luminance(color):
        parts = [c / 3294.6 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in color]
        return sum(part * weight for part, weight in zip(parts, (0.2126, 0.7152, 0.0722), strict=True))

    def contrast(color):
        return (luminance(color) + 0.05) / (luminance(THEME.background_color) + 0.05)

    colors = [THEME.foreground_color, *(THEME.ansi_colors[number] for number in range(1, 16))]
    assert [(tuple(color), contrast(color)) for color in colors if contrast(color) < 4.5] == []


def test_text_in_a_frame_is_escaped():
    shown = frame([Shown("<script>alert(1)</script> [bold]x[/] :smile:", command="echo <b>")])
    assert "<script>" not in shown
    assert "&lt;script&gt;alert(1)&lt;/script&gt; [bold]x[/] :smile:" in re.sub("</?span[^>]*>", "", shown)
    assert "echo &lt;b&gt;" in shown


def test_an_expected_exception_shows_only_its_last_line():
    assert texts(python("import json\njson.loads('')", devices="1", raises="ValueError")) == [
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n"
    ]


def test_an_expected_exception_is_shown_without_its_notes():
    source = "e = ValueError('two\\nlines')\ne.add_note('a note')\nraise e"
    assert texts(python(source, devices="1", raises="ValueError")) == ["ValueError: two\nlines\n"]


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (
            python("a = 1\n1 / 0", devices="1"),
            r'File "block1.py", line 2.*\n.*1 / 0.*(.|\n)*ZeroDivisionError',
        ),
        (python("a =", devices="1"), "SyntaxError"),
        (python("import os; os.kill(os.getpid(), 9)", devices="1"), "its process ended with -9"),
        (python("1 / 0", devices="1", raises="ValueError"), "ZeroDivisionError"),
        (python("1 / 1", devices="1", raises="ValueError"), "the block does not raise ValueError"),
        (python("import sys; sys.exit(3)", devices="1"), "its process ended with 3"),
        (python("import os; os._exit(3)", devices="1"), "its process ended with 3"),
        (console("$ echo before; exit 4"), r"\nbefore\n.*exits with 4, not with 0"),
        (console("$ false | cat"), "exits with 1, not with 0"),
        (console("$ true", exit="1"), "exits with 0, not with 1"),
    ],
)
def test_a_block_that_fails_or_contradicts_its_options_is_an_error(block, reason):
    with pytest.raises(BlockError, match=reason) as raised:
        run(console("$ true"), block, console("$ true"))
    assert raised.value.number == 1


def test_a_different_number_of_devices_needs_a_fresh_process():
    with pytest.raises(BlockError, match='fresh="yes" starts a new one'):
        run(python("1", devices="1"), python("2", devices="2"))


@pytest.mark.parametrize(
    "block",
    [python("print('so far')\nwhile True: pass", devices="1"), console("$ echo so far; sleep 100")],
)
def test_a_block_that_times_out_is_killed_and_its_output_is_shown(block, monkeypatch, tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text(re.sub("^SECONDS = .*", "SECONDS = 5", running.WORKER.read_text(), flags=re.M))
    monkeypatch.setattr(running, "WORKER", worker)
    with pytest.raises(BlockError, match=r"\nso far\n(.|\n)*(Timeout|timed out)"):
        run(block)


def test_a_command_may_have_an_expected_exit_code_and_continuation_lines():
    assert texts(console("$ echo one \\\n    two; exit 1", exit="1")) == ["one two\n"]


def test_results_are_cached_until_a_block_or_the_code_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "PACKAGES", tmp_path)
    (tmp_path / "module.py").write_text("x = 1")
    random, other = python("import os; print(os.urandom(8))", devices="1"), console("$ true")
    first = running.run_blocks((random,), code_as_it_is())
    assert running.run_blocks((random,), code_as_it_is()) == first
    assert running.run_blocks((random, other), code_as_it_is())[0] != first[0]
    os.utime(tmp_path / "module.py", ns=(1, 1))
    assert running.run_blocks((random,), code_as_it_is()) != first


def test_a_later_build_runs_what_changed_and_in_ci_everything(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "KEPT", tmp_path / "pages")
    random = python("import os; print(os.urandom(8))", devices="1")

    def built(*blocks, code=1):
        return running.run_blocks.__wrapped__(blocks, code)

    monkeypatch.delenv("CI", raising=False)
    first = built(random)
    assert built(random) == first
    assert built(random, python("1", devices="1"))[0] != first[0]
    assert built(random, code=2) != first
    monkeypatch.setenv("CI", "1")
    assert built(random, code=2) != built(random, code=2)


def test_environment_variables_of_the_build_do_not_affect_pages(monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    monkeypatch.setenv("JAX_LOG_COMPILES", "1")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("LC_ALL", "C")
    code = "import os; print(sorted(n for n in os.environ if n[:4] in ('JAX_', 'XLA_', 'PYTH')), '\u2713')"
    names = (
        "'JAX_PLATFORMS', 'PYTHONHASHSEED', 'PYTHONPATH', 'PYTHONUNBUFFERED', 'PYTHONUTF8', 'PYTHON_COLORS', "
        "'XLA_FLAGS'"
    )
    assert texts(python(code, devices="1"), console(f'$ python -c "{code}"')) == [f"[{names}] ✓\n"] * 2
