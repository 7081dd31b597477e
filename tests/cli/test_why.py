"""``jai-cli why``: functions on meshes without devices, one line, and exit codes."""

from dataclasses import replace

import jax
import pytest

import jax_array_info_core
from jax_array_info import from_json, propagation_report
from jax_array_info_cli.commands.why import FAIL_ON
from jax_array_info_core.reports.findings import CODES
from tests.cli.launching import write_program
from tests.cli.test_cli import run

needs_shardy = pytest.mark.skipif(
    jax.__version_info__ < (0, 10, 1), reason="Shardy tells origins from JAX 0.10.1 on"
)
pytestmark = [pytest.mark.oldest_and_newest, pytest.mark.usefixtures("folder")]

COMMAND = "why"

STEP = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

def loss(params, x):
    h = jnp.tanh(x @ jnp.sin(params["wi"]))
    h = jax.lax.with_sharding_constraint(h, P("data", "model"))
    return jnp.mean((h @ params["wo"]) ** 2)

def step(params, x):
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x))

def array(mesh, shape, *spec):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

def abstract(mesh):
    wi, wo = array(mesh, (4096, 8192), "data", "model"), array(mesh, (8192, 4096), "model", "data")
    return {"wi": wi, "wo": wo}, array(mesh, (65536, 4096), "data")

def halved(x):
    return jax.lax.with_sharding_constraint(x / 2, P("model"))

def on_mesh(x, mesh):
    return jax.lax.with_sharding_constraint(x / 2, NamedSharding(mesh, P("model")))

def product(params, x):
    return x @ params["w"]

def crossed(mesh):
    return {"w": array(mesh, (4096, 8192), "data"), "b": array(mesh, (8192,))}, array(mesh, (64, 4096), None, "model")

def branches(x):
    return x if x.sum() else -x

compiled = jax.jit(lambda x: x).lower(jnp.ones(8)).compile()
"""
MESH = ("--mesh", "data=4,model=2")
LARGE = ("--mesh", "data=4096,model=16")
ABSTRACT = ("step.py:step", "--args-from", "step.py:abstract")


@needs_shardy
def test_a_step_on_65_536_devices_is_explained_without_them(report):
    found = report(*ABSTRACT, *LARGE)
    assert (found.name, found.device_count, found.platform) == ("step", 65_536, "tpu")
    assert {"step.py:6", "step.py:8"} == {one.origin.place for one in found.conflicts}
    [constraint] = {str(axis) for one in found.values if one.op == "tanh" for axis in one.axes}
    assert constraint == "constraint step.py:7 loss"


@needs_shardy
def test_the_answer_and_the_conflict_are_text(call, folder):
    write_program(folder, "def f(x, w): return x @ w", "product.py")
    arguments = ("--arg", "f32[65536,4096]@-,model", "--arg", "f32[4096,64]@data", *LARGE)
    done = call("why", "product.py:f", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == [
        "1 finding: JAI301 conflicting-shardings",
        "f, lowered for TPU, 65536 devices: data=4096, model=16",
    ]
    assert "    x 'k' over model (argument), P(None, 'model')" in lines
    assert "    w 'k' over data (argument), P('data',)" in lines


@needs_shardy
def test_specs_and_the_argument_mesh_of_a_function_refer_to_the_mesh_without_devices(report):
    for function in ("halved", "on_mesh"):
        found = report(f"step.py:{function}", *LARGE, "--arg", "f32[4096]@data")
        assert [str(one.spec) for one in found.outputs] == ["P('model',)"]


@needs_shardy
def test_one_line_has_its_values_and_findings_alone(report, call):
    found = report(*ABSTRACT, *MESH, "--at", "step.py:6")
    rows = (*found.values, *found.conflicts, *found.lost, *found.replicated)
    assert {one.origin.place for one in rows} == {"step.py:6"}
    assert {one.code for one in found.findings} == {"JAI301"}
    assert found.values
    done = call("why", *ABSTRACT, *MESH, "--at", "tep.py:6")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: --at: the program has no line and no argument or output 'tep.py:6'")


@needs_shardy
def test_an_argument_is_shown_with_the_conflicts_that_it_is_in(call):
    crossed = ("step.py:product", "--args-from", "step.py:crossed")
    done = call("why", *crossed, *MESH, "--at", "params/w", columns=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "params/w  float32[4096,8192]" in done.stdout
    assert "1 finding: JAI301" in done.stdout
    assert "step.py:27 product" in done.stdout
    assert "params/b" not in done.stdout


@needs_shardy
def test_the_exit_code_is_1_for_findings_of_fail_on_alone(call):
    def code(*options):
        return call("why", *ABSTRACT, *MESH, *options).returncode

    assert code() == 0
    assert code("--fail-on", "JAI302") == 0, "no mesh axis is lost"
    assert code("--fail-on", "JAI302", "--fail-on", "JAI301") == 1
    assert code("--fail-on", "JAI301", "--at", "step.py:11") == 0


@needs_shardy
def test_ignored_codes_are_left_out(call):
    done = call("why", *ABSTRACT, *MESH, "--ignore-code", "JAI301", "--ignore-code", "JAI303")
    assert done.returncode == 0
    assert done.stdout.startswith("no findings\n")
    assert "ignored codes: JAI301, JAI303" in done.stdout


@needs_shardy
@pytest.mark.parametrize(("format_", "start"), [("svg", "<svg"), ("html", "<!DOCTYPE html>")])
def test_pictures_and_files(call, folder, format_, start):
    done = call("why", *ABSTRACT, *MESH, "--output", f"x.{format_}")
    assert (done.returncode, done.stdout) == (0, "")
    text = (folder / f"x.{format_}").read_text()
    assert text.startswith(start)
    assert "params/wi" in text


@needs_shardy
@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("step.py:stpe",), "step.py has no function 'stpe': did you mean 'step'?"),
        (
            ("step.py:halved", "--arg", "f32[8]", "--arg", "f32[8]"),
            "was given 2 arguments: too many positional arguments",
        ),
        (
            ("step.py:branches", "--arg", "f32[8]@data"),
            "step.py:branches does not compile: TracerBoolConversionError",
        ),
        (("step.py:compiled",), "a Compiled has no origins: pass the function"),
        (("step.py:halved", "--arg", "f32[8]@dat"), "'dat' is not a mesh axis"),
        (("step.py:halved", "--fail-on", "JAI101"), "'JAI101' is not one of 'JAI301', 'JAI302', 'JAI303'"),
        (
            ("step.py:halved", "--fail-on", "JAI301", "--ignore-code", "JAI301"),
            "--fail-on and --ignore-code both have JAI301: omit one of them",
        ),
    ],
)
def test_bad_input_is_exit_code_2(call, args, problem):
    done = call("why", *args, *MESH)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr


@needs_shardy
def test_without_an_answer_of_shardy_the_report_has_the_reason_and_the_exit_code_is_2(call, monkeypatch):
    def failing(*args, **options):
        return replace(propagation_report(*args, **options), reason="it was killed")

    monkeypatch.setattr(jax_array_info_core, "propagation_report", failing)
    done = call("why", *ABSTRACT, *MESH, "--format", "json", "--fail-on", "JAI302", "--at", "step.py:6")
    assert (done.returncode, from_json(done.stdout).reason) == (2, "it was killed")
    assert done.stderr == "Error: unknown: Shardy gave no answer: it was killed\n"


@pytest.mark.skipif(jax.__version_info__ >= (0, 10, 1), reason="Shardy tells origins from JAX 0.10.1 on")
def test_before_jax_0_10_the_error_names_the_version(call):
    done = call("why", *ABSTRACT, *MESH)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"Error: why a value is sharded needs JAX 0.10.1 or later: this is {jax.__version__}\n"
    )


def test_the_codes_of_fail_on_are_those_of_propagation():
    assert tuple(one.code for one in CODES.values() if one.code.startswith("JAI3")) == FAIL_ON


@needs_shardy
@pytest.mark.own_process
@pytest.mark.newest
def test_a_file_with_a_mesh_of_its_own_has_devices_for_it_and_stdout_has_the_report_alone(folder):
    code = """
        import jax
        from jax.sharding import NamedSharding, PartitionSpec as P
        print("printed by the file")
        MESH = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
        def f(x):
            return jax.lax.with_sharding_constraint(x / 2, NamedSharding(MESH, P("model")))
    """
    write_program(folder, code, "own.py")
    done = run("why", "own.py:f", *MESH, "--arg", "f32[8]@data", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert [str(one.spec) for one in from_json(done.stdout).outputs] == ["P('model',)"]
