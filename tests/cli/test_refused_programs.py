"""``jai-cli program``: what XLA refuses is told as ``jai-cli log`` tells it, and what the CPU lacks names topologies."""

from pathlib import Path

import jax
import pytest

from tests.cli.step_file import MESH

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]

SOURCE = """
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def kernel(x):
    x = x + 1
    return jnp.tanh(
        x
    )


def twice(x):
    return jnp.tanh(x) + kernel(x)


def of_tpu(x):
    return jax.lax.platform_dependent(x, tpu=jnp.sin)


def body(x, y):
    y[...] = x[...]


def copied(x):
    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def ragged(x):
    def local(x):
        one = jnp.zeros(8, jnp.int32)
        return jax.lax.ragged_all_to_all(x, x, one, one, one, one, axis_name="data")

    P = jax.sharding.PartitionSpec
    return jax.shard_map(local, in_specs=P("data"), out_specs=P("data"))(x)
"""
VMEM = """RESOURCE_EXHAUSTED: E1001: CompileTimeScopedVmemOom:
Ran out of memory in memory space vmem while allocating on stack for %k.1 = f32[4096,2048]{1,0:T(8,128)} \
custom-call(%a.2), custom_call_target="tpu_custom_call", metadata={op_name="jit(f)/tanh" stack_frame_id=5}. \
Scoped allocation with size 80.00M and limit 16.00M exceeded scoped vmem limit by 64.00M.
See https://openxla.org/xla/errors/error_1001 for more details."""
"""What libtpu 0.0.50 raises."""
TOPOLOGY = "The CPU has no such operation: compile for TPUs or GPUs, such as --topology v5e:2x2.\n"


@pytest.fixture
def program(call, tmp_path, monkeypatch):
    """A function that gives a function of the file to the command."""
    monkeypatch.chdir(tmp_path)
    Path("kernels.py").write_text(SOURCE)
    monkeypatch.setattr("jax_array_info_cli.user_code.compiling._prepare_jax", lambda count: None)
    return lambda name: call("program", f"kernels.py:{name}", *MESH, "--arg", "f32[8]")


def refuse(monkeypatch, message):
    def fails(*_, **__):
        raise jax.errors.JaxRuntimeError(message)

    monkeypatch.setattr(jax.stages.Lowered, "compile", fails)


@pytest.mark.parametrize(("name", "line"), [("kernel", " (kernels.py:9 kernel)"), ("twice", "")])
def test_a_kernel_whose_blocks_do_not_fit_is_told_with_its_line_and_what_to_do(
    program, monkeypatch, name, line
):
    """The line is that of the operation, unless several lines have one of its name."""
    refuse(monkeypatch, VMEM)
    done = program(name)
    assert (done.returncode, done.stdout) == (1, "")
    [error] = done.stderr.splitlines()
    start = f"Error: kernels.py:{name} does not compile: needs 80.0 MiB, has 16.0 MiB of VMEM{line}. "
    assert error.startswith(start)
    assert "Give pallas_call smaller blocks" in error


def test_an_error_of_xla_of_no_known_kind_is_its_first_line(program, monkeypatch):
    refuse(monkeypatch, "INTERNAL: what nobody has seen\nmore")
    done = program("kernel")
    assert done.returncode == 1
    problem = "JaxRuntimeError: INTERNAL: what nobody has seen"
    assert done.stderr.startswith(f"Error: kernels.py:kernel does not compile: {problem} (")


@pytest.mark.parametrize("name", ["of_tpu", "copied", "ragged"])
def test_what_the_cpu_lacks_names_topologies(program, name):
    done = program(name)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(TOPOLOGY)
    assert ".." not in done.stderr.splitlines()[-1]
