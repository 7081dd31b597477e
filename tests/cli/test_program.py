"""``jai-cli program``: functions of the user's files, and their arguments."""

import json
import re
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import jax_array_info_core
from jax_array_info import config, from_json, program_report
from jax_array_info.reports import LeftOut, OutOfMemory
from tests.cli.launching import jai, write_program
from tests.cli.step_file import MESH, STEP  # noqa: F401

pytestmark = [
    pytest.mark.newest,
    pytest.mark.needs_devices(8),
    pytest.mark.usefixtures("folder"),
]

COMMAND = "program"


def mesh():
    return Mesh(np.array(jax.devices()[:8]).reshape(2, 2, 2), ("data", "fsdp", "tensor"))


def specs(values):
    return {value.path: str(value.asked.spec) for value in values}


def test_the_report_is_that_of_program_report(report, folder):
    found = report("step.py:step", *MESH, "--args-from", "step.py:abstract")
    assert (found.name, found.mesh.shape, found.sent.nbytes) == (
        "step",
        {"data": 2, "fsdp": 2, "tensor": 2},
        2_883_584,
    )
    assert found.origin.file == str(folder / "step.py")
    assert {line.origin.file for line in found.collectives if line.origin} == {str(folder / "step.py")}
    assert specs(found.arguments) == {
        "params/wi": "P('fsdp', 'tensor')",
        "params/wo": "P('tensor', 'fsdp')",
        "x": "P(('data', 'fsdp'),)",
    }
    donated = report("step.py:jitted", *MESH, "--args-from", "step.py:abstract")
    assert {one.path for one in donated.donations} == {"params/wi", "params/wo"}


def test_arguments_of_the_command_become_abstract_arrays(report):
    found = report("step.py:twice", *MESH, "--arg", "bf16[8,6]@data+fsdp,tensor")
    x = jax.ShapeDtypeStruct(
        (8, 6), jnp.bfloat16, sharding=NamedSharding(mesh(), P(("data", "fsdp"), "tensor"))
    )
    assert found.arguments == program_report(lambda x: 2 * x, x).arguments
    [value] = report("step.py:twice", *MESH, "--arg", "pred[]").arguments
    assert (value.dtype, value.shape, str(value.got.spec)) == ("bool", (), "P()")
    [value] = report("step.py:twice", "--mesh", "x=4", "--arg", "s4[8]@x").arguments
    assert (value.dtype, value.nbytes) == ("int4", 1)


@pytest.mark.parametrize(
    ("function", "paths"),
    [
        ("as_list", ["x"]),
        ("as_array", ["x"]),
        ("as_dict", ["x/w"]),
        ("as_state", ["x/w", "x/b"]),
        ("of_any_name", ["x"]),
    ],
)
def test_a_function_returns_the_arguments_and_gets_the_mesh_if_it_takes_one(report, function, paths):
    found = report("step.py:twice", *MESH, "--args-from", f"step.py:{function}")
    assert [value.path for value in found.arguments] == paths
    assert {str(value.got.spec) for value in found.arguments} == {"P('data',)"}
    assert found.mesh.shape == {"data": 2, "fsdp": 2, "tensor": 2}


@pytest.mark.parametrize("stage", ["traced", "lowered", "compiled"])
def test_a_stage_is_reported_as_a_function(report, stage):
    [value] = report(f"step.py:{stage}", *MESH).arguments
    assert (value.shape, value.is_asked_known) == ((8,), stage != "compiled")


def test_a_static_argument_can_be_any_value(report):
    assert report("step.py:of_name", *MESH, "--args-from", "step.py:with_name").name == "of_name"


def test_missing_arguments_name_the_options_that_give_them(call):
    done = call("program", "step.py:twice", *MESH)
    assert done.returncode == 2
    assert done.stderr.endswith(
        "Error: step.py:twice(x) was given 0 arguments: missing a required argument: 'x'. "
        "Pass --arg 'float32[8,4]@data' for each, or --args-from FILE:FUNCTION.\n"
    )


def test_specs_inside_the_function_refer_to_the_mesh_of_its_arguments(report):
    [constraint] = report("step.py:constrained", *MESH, "--arg", "f32[8]@data").constraints
    assert str(constraint.asked.spec) == "P('tensor',)"
    found = report("step.py:on_own_mesh", *MESH, "--args-from", "step.py:without_mesh")
    assert found.mesh.shape == {"own": 8}


def test_the_file_is_a_module_of_its_own(report):
    assert report("step.py:saved", *MESH, "--arg", "f32[8]").name == "saved"
    assert report("step.py:Model.forward", *MESH, "--arg", "f32[8]").name == "Model.forward"
    assert report("./step.py:twice", *MESH, "--arg", "f32[8]").name == "twice"


def test_the_folder_of_the_file_is_searched_for_modules_and_nothing_is_left_behind(report, folder):
    write_program(folder, "from helper import f", "lib/json.py")
    write_program(folder, "import dataclasses\n\ndef f(x): return x", "lib/helper.py")
    state = list(sys.path), list(sys.argv), sys.stdout
    assert report("lib/json.py:f", *MESH, "--arg", "f32[8]").name == "f"
    assert (list(sys.path), list(sys.argv), sys.stdout) == state
    assert sys.modules["json"] is json, "a file cannot replace a module of the same name"
    assert not (folder / "__pycache__").exists()


def test_a_file_in_a_package_is_named_as_a_module(report, call, folder, monkeypatch):
    for name, code in {
        "__init__": "",
        "layers": "def f(x): return x",
        "model": "from .layers import f",
    }.items():
        write_program(folder, code, f"package/{name}.py")
    monkeypatch.delitem(sys.modules, "package", raising=False)
    assert report("package.model:f", *MESH, "--arg", "f32[8]").name == "f"
    done = call("program", "package/model.py:f", *MESH, "--arg", "f32[8]")
    assert done.stderr == (
        "Error: package/model.py imports from its package: name it with the package, such as package.step:step\n"
    )


def test_the_output_file_is_relative_to_the_directory_of_the_command(call, folder):
    write_program(folder, "import os\nos.mkdir('other')\nos.chdir('other')\ndef f(x): return x", "moves.py")
    done = call("program", "moves.py:f", *MESH, "--arg", "f32[8]", "--output", "x.json")
    assert (done.returncode, done.stdout) == (0, "")
    assert from_json((folder / "x.json").read_text()).name == "f"


def test_what_the_file_prints_goes_to_stderr(call):
    done = call("program", "step.py:twice", *MESH, "--arg", "f32[8]", columns=100)
    assert done.returncode == 0
    assert "printed by the file" in done.stderr
    assert "printed" not in done.stdout
    assert done.stdout.startswith("no findings\ntwice (step.py:27), 8 CPU devices")


def test_max_rows_limits_the_tables_as_text_and_as_a_page(call):
    step = ("program", "step.py:step", *MESH, "--args-from", "step.py:abstract", "--max-rows")
    few = [call(*step, "1", "--format", written_as).stdout for written_as in ("text", "html")]
    rest = re.compile(r"rows? (?:is|are) left out")
    assert all(map(rest.search, few))
    assert not rest.search(call(*step, "50").stdout)
    assert "'--max-rows': -1 is not in the range" in call(*step, "-1").stderr


def test_pages_have_the_source_lines_that_send(call):
    done = call("program", "step.py:step", *MESH, "--args-from", "step.py:abstract", "--format", "html")
    assert done.returncode == 0
    assert done.stdout.startswith("<!DOCTYPE html>")
    assert "params[&quot;wo&quot;]) ** 2)" in done.stdout
    assert "<script" not in done.stdout
    svg = call("program", "step.py:twice", *MESH, "--arg", "f32[8]", "--format", "svg")
    assert svg.stdout.startswith("<svg")


def test_a_timeline_is_shown_on_request_in_each_format(call, report):
    step = ("step.py:step", *MESH, "--args-from", "step.py:abstract", "--timeline")
    timeline = report(*step).timeline
    assert max(timeline.total_nbytes) == timeline.needed_nbytes
    for written_as, drawn in (("text", "┤"), ("html", "<svg"), ("svg", "<title>operation ")):
        shown = call("program", *step, "--format", written_as).stdout
        assert timeline.peak_words in shown
        assert drawn in shown
    assert timeline.peak_words not in call("program", *step[:-1]).stdout


def test_what_later_calls_send_is_reported_on_request(report):
    step = ("step.py:step", *MESH, "--args-from", "step.py:abstract")
    assert report(*step).steady_sent_nbytes is None
    assert isinstance(report(*step, "--steady").steady_sent_nbytes, int)


@pytest.fixture
def placed(monkeypatch):
    """Devices of which the reversed ones stand for a topology; the topology and the device of each compiled argument."""
    asked, found = [], []

    def stand_in(topology, axes, dcn):
        asked.append((topology, dcn))
        return Mesh(np.array(jax.devices())[::-1].reshape([*axes.values()]), tuple(axes))

    def reported(function, *arguments, topology, dcn, **_):
        assert (topology, dcn) == asked[-1]
        report = program_report(function, *arguments)
        mesh = getattr(arguments[0].sharding, "mesh", None)
        found.append((topology, dcn, mesh and mesh.devices.flat[0].id))
        return report

    monkeypatch.setattr(jax_array_info_core, "topology_mesh", stand_in)
    monkeypatch.setattr(jax_array_info_core, "program_report", reported)
    return found


def test_a_function_with_an_argument_mesh_gets_the_mesh(call):
    done = call("program", "step.py:on_mesh", *MESH, "--arg", "f32[8]@data", "--format", "json")
    assert from_json(done.stdout).constraints[0].asked.spec.axes == (("tensor",),)
    for given in (("--arg", "f32[8]@data"), ("--args-from", "step.py:with_mesh")):
        assert call("program", "step.py:on_static_mesh", *MESH, *given).returncode == 0


def test_with_a_topology_the_arguments_and_the_function_get_its_mesh(call, placed):
    """A function with a mesh of its own keeps it: JAX allows no other in one program."""
    topology = (*MESH, "--topology", "v5e:2x4")
    assert call("program", "step.py:on_mesh", "--arg", "f32[8]@data", *topology).returncode == 0
    assert call("program", "step.py:on_mesh", "--args-from", "step.py:as_list", *topology).returncode == 0
    assert placed == [("v5e:2x4", None, 7)] * 2
    placed.clear()
    assert call("program", "step.py:on_own_mesh_alone", "--arg", "f32[8]@data", *topology).returncode == 0
    assert call("program", "step.py:twice", "--args-from", "step.py:without_mesh", *topology).returncode == 0
    assert placed == [("v5e:2x4", None, 0)] * 2
    placed.clear()
    slices = ("--topology", "2*v5p-8", "--dcn", "data=2")
    assert call("program", "step.py:twice", *MESH, "--arg", "f32[8]@data", *slices).returncode == 0
    assert placed == [("2*v5p-8", {"data": 2}, 7)]


def test_a_program_that_does_not_fit_is_a_finding(call, monkeypatch):
    full = replace(
        program_report(lambda x: x, 1.0), out_of_memory=OutOfMemory(message="Ran out of memory"), memory=None
    )
    monkeypatch.setattr(jax_array_info_core, "program_report", lambda *args, **options: full)
    done = call("program", "step.py:twice", *MESH, "--arg", "f32[8]", "--format", "json")
    assert done.returncode == 1
    assert from_json(done.stdout) == full


def test_without_its_memory_a_program_is_not_said_to_fit(call, monkeypatch):
    lost = LeftOut(part="memory", error="KeyError: 'x'")
    left = replace(program_report(lambda x: x, 1.0), memory=None, left_out=(lost,))
    monkeypatch.setattr(jax_array_info_core, "program_report", lambda *args, **options: left)
    given = ("program", "step.py:twice", *MESH, "--arg", "f32[8]")
    assert call(*given).returncode == 0
    assert call(*given, "--hbm", "v5p").returncode == 2


@pytest.mark.own_process
@pytest.mark.newest
def test_the_devices_and_the_logs_do_not_depend_on_the_file_and_stdout_has_the_report_alone(folder):
    code = """
        import atexit, os
        assert os.environ["JAX_PLATFORMS"] == "cpu"
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=3"
        atexit.register(print, "printed at exit")
        os.system("echo printed by a program")
        import jax
        from jax.sharding import PartitionSpec as P
        DEVICES = len(jax.devices())
        def f(x):
            print("printed while traced")
            return jax.lax.with_sharding_constraint(x * DEVICES, P(None, ("x", "y"))) + 1
    """
    write_program(folder, code, "settings.py")
    arguments = ("--mesh", "x=4,y=4", "--arg", "f32[16,16,16]@y,-,x", "--format", "json")
    cache = {"JAX_COMPILATION_CACHE_DIR": str(folder), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    for _ in range(2):
        done = jai("program", "settings.py:f", *arguments, TF_CPP_MIN_LOG_LEVEL="3", **cache)
        assert done.returncode == 0, done.stderr
        found = from_json(done.stdout)
        assert found.device_count == 16
        assert [str(one.after) for one in found.rematerializations] == ["P(None, ('x', 'y'))"]
    for words in ("at exit", "by a program", "while traced"):
        assert f"printed {words}\n" in done.stderr


@pytest.mark.own_process
@pytest.mark.newest
def test_a_file_that_forks_and_clears_the_import_path_is_reported_once(folder):
    code = """
        import os, sys
        sys.path = None

        def fork():
            if process := os.fork():
                os.waitpid(process, 0)

        fork()

        def f(x):
            fork()
            return x + 1
    """
    write_program(folder, code, "forks.py")
    done = jai("program", "forks.py:f", "--mesh", "x=2", "--arg", "f32[8]", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert from_json(done.stdout).name == "f"


def test_more_lines_are_shown_on_request(call):
    arguments = ("program", "step.py:step", *MESH, "--args-from", "step.py:abstract")
    options = "--callers 2 --show-frames 1 --user-package flax --max-rows all"
    done = call(*arguments, *options.split(), columns=200)
    assert done.returncode == 0, done.stderr
    assert " loss from step.py:" in done.stdout
    assert (config.callers, config.show_frames, config.user_packages) == (1, 0, ())


def test_bandwidths_give_a_lower_bound_of_the_time(report, folder):
    write_program(folder, "def total(x):\n    return x.sum(0)", "total.py")
    options = "--arg f32[8,256]@data --bandwidth same-host=1KiB/s --bandwidth dcn=6.25GB/s"
    [found] = report("total.py:total", *MESH, *options.split()).sent.by_link
    assert (found.link, found.least_seconds) == ("same-host", 1.0)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            ("--bandwidth", "dcn"),
            "--bandwidth: dcn has no bandwidth: write each link once, such as dcn=6.25GB/s",
        ),
        (("--bandwidth", "dcn=1GB/s", "--bandwidth", "dcn=2GB/s"), "--bandwidth: dcn has two bandwidths: "),
        (
            ("--bandwidth", "dcn=6Gb/s"),
            "--bandwidth: the bandwidth of dcn is not in bytes: write B for bytes",
        ),
        (
            ("--bandwidth", "wire=6GB/s"),
            "--bandwidth: 'wire' is not a link between devices: there are 'dcn',",
        ),
        (("--dcn", "data=2"), "--dcn needs --topology, such as '2*v5p:2x2x2'"),
        (("--dcn", "data", "--topology", "2*v5p:2x2x1"), "--dcn cannot be read: expected '='"),
    ],
)
def test_links_that_cannot_be_read_are_usage_errors(call, options, problem):
    done = call("program", "step.py:twice", *MESH, "--arg", "f32[8]", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Error: {problem}" in done.stderr
