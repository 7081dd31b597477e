"""``jai-cli why``: functions on meshes without devices, one line, and exit codes."""

from dataclasses import replace

import jax
import pytest

import jax_array_info_core
from jax_array_info import from_json, propagation_report
from jax_array_info_cli.commands.program import FAIL_ON
from jax_array_info_core.facts.reports.codes import CODES
from tests.cli.launching import jai, write_program

needs_shardy = pytest.mark.skipif(
    jax.__version_info__ < (0, 10, 1), reason="Shardy tells origins from JAX 0.10.1 on"
)
pytestmark = [pytest.mark.newest, pytest.mark.usefixtures("folder")]

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

def branches(x):
    return x if x.sum() else -x

def clashing(u, v):
    w = jnp.sin(u)
    return w + v

compiled = jax.jit(lambda x: x).lower(jnp.ones(8)).compile()
"""
MESH = ("--mesh", "data=4,model=2")
LARGE = ("--mesh", "data=4096,model=16")
ABSTRACT = ("step.py:step", "--args-from", "step.py:abstract")
CLASHING = ("step.py:clashing", "--arg", "f32[4096,4096]@data", "--arg", "f32[4096,4096]@-,data")


@needs_shardy
def test_a_step_on_65_536_devices_is_explained_without_them(report):
    found = report(*ABSTRACT, *LARGE)
    assert (found.name, found.device_count, found.platform) == ("step", 65_536, "tpu")
    assert {"step.py:6", "step.py:8"} == {one.origin.place for one in found.conflicts}
    [constraint] = {str(axis) for one in found.values if one.op == "tanh" for axis in one.axes}
    assert constraint == "constraint step.py:7 loss"


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
    assert found.values
    assert found.findings == (), "the conflict is that of a parameter and of data"
    for line, codes in (("step.py:31", {"JAI301"}), ("step.py:30", set())):
        assert {one.code for one in report(*CLASHING, *MESH, "--at", line).findings} == codes
    done = call("why", *ABSTRACT, *MESH, "--at", "tep.py:6")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: --at: the program has no line and no argument or output 'tep.py:6'")


@needs_shardy
def test_the_exit_code_is_1_for_findings_of_fail_on_alone(call):
    def code(*options):
        return call("why", *CLASHING, *MESH, *options).returncode

    assert code() == 0
    assert code("--fail-on", "JAI302") == 0, "no mesh axis is lost"
    assert code("--fail-on", "JAI302", "--fail-on", "JAI301") == 1
    assert code("--fail-on", "JAI301", "--at", "step.py:30") == 0


@needs_shardy
def test_ignored_codes_are_left_out(call):
    done = call("why", *ABSTRACT, *MESH, "--ignore-code", "JAI301", "--ignore-code", "JAI303")
    assert done.returncode == 0
    assert done.stdout.startswith("no findings\n")
    assert "ignored codes: JAI301, JAI303" in done.stdout


@needs_shardy
@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (
            ("step.py:branches", "--arg", "f32[8]@data"),
            "step.py:branches does not compile: TracerBoolConversionError",
        ),
        (("step.py:compiled",), "a Compiled has no origins: pass the function"),
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
    done = jai("why", "own.py:f", *MESH, "--arg", "f32[8]@data", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert [str(one.spec) for one in from_json(done.stdout).outputs] == ["P('model',)"]
