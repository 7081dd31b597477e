"""Modules that a command imports: of pages its own, of commands itself."""

import json
from pathlib import Path

import pytest

from jax_array_info_core.facts.pages import REPORTS
from jax_array_info_core.facts.reports.record import RecordSample
from tests.cli.launching import jai
from tests.core.jobs.hosts.samples import USUAL, write
from tests.core.jobs.timeline.samples import START, record_start, write_record

pytestmark = [pytest.mark.own_process, pytest.mark.newest]

STORED = Path(__file__).parents[1] / "data" / "pages"
PAGES = {shown.page.partition(".")[0] for shown in REPORTS.values()}
CODE = """
import sys
from jax_array_info_cli import main
try:
    main()
finally:
    sys.stdout.flush()
    print("imported:", *sys.modules)
"""
MADE = {
    "show": ("show 8,8 --mesh x=2 --spec x", {"arrays"}),
    "explain a sharding": ("explain {devices=[4,2]<=[8]} --mesh x=4,y=2", {"arrays"}),
    "explain a code": ("explain JAI101", {"explained"}),
    "mesh": ("mesh data=2,fsdp=4 --hosts 2", {"arrays"}),
    "tree": ("tree TreeReport.json", {"trees"}),
    "check": ("check TreeReport.json --allow-empty", {"checks"}),
    "diff of trees": ("diff TreeReport.json TreeReport.json", {"tree_diffs"}),
    "diff of programs": ("diff ProgramReport.json ProgramReport.json", {"program_diffs"}),
    "log": ("log empty.log", {"logs"}),
    "hosts": ("hosts hosts", {"hosts"}),
    "top": ("top record", set()),
}
"""Commands that need no compilation, and the pages that they import."""
HELP = {
    "jax_array_info_cli": "commands output reporting standard_streams",
    "jax_array_info_core": "base base.config base.errors base.names base.quantities base.text",
}
SHOW = {
    "jax_array_info_cli": f"{HELP['jax_array_info_cli']} commands.show",
    "jax_array_info_core": f"{HELP['jax_array_info_core']} arrays arrays.plans"
    " base.grouping base.notebooks errors facts facts.pages facts.pages.arrays"
    " facts.pages.blocks facts.pages.folds facts.pages.words facts.reports facts.reports.array geometry"
    " geometry.layouts geometry.layouts.dtypes geometry.layouts.grid geometry.layouts.layout"
    " geometry.layouts.notation geometry.layouts.spec layouts reports",
    "jax_array_info": "engine engine.lines engine.render pictures pictures.fitting"
    " pictures.palette pictures.subject pictures.text pictures.text_plan style",
}
"""All modules of the cheapest calls, below each package: one import more is a chain of many."""
MODULES = {"check": "tree", "diff": "tree", "explain": "show", "mesh": "show"} | dict.fromkeys(
    ("hosts", "log", "top"), "recorded"
)
"""Modules of commands that share one."""
"""Pages that are part of another: a program with ``timeline=True`` has its timeline."""


MOST = {"log five.log": 75, "memory record": 75, "top record": 58}
"""The most modules that commands import which read what a job wrote."""
ROOMS = (
    "trees.stored arrays.holders arrays.live programs.recompiles programs.advice facts.reports.all_reports"
    " facts.reports.program facts.reports.timeline facts.reports.live programs.compiled compat"
)
"""Rooms and modules that no log needs."""


def imported(words, folder):
    """Return the names of our modules that a command imports; it imports no JAX."""
    done = jai(*words.split(), cwd=folder, code=CODE)
    assert "imported:" in done.stdout, done.stderr
    assert done.stderr == ""
    assert "Usage: jai-cli" in done.stdout or "--help" not in words
    found = set(done.stdout.rpartition("imported:")[2].split())
    assert found.isdisjoint({"jax", "rich"} if words.startswith("--") or "--help" in words else {"jax"})
    return {name for name in found if "jax_array_info" in name}


def below(package, modules):
    return {name.removeprefix(f"{package}.") for name in modules if name.startswith(f"{package}.")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory with a saved report of each class, and a log."""
    folder = tmp_path_factory.mktemp("imports")
    for path in sorted(STORED.glob("*.json"), reverse=True):
        report = json.loads(path.read_text("utf-8"))["report"]
        (folder / f"{report['report']}.json").write_text(json.dumps(report))
    (folder / "empty.log").write_text("")
    (folder / "five.log").write_text("step 1\nstep 2\nRuntimeError: boom\nstopped\nended\n")
    (folder / "hosts").mkdir()
    write(folder / "hosts", USUAL, 0, 1)
    write_record(folder / "record", [record_start(), RecordSample(time=START, in_use=(1,))])
    return folder


@pytest.mark.parametrize(("words", "pages"), MADE.values(), ids=MADE)
def test_a_command_imports_its_own_page_and_no_other_command(words, pages, folder):
    found = imported(words, folder)
    assert below("jax_array_info_core.facts.pages", found) & PAGES == pages
    command = words.split()[0]
    assert below("jax_array_info_cli.commands", found) == {MODULES.get(command, command)}


@pytest.mark.parametrize("name", [name for name in REPORTS if name != "Code"])
def test_a_saved_report_needs_its_own_page(name, folder):
    found = imported(f"report {name}.json", folder)
    own = REPORTS[name].page.partition(".")[0]
    assert below("jax_array_info_core.facts.pages", found) & PAGES == {own}
    assert below("jax_array_info_cli.commands", found) == {"recorded"}


@pytest.mark.parametrize(
    ("words", "commands"),
    [
        ("--help", set()),
        ("-h", set()),
        ("--version", set()),
        ("run --help", {"run"}),
        ("demo --help", {"run"}),
    ],
)
def test_help_imports_no_page_and_no_other_command(words, commands, folder):
    found = imported(words, folder)
    assert below("jax_array_info_cli.commands", found) == commands
    assert not below("jax_array_info_core.facts.pages", found)
    assert not any(name.startswith("jax_array_info.") for name in found)


@pytest.mark.parametrize(("words", "most"), MOST.items())
def test_a_command_imports_what_its_answer_needs(words, most, folder):
    modules = imported(words, folder)
    assert len(modules) <= most, sorted(modules)
    if words.startswith("log"):
        assert below("jax_array_info_core", modules).isdisjoint(ROOMS.split())
        assert not any("pictures" in name or "all_reports" in name for name in modules)


@pytest.mark.parametrize(
    ("words", "modules"), [("--help", HELP), ("show 4096,4096 --mesh a=64,b=64 --spec a,b", SHOW)]
)
def test_the_cheapest_commands_import_these_modules_and_no_other(words, modules, folder):
    expected = {f"{package}.{name}" for package, names in modules.items() for name in names.split()}
    assert imported(words, folder) == expected | {*modules}


def test_a_panel_needs_at_most_60_modules_and_of_reports_only_its_own():
    code = """
import sys
import jax.numpy as jnp
from jax_array_info import sharding_info
sharding_info(jnp.zeros((8, 4)))
print("imported:", *sys.modules)
"""
    found = {
        name for name in jai(code=code).stdout.rpartition("imported:")[2].split() if "jax_array_info" in name
    }
    assert len(found) <= 60
    assert below("jax_array_info_core.facts.reports", found) == {"array"}
