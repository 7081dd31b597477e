"""``jai-cli layers``: a function or a saved report, the order of the rows, and exit codes."""

import pytest

from jax_array_info import load_report
from tests.cli.launching import write_program

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8), pytest.mark.usefixtures("folder")]

COMMAND = "layers"
STEP = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

def loss(params, x):
    with jax.named_scope("mlp"):
        return jnp.mean((jnp.tanh(x @ params["up"]) @ params["down"]) ** 2)

def step(params, x):
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x))

def args(mesh):
    def array(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))
    return {"up": array((64, 256), "x"), "down": array((256, 8), "x")}, array((32, 64), "x")

def failing(x):
    return x @ x
"""
OF_STEP = ("step.py:step", "--mesh", "x=8", "--args-from", "step.py:args")


def test_a_saved_report_has_the_rows_of_its_function(report, call):
    """A report that ``jai-cli program`` wrote is divided as the function is, without compiling it again."""
    assert call("program", *OF_STEP, "--output", "step.json").returncode == 0
    found = report(*OF_STEP)
    assert report("step.json") == found
    assert [row.name for row in found.rows] == ["params/down", "params/up"]
    program = load_report("step.json")
    assert (found.total.sent_nbytes, found.total.flops) == (program.sent.nbytes, program.known_dot_flops)


def test_rows_are_in_the_order_of_the_arguments_or_of_a_column(call):
    """``params/up`` has 8 times the elements of ``params/down``, which comes first."""

    def names(*options):
        text = call("layers", *OF_STEP, *options).stdout
        return [line.split()[1] for line in text.splitlines() if line.startswith("│ params/")]

    assert names() == ["params/down", "params/up"]
    assert names("--sort", "parameters") == ["params/up", "params/down"]


def test_rows_by_scope_have_the_named_scopes(report):
    """All products are in the scope that the function names, and both parameters with them."""
    [row] = report(*OF_STEP, "--by", "scope").rows
    assert (row.name, row.paths) == ("mlp", ("params/down", "params/up"))


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("step.py:step",), "--mesh is missing, such as --mesh fsdp=4,tensor=2"),
        (("step.json", "--mesh", "x=8"), "a saved report has its arguments: omit --mesh, --args-from"),
        (("step.json",), "step.json: No such file or directory"),
        (("step.py", "--mesh", "x=8"), "FILE:FUNCTION must be the name of a file and a function in it"),
        ((*OF_STEP, "--dcn", "x=2"), "--dcn needs --topology, such as '2*v5p:2x2x2'"),
    ],
)
def test_what_cannot_be_read_is_exit_code_2(call, args, problem):
    done = call("layers", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr


def test_a_function_that_does_not_compile_is_exit_code_1(call):
    done = call("layers", "step.py:failing", "--mesh", "x=8", "--arg", "f32[2,3]")
    assert (done.returncode, done.stdout) == (1, "")
    assert "step.py:failing does not compile" in done.stderr


def test_a_report_in_a_file_of_another_name_is_read(call, tmp_path):
    assert call("program", *OF_STEP, "--output", "step.json").returncode == 0
    write_program(tmp_path, (tmp_path / "step.json").read_text(), "saved")
    assert call("layers", "saved").stdout == call("layers", "step.json").stdout
