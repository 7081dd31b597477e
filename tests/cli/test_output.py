"""``--format`` and ``--output`` of every command."""

import json
import os
import re
import shlex
from pathlib import Path

import click
import pytest

from jax_array_info import from_json, planned_report, to_svg, xla_report
from jax_array_info.engine.render import shown_blocks
from jax_array_info.layouts import parse_spec
from jax_array_info_cli.commands import jai_cli
from jax_array_info_core.facts.pages import REPORTS, page
from jax_array_info_core.facts.pages.blocks import Sentence
from tests.cli.launching import jai
from tests.goldens import NAMES, stored
from tests.rich_render.svg.reading import cells, parsed, words

pytestmark = pytest.mark.once_per_version

SHOW = ("show", "16,16", "--mesh", "a=4,b=2", "--spec", "a,b")
EXPLAIN = ("explain", "{devices=[4,2]<=[8]}")


ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A new working directory for each test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_svg_and_html_go_to_stdout_or_to_a_file(call, folder):
    printed = call(*EXPLAIN, "--format", "svg").stdout
    assert printed == to_svg(xla_report("{devices=[4,2]<=[8]}")) + "\n"
    done = call(*EXPLAIN, "--output", "x.svg")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (folder / "x.svg").read_text("utf-8") == printed
    page = call(*SHOW, "--format", "html").stdout
    assert page.startswith("<!DOCTYPE html>")
    assert len(cells(page.partition("\n")[2].replace("<!DOCTYPE html>", ""))) == 8


def test_the_file_suffix_selects_the_format_unless_format_is_given(call, folder):
    for name in ("x.json", "x.txt", "x.html", "x.svg", "x"):
        call(*SHOW, "--output", name)
    assert type(from_json((folder / "x.json").read_text())).__name__ == "ArrayReport"
    assert (folder / "x.txt").read_text("utf-8") == call(*SHOW).stdout == (folder / "x").read_text("utf-8")
    assert (folder / "x.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    parsed((folder / "x.svg").read_text("utf-8"))
    call(*SHOW, "--format", "json", "--output", "x.svg")
    assert json.loads((folder / "x.svg").read_text())["report"] == "ArrayReport"
    assert call(*SHOW, "--output", "-").stdout == call(*SHOW).stdout


def test_the_command_under_the_picture_in_the_docs_draws_that_picture(call, folder):
    page = (ROOT / "docs" / "pictures.md").read_text("utf-8")
    ((picture, line),) = re.findall(r"^!\[.*\]\((.+)\)\n\n```sh\njai-cli (.+)\n```$", page, re.MULTILINE)
    assert call(*shlex.split(line)).returncode == 0
    assert (folder / "plan.svg").read_bytes() == (ROOT / "docs" / picture).read_bytes()


def test_several_specs_are_side_by_side_in_one_drawing(call):
    drawing = call(*SHOW, "--spec", "-,a", "--device", "3", "--format", "svg").stdout
    drawn = cells(drawing)
    assert len(drawn) == 8 + 4
    assert min(cell.x for cell in drawn[8:]) > max(cell.x + cell.width for cell in drawn[:8])
    assert [line for line in words(drawing) if line.startswith("device 3 holds")] == [
        "device 3 holds [4:8, 8:16], 128.0 B",
        "device 3 holds [0:16, 4:8], 256.0 B, replicated on device 2",
    ]


@pytest.mark.parametrize("written_as", ["svg", "html"])
def test_the_same_device_has_the_same_color_in_all_drawings(call, written_as):
    specs = ("--spec", "x,y", "--spec", "y,x", "--spec", "-,x+y")
    document = call("show", "8,8", "--mesh", "x=2,y=4", *specs, "--format", written_as).stdout
    drawn = cells(document.removeprefix("<!DOCTYPE html>"))
    assert len(drawn) == 3 * 8
    colors = {(cell.title.split("\n")[0], cell.fill) for cell in drawn}
    assert len(colors) == len({color for _, color in colors}) == 8


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ([*SHOW, "--format", "png"], "'png' is not one of 'text', 'json', 'svg', 'html'"),
        (
            [*SHOW, "--output", "x.png"],
            ".txt, .json, .svg, .html, or set --format; for a PNG, call save_picture",
        ),
        ([*SHOW, "--output", "plan.htm"], "unknown file suffix .htm"),
        ([*SHOW, "--output", ""], "--output needs a file name"),
        (["run", "--format", "svg", "x.py"], "--format svg needs --output FILE"),
        (
            ["run", "--quiet", "--output", "x.svg", "x.py"],
            "--quiet drops the table that --format and --output write",
        ),
        (
            ["run", "--processes", "2", "--output", "x.svg", "x.py"],
            "write the table of one process, but there are 2",
        ),
    ],
)
def test_contradictory_options_are_rejected_with_a_fix(call, args, problem, folder):
    done = call(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr
    assert not list(folder.iterdir())


def test_a_file_that_cannot_be_written_is_a_one_line_error(call):
    done = call(*SHOW, "--output", os.path.join("nowhere", "\x1b[31m.svg"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "Error: nowhere/\\x1b[31m.svg: No such file or directory\n"


@pytest.mark.parametrize(("output", "reason"), [("nowhere/x.svg", "No such file"), (".", "Is a directory")])
def test_a_program_does_not_start_if_its_output_file_cannot_be_created(call, folder, output, reason):
    (folder / "program.py").write_text("open('ran', 'w')")
    done = call("run", "--output", output, "program.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error: {output}: {reason}")
    assert not (folder / "ran").exists()


def test_drawings_are_utf_8_even_on_an_ascii_terminal(folder):
    args = ("show", "4", "--mesh", "größe=2", "--spec", "größe", "--format", "svg")
    done = jai(*args, PYTHONIOENCODING="ascii")
    expected = planned_report((4,), {"größe": 2}, parse_spec("größe"), name="P('größe',)")
    assert done.stdout == to_svg(expected) + "\n"


@pytest.mark.own_process
def test_a_tour_and_a_run_are_written_to_files(folder):
    assert jai("demo", "--devices", "2", "--output", "tour.svg").returncode == 0
    said = words((folder / "tour.svg").read_text("utf-8"))
    assert {"CPU 1", "compilations"} <= set(said)
    (folder / "program.py").write_text(
        "import os, jax\nx = jax.numpy.zeros((8, 8))\nprint('hello')\nos.chdir('/')\n"
    )
    done = jai("run", "--devices", "2", "--output", "live.svg", "program.py")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert "(8, 8)" in words((folder / "live.svg").read_text("utf-8"))
    (folder / "gone").mkdir()
    (folder / "program.py").write_text("import jax, os\njax.devices()\nprint('hello')\nos.rmdir('gone')\n")
    done = jai("run", "--devices", "2", "--output", "gone/live.svg", "program.py")
    assert (done.returncode, done.stdout) == (1, "hello\n")
    assert done.stderr.endswith("gone/live.svg: No such file or directory\n")


@pytest.mark.newest
def test_a_command_has_the_option_that_its_page_names():
    """But the arrays that ``show`` plans have no lists."""
    context = click.Context(jai_cli)
    named = set()
    for name in NAMES:
        report, options = stored(name)
        options.pop("max_rows", None)
        blocks = shown_blocks([*page(report, **options)], 0, "shell")
        if any("--max-rows" in block.text for block in blocks if isinstance(block, Sentence)):
            named.add(REPORTS[type(report).__name__].command)
    for name in named - {"", "show"}:
        assert "--max-rows" in jai_cli.get_command(context, name).get_help(context)
    assert len(named) > 8
