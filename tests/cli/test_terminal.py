"""Every command, its help and its errors, on each type of terminal and into pipes."""

import pytest

from tests.cli.launching import MAIN, jai, write_program
from tests.cli.terminals import run_into_pipe, run_on_terminal
from tests.core.jobs.hosts.samples import OTHER, USUAL, write

pytestmark = [pytest.mark.own_process, pytest.mark.newest]

PROGRAM = """
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from jax_array_info import sharding_info, sharding_vis
x = jax.device_put(jax.numpy.ones((64, 64)), NamedSharding(Mesh(jax.devices(), ("größe",)), P("größe")))
sharding_info(x, "größe")
sharding_vis(x, max_width=70)
"""
SHOW = ("show", "16,16", "--mesh", "größe=4", "--spec", "größe")
FUNCTION = """
import jax
def f(x, w):
    return jax.numpy.tanh(x @ w).sum()
"""
COMPILED = ("program", "größe.py:f", "--mesh", "größe=2")
ARRAYS = ("--arg", "f32[8,8]@-,größe", "--arg", "f32[8,8]@größe")
XLA = "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}"

PICTURES = {
    "show": SHOW,
    "explain": ("explain", XLA, "--mesh", "größe=4,y=2"),
    "tree": ("tree", "plan.json"),
    "check": ("check", "plan.json"),
    "diff": ("diff", "plan.json", "new.json"),
    "devices": ("devices", "--devices", "2"),
    "hosts": ("hosts", "hosts"),
    "profile": ("profile", "memory.prof"),
    "log": ("log", "train.log"),
    "run": ("run", "--devices", "2", "program.py"),
    "run in processes": ("run", "--devices", "1", "--processes", "2", "program.py"),
    "program": (*COMPILED, *ARRAYS),
    "layers": ("layers", *COMPILED[1:], *ARRAYS),
    "why": ("why", *COMPILED[1:], *ARRAYS),
    "demo": ("demo", "--devices", "2"),
}
WORDS = {
    "json": (*SHOW, "--format", "json"),
    "help": ("--help",),
    "help of run": ("run", "--help"),
    "error": ("show", "16,17", "--mesh", "größe=4", "--spec", "-,größe"),
    "error of run": ("run", "größe.py"),
    "error of program": ("program", "größe\x1b[31m.py:f", "--mesh", "x=2"),
    "error of tree": ("tree", "größe\x1b[31m.json"),
    "unexpected word": ("devices", "größe\x1b[31m"),
}

SOME = {name: PICTURES[name] for name in ("show", "tree", "run", "program")}
"""Commands without JAX, with a program of the user, and with its devices: all print on the same console."""

pictures = pytest.mark.parametrize("args", PICTURES.values(), ids=PICTURES.keys())
some = pytest.mark.parametrize("args", SOME.values(), ids=SOME.keys())
words = pytest.mark.parametrize("args", WORDS.values(), ids=WORDS.keys())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory with a program, a memory profile and two trees."""
    import jax

    from jax_array_info import save_tree, tree_report
    from jax_array_info.layouts import Spec

    folder = tmp_path_factory.mktemp("terminal")
    write_program(folder, PROGRAM)
    write_program(folder, FUNCTION, "größe.py")
    held = jax.numpy.ones(300)
    jax.profiler.save_device_memory_profile(str(folder / "memory.prof"))
    held.delete()
    log = "Involuntary full rematerialization of größe\nSome donated buffers were not usable: float32[8,64]."
    (folder / "train.log").write_text(log, encoding="utf-8")
    tree = {"größe": {"w\x1b[31m": jax.ShapeDtypeStruct((4096, 64), "float32")}}
    for name, axes in {"plan.json": (), "new.json": (("größe",),)}.items():
        save_tree(tree_report(tree, mesh={"größe": 4}, specs=Spec(axes)), folder / name)
    (folder / "hosts").mkdir()
    for process, report in enumerate((USUAL, USUAL, OTHER)):
        write(folder / "hosts", report, process, 4)
    return folder


def code_of(args):
    """Return the exit code of a command: ``check``, ``diff`` and ``hosts`` find something."""
    return int(args[0] in ("check", "diff", "hosts"))


@pictures
def test_on_a_terminal_output_has_colors_and_fits_the_width(args, folder):
    printed = run_on_terminal(*args, columns=50, cwd=folder)
    assert printed.code == code_of(args), printed.text
    assert printed.escapes
    assert printed.width <= 50


@some
@pytest.mark.parametrize("variable", ["NO_COLOR=1", "TERM=dumb"])
def test_without_colors_output_fits_the_width_and_a_dumb_terminal_gets_no_escapes(args, variable, folder):
    name, value = variable.split("=")
    printed = run_on_terminal(*args, columns=60, cwd=folder, **{name: value})
    assert printed.code == code_of(args), printed.text
    assert not (printed.has_colors if name == "NO_COLOR" else printed.escapes)
    assert printed.width <= 60


@pictures
def test_a_pipe_gets_no_escapes_the_width_in_columns_and_only_ascii_if_the_encoding_is_ascii(args, folder):
    printed = run_into_pipe(*args, cwd=folder, COLUMNS="50", PYTHONIOENCODING="ascii")
    assert printed.code == code_of(args), printed.text
    assert "\x1b" not in printed.text
    assert printed.text.isascii()
    if args[0] == "log":  # a pipe has its first line whole, for grep
        assert max(map(len, printed.text.splitlines()[1:])) <= 50
    else:
        assert printed.width <= 50


@some
def test_force_color_colors_pipes_and_columns_0_is_ignored(args, folder):
    printed = run_into_pipe(*args, cwd=folder, FORCE_COLOR="1", COLUMNS="0")
    assert printed.code == code_of(args), printed.text
    assert printed.escapes
    assert 40 < printed.width <= 80


@words
def test_text_is_plain_and_ascii_if_the_encoding_is_ascii(args, folder):
    printed = run_into_pipe(*args, cwd=folder, PYTHONIOENCODING="ascii", FORCE_COLOR="1")
    assert printed.text.isascii()
    assert "\x1b" not in printed.text


@words
def test_escapes_in_arguments_never_reach_the_terminal(args, folder):
    assert "\x1b" not in run_on_terminal(*args, columns=80, cwd=folder).text


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("command", [(), ("show",), ("run",), ("program",), ("check",), ("tree",)])
def test_help_fits_the_terminal_up_to_80_columns(call, command, columns):
    text = call(*command, "--help", columns=columns).stdout
    prose = text.partition("  Examples:")[0]
    assert max(map(len, prose.splitlines())) <= min(columns, 80)
    assert max(map(len, text.splitlines())) <= 80


NEED_JAX = {"all devices": 1, "devices": 1, "demo": 1, "layers": 2, "program": 2, "why": 2}
"""Exit code without JAX. ``run`` is the user's program."""


@pytest.mark.parametrize("name", ["all devices", *(name for name in PICTURES if not name.startswith("run"))])
def test_without_jax_a_command_answers_or_says_what_to_install(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    args = PICTURES.get(name, ("devices",))
    said = "Error: this command needs JAX, which is not installed: pip install jax\n"
    done = jai(*args, code=f"import sys; sys.modules['jax'] = None; {MAIN}")
    if name in NEED_JAX:
        assert (done.returncode, done.stdout, done.stderr) == (NEED_JAX[name], "", said)
    else:
        assert (done.returncode, done.stderr) == (code_of(args), "")
