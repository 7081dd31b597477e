"""``jai-cli show`` and ``jai-cli explain``."""

import json
import re
import shlex
import textwrap

import pytest

from jax_array_info import from_json, to_text, xla_report
from tests.cli.launching import jai
from tests.rich_render.svg.reading import cells, parsed

pytestmark = pytest.mark.newest


def test_show_draws_a_mesh_that_does_not_exist(call):
    mesh = "data=4,model=2,expert=2"
    options = ("--mesh", mesh, "--spec", "data,model", "--dtype", "bfloat16", "--device", "5")
    done = call("show", "16384,16384", *options)
    assert done.stderr == ""
    assert done.stdout == textwrap.dedent("""\
        ╭─────────────── P('data', 'model') ────────────────╮
        │ shape: (16384, 16384)                             │
        │ dtype: bfloat16                                   │
        │ size: 512.0 MiB                                   │
        │ per device: 64.0 MiB (1/8, 2 replicas)            │
        │ NamedSharding: P('data', 'model')                 │
        │ axis 0 is sharded: device 0 contains 0:4096 (1/4) │
        │                    Total size: 16384              │
        │ axis 1 is sharded: device 0 contains 0:8192 (1/2) │
        │                    Total size: 16384              │
        │ mesh: data=4, model=2, expert=2                   │
        │ replicated over: expert (2 replicas)              │
        ╰───────────────────────────────────────────────────╯
        ┌────────────┬────────────┐
        │ device 0,1 │ device 2,3 │
        ├────────────┼────────────┤
        │ device 4,5 │ device 6,7 │
        ├────────────┼────────────┤
        │ device 8,9 │device 10,11│
        ├────────────┼────────────┤
        │device 12,13│device 14,15│
        └────────────┴────────────┘
        device 5 holds [4096:8192, 0:8192], 64.0 MiB, replicated on device 4
    """)


def test_explain_prints_the_spec_the_pattern_and_the_picture(call):
    text = "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}"
    done = call("explain", text, "--mesh", "x=4,y=2")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == to_text(xla_report(text, {"x": 4, "y": 2})) + "\n"
    assert done.stdout.startswith(f"P('y',) on mesh x=4, y=2 (--spec y)\n{text}\naxis 0: 2 shards, ")


def test_explain_reports_uneven_shards(call):
    done = call("explain", "{devices=[2,1,4]<=[4,2]T(1,0)}", "--shape", "17,16,16", columns=200)
    assert done.returncode == 0
    assert "uneven: axis 0 of shape (17, 16, 16) is not divisible by 2 shards: 17 % 2 = 1. Pad" in done.stdout


def test_several_specs_are_side_by_side(call):
    args = ("show", "1024,1024", "--mesh", "data=4,model=2", "--spec", "data,model", "--spec", "-,data")
    wide = call(*args, columns=160).stdout
    assert "P('data', 'model')" in wide.splitlines()[0]
    assert "P(None, 'data')" in wide.splitlines()[0]
    narrow = call(*args, columns=60).stdout
    assert "P(None, 'data')" not in narrow.splitlines()[0]
    assert max(map(len, narrow.splitlines())) <= 60
    assert max(map(len, call(*args).stdout.splitlines())) <= 80


def test_odd_names_reach_an_ascii_terminal_escaped():
    done = jai("explain", "{devices=[4,2]<=[8]}", "--mesh", "größe=4,b=2", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert r"P('gr\xf6\xdfe', 'b')" in done.stdout


def test_very_narrow_terminals_still_get_a_picture(call):
    done = call("show", "64,64", "--mesh", "a=4,b=4,c=4", "--spec", "b,c", columns=3)
    assert (done.returncode, done.stderr) == (0, "")


def test_printed_pictures_have_the_colors_of_drawings(call, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in (("FORCE_COLOR", "1"), ("COLORTERM", "truecolor"), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    show = ("show", "64,64", "--mesh", "a=4,b=2", "--spec", "b,a")
    drawing = call(*show, "--format", "svg").stdout
    printed = call(*show).stdout
    for fill in {cell.fill for cell in cells(drawing)}:
        red, green, blue = (int(fill[start : start + 2], 16) for start in (1, 3, 5))
        assert f";48;2;{red};{green};{blue}m" in printed
    explained = call(
        "explain", "{devices=[2,4]<=[4,2]T(1,0)}", "--mesh", "a=4,b=2", "--shape", "64,64"
    ).stdout
    assert set(re.findall(r";48;2;[\d;]+m", explained)) == set(re.findall(r";48;2;[\d;]+m", printed))


def test_json_has_one_report_per_line(call):
    done = call(
        "show", "16", "--mesh", "a=4", "--spec", "a", "--spec", "-", "--device", "3", "--format", "json"
    )
    reports = [from_json(line) for line in done.stdout.splitlines()]
    assert [type(report).__name__ for report in reports] == ["ArrayReport", "ShardReport"] * 2
    assert reports[1].index == ((12, 16),)
    texts = ["{replicated}", "{devices=[4]<=[4]}"]
    done = call("explain", f"{{{', '.join(texts)}}}", "--mesh", "a=4", "--format", "json")
    reports = [from_json(line) for line in done.stdout.splitlines()]
    assert [(report.text, report.spec.axes) for report in reports] == [(texts[0], ()), (texts[1], (("a",),))]


@pytest.mark.parametrize(
    ("args", "problems"),
    [
        (
            shlex.split(
                "show 17,19 --mesh data=8,model=2 --spec modle,data,data --spec data --spec P(x --dtype foo"
            ),
            [
                "'foo' is not an array dtype: use one such as float32, bfloat16 or int4",
                "'modle' is not a mesh axis: the mesh has 'data', 'model'",
                "'data' is used twice",
                "axis 0 of shape (17, 19) is not divisible by mesh axis 'data' of size 8: 17 % 8 = 1. Pad it to 24",
                "--spec cannot be read: expected ',' or ')'\n  P(x\n     ^",
            ],
        ),
        (
            ["show", "17,x", "--mesh", "data=y", "--spec", "-,,", "--dtype", "foo"],
            [
                "SHAPE cannot be read: expected a number\n  17,x\n     ^",
                "--mesh cannot be read: expected a number\n  data=y\n       ^",
                "--spec cannot be read",
                "'foo' is not an array dtype",
            ],
        ),
        (
            ["show", "16", "--mesh", "a=1048577", "--spec", ""],
            ["1048577 devices exceed the limit of 1048576"],
        ),
        (
            ["show", "16", "--mesh", "a=4", "--spec", "a", "--device", "4"],
            ["device 4 is not in the mesh a=4: its devices are 0 to 3"],
        ),
        (
            ["show", "17,19", "--mesh", "data=8,model=2", "--spec", "data,modle", "--device", "99"],
            ["'modle' is not", "axis 0 of shape (17, 19) is not divisible", "device 99 is not in the mesh"],
        ),
        (
            ["explain", "{devices=[99999999999]<=[99999999999]}"],
            ["99999999999 devices exceed the limit of 1048576"],
        ),
        (
            ["explain", "{maximal device=9}", "--mesh", "a=4"],
            ["device 9 is not in the mesh a=4 of 4 devices"],
        ),
        (["show", "16", "--mesh", "a=4"], ["Missing option '--spec'"]),
        (["explain", "{devices=[4]<=[8]}"], ["TEXT cannot be read: 4 tiles, but 8 devices"]),
        (
            ["explain", "{devices=[4]<=[4]}", "--mesh", "a=8"],
            ["the mesh a=8 has 8 devices, but the sharding has 4"],
        ),
        (
            ["explain", "{devices=[4]<=[4]}", "--shape", "4,4"],
            ["the sharding is for 1 axis, but the array has 2 axes: shape (4, 4)"],
        ),
        (
            ["explain", "{x}", "--mesh", "a", "--shape", "y"],
            ["TEXT cannot", "--mesh cannot", "--shape cannot"],
        ),
        (["mesh", "data=2,model=x"], ["MESH"]),
        (
            ["mesh", "data=8", "--hosts", "3"],
            ["8 devices cannot be divided among 3 hosts: use a divisor of 8"],
        ),
        (["mesh", "data=8", "--hosts", "0"], ["8 devices cannot be divided among 0 hosts"]),
        (["mesh", "data=8", "--dcn", "data=2"], ["pass topology, too"]),
        (["mesh", "data=8", "--topology", "v9-8"], ["v9-8"]),
        (["mesh", "data=8", "--topology", "v5p-8"], ["v5p-8 has 4 devices, but the mesh has 8"]),
        (["mesh", "data=4", "--topology", "v5p-8", "--hosts", "2"], ["pass either topology or hosts"]),
    ],
)
def test_all_bad_input_is_reported_together_and_nothing_is_printed(call, args, problems):
    done = call(*args)
    assert (done.returncode, done.stdout) == (2, "")
    for problem in problems:
        assert problem in done.stderr
    assert "Traceback" not in done.stderr


def test_a_million_devices(call):
    done = call("show", "1048576,1048576", "--mesh", "a=1024,b=1024", "--spec", "a,b", "--device", "1048575")
    assert done.returncode == 0
    assert "per device: 4.0 MiB (1/1048576)" in done.stdout
    assert "axis 0: 1024 shards, shard k on devices 0-1023 + 1024k" in done.stdout


@pytest.mark.parametrize("form", ["text", "json", "svg", "html"])
def test_a_shape_of_any_size_is_shown(call, form):
    shape = ",".join([str(10**18 - 2)] * 30)
    done = call("show", shape, "--mesh", "a=2", "--spec", ",".join("-" * 30), "--format", form)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("columns", ["99999999999999999999", "0", "-5", "x"])
def test_impossible_values_of_columns_are_tolerated(call, columns):
    # The picture of three sharded axes has rules as wide as the terminal.
    done = call("show", "8,8,8", "--mesh", "a=2,b=2,c=2", "--spec", "a,b,c", columns=columns)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 10_000


def test_the_code_of_a_finding_is_explained(call):
    done = call("explain", "jai101")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        f"── JAI101 replicated-leaf {'─' * 54}\nLeaves are replicated over mesh axes"
    )
    assert '\n    "head": jax.ShapeDtypeStruct((1024, 32000), jnp.float32),\n' in done.stdout
    assert call("explain", "replicated-leaf").stdout == done.stdout
    narrow = call("explain", "JAI101", columns=50).stdout
    assert max(map(len, narrow.splitlines())) <= 50
    found = json.loads(call("explain", "JAI101", "--format", "json").stdout)
    assert (found["name"], found["text"][:8]) == ("replicated-leaf", "# JAI101")
    assert "What to do" in call("explain", "JAI101", "--format", "html").stdout
    parsed(call("explain", "JAI101", "--format", "svg").stdout)
    for args in (("JAI999",), ("JAI101", "--mesh", "x=8"), ("JAI101", "--shape", "8")):
        assert call("explain", *args).returncode == 2
    assert "use JAI101, JAI102, " in call("explain", "JAI999").stderr
    assert "use full-replication\n" in call("explain", "full-replicaton").stderr


def test_mesh_draws_hosts_and_says_what_each_axis_crosses(call):
    assert "━ 4 hosts" in call("mesh", "data=2,model=8", "--hosts", "4").stdout
    made = json.loads(call("mesh", "data=2,model=8", "--hosts", "4", "--format", "json").stdout)
    assert [each["leaves_host"] for each in made["links"]] == ["always", "always"]


def test_a_type_as_it_is_printed_is_a_shape_with_its_dtype(call):
    plan = ("--mesh", "data=4,model=2", "--spec", "data,model")
    printed = call("show", "bfloat16[8192,8192]", *plan)
    assert printed.stdout == call("show", "8192,8192", *plan, "--dtype", "bfloat16").stdout
    assert call("show", "bf16[8192,8192]", *plan).stdout == printed.stdout
    assert "float32" in call("show", "8192,8192", *plan).stdout
    other = call("show", "bfloat16[8192,8192]", *plan, "--dtype", "int8")
    assert "SHAPE has the dtype bfloat16: omit --dtype int8" in other.stderr
    assert "jai-cli explain 'f32[8@data,4]'" in call("show", "f32[8@data,4]", *plan).stderr
