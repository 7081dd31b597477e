"""Figures of a program whose compilation stops before code is generated: those of the whole compilation."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report
from jax_array_info_core.compat import stopped as compilation
from jax_array_info_core.programs.advice import measured
from jax_array_info_core.programs.advice.edits import Edit
from jax_array_info_core.programs.advice.measured import Compiler
from jax_array_info_core.programs.propagation.module_edits import edited, operations

pytestmark = [
    pytest.mark.once_per_version,
    pytest.mark.needs_devices(8),
    pytest.mark.skipif(
        jax.__version_info__ < (0, 6), reason="jai-cli advise refuses JAX before 0.6, which has no jax.typeof"
    ),
]
in_memory = pytest.mark.skipif(
    not os.access("/dev/shm", os.W_OK) or sys.platform != "linux",
    reason="the compilation stops only where /dev/shm takes its files",
)


WITH_STOP = compilation._with_stop


def struct(*shape, spec=()):
    mesh = Mesh(np.array(jax.devices()[:8], object).reshape(4, 2), ("data", "model"))
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))


def constrained(value, *spec):
    return jax.lax.with_sharding_constraint(value, struct(1, spec=spec).sharding)


def step(x, w, m):
    def turn(carried, _):
        return constrained(jnp.tanh(carried @ w), "data"), None

    loss, grad = jax.value_and_grad(lambda w: (jax.lax.scan(turn, x, length=3)[0] @ w).sum())(w)
    return loss, w - grad, m + grad


def lowered_step():
    """Return a program with a loop, collectives, several outputs and donated arguments."""
    given = struct(64, 128, spec=("data",)), struct(128, 128, spec=(None, "model")), struct(128, 128)
    with measured.with_shardy():
        return jax.jit(step, donate_argnums=(1, 2)).lower(*given)


def lowered_dot():
    """Return a program with one output, whose only arguments are whole."""
    with measured.with_shardy():
        return jax.jit(lambda x, w: x @ w).lower(struct(64, 64, spec=(None, "model")), struct(64, 64))


def figures(report):
    memory = report.memory
    return (
        *(report.sent_nbytes, report.dot_flops),
        *(memory.argument_nbytes, memory.alias_nbytes, memory.output_nbytes, memory.temporary_nbytes),
    )


def whole(lowered, edits=()):
    """Return the report on a program with edits that is compiled to its end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured, "stopped", lambda program: None)
        return Compiler(lowered, program_report(lowered)).report(edits)


def number_of(lowered, name):
    every = operations(lowered.compiler_ir("stablehlo").operation)
    return next(number for number, one in enumerate(every) if one.name.endswith(f".{name}"))


@in_memory
@pytest.mark.parametrize("make", [lowered_step, lowered_dot])
def test_the_figures_are_those_of_the_whole_compilation(make):
    lowered = make()
    report = Compiler(lowered, program_report(lowered)).report(())
    other = whole(lowered)
    assert figures(report) == figures(other)
    assert report.sent_nbytes or make is lowered_dot
    assert abs(report.xla_flops - other.xla_flops) <= 0.01 * other.xla_flops


@in_memory
def test_the_figures_are_those_of_the_edited_program():
    """Edits of an argument with its output, of a constraint and of a value, all at once."""
    lowered = lowered_step()
    edits = [
        Edit("argument", 2, ((), ("model",))),
        Edit("output", 2, ((), ("model",))),
        Edit("constraint", number_of(lowered, "sharding_constraint"), ((), ("model",))),
        Edit("result", number_of(lowered, "tanh"), (("data",), ("model",))),
    ]
    compiler = Compiler(lowered, program_report(lowered))
    assert compiler._stops
    report = compiler.report(edits)
    assert figures(report) == figures(whole(lowered, edits))
    before = compiler.report(())
    assert report.memory.argument_nbytes == before.memory.argument_nbytes - 128 * 128 * 4 // 2
    assert report.collectives != before.collectives


@in_memory
def test_edits_are_those_of_the_source():
    """The figures are those of the function that is written so."""
    lowered = lowered_dot()
    spec = (("data",), ())
    report = Compiler(lowered, program_report(lowered)).report([Edit("argument", 0, spec)])
    given = struct(64, 64, spec=("data",)), struct(64, 64)
    with measured.with_shardy():
        assert figures(report) == figures(program_report(lambda x, w: x @ w, *given))


def files():
    return {*Path("/dev/shm").glob(f"jax-array-info-{os.getsid(0)}-*")}


@in_memory
def test_nothing_is_left_in_memory_and_in_the_persistent_cache(tmp_path):
    """JAX keeps programs that take long to compile: here all of them, but those of tries."""
    lowered = lowered_step()
    report = program_report(lowered)
    with cache_in(tmp_path):
        compiler = Compiler(lowered, report)
        compiler.report([Edit("argument", 2, ((), ("model",)))])
        assert compiler._stops
        compiler._stops = False
        compiler.report([Edit("argument", 2, (("model",), ()))])
        assert [*tmp_path.rglob("*-cache")] == []
        lowered.compile(compiler_options={"xla_backend_optimization_level": 0})
        assert len([*tmp_path.rglob("*-cache")]) == 1
    assert files() == set()


@contextlib.contextmanager
def cache_in(path):
    """Return a context in which JAX keeps all programs in a folder."""
    names = {"jax_compilation_cache_dir": str(path), "jax_persistent_cache_min_compile_time_secs": 0.0}
    before = {name: getattr(jax.config, name) for name in names}
    reset_cache()
    try:
        for name, value in names.items():
            jax.config.update(name, value)
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        reset_cache()


def test_a_program_with_effects_is_compiled_to_its_end():
    def printing(x):
        jax.debug.print("{}", x.sum())
        return x @ x

    with measured.with_shardy():
        lowered = jax.jit(printing).lower(struct(64, 64, spec=("data",)))
    report = program_report(lowered)
    compiler = Compiler(lowered, report)
    assert not compiler._stops
    assert figures(compiler.report(())) == figures(report)


def test_without_a_folder_in_memory_programs_are_compiled_to_their_end(monkeypatch):
    monkeypatch.setattr("jax_array_info_core.base.memory_folders._ROOT", "/a/folder/that/is/not/there")
    lowered = lowered_step()
    compiler = Compiler(lowered, program_report(lowered))
    assert not compiler._stops
    assert figures(compiler.report(())) == figures(program_report(lowered))


def without_stop(ir, module):
    """Add nothing, as if XLA knew the call."""


def with_other_constraint(ir, module):
    """Let XLA optimize another program."""
    WITH_STOP(ir, module)
    edited(ir, module, [("argument", 0, [["model"], []], 0)])


@pytest.mark.parametrize("change", [without_stop, with_other_constraint, "no function"])
def test_where_xla_does_not_stop_or_has_other_figures_programs_are_compiled_to_their_end(monkeypatch, change):
    """So is a program if JAX raises what it does not raise today."""
    monkeypatch.setattr(compilation, "_with_stop", change)
    lowered = lowered_step()
    compiler = Compiler(lowered, program_report(lowered))
    assert not compiler._stops
    assert figures(compiler.base) == figures(program_report(lowered))


@in_memory
def test_a_program_is_compared_with_its_own_compilation():
    """A report of another program, as of another partitioner, is replaced by one of a whole compilation."""
    lowered = lowered_step()
    assert Compiler(lowered, program_report(lowered_dot()))._stops


@in_memory
@pytest.mark.parametrize("size", [0, 1, 1000])
def test_with_the_memory_full_a_program_is_compiled_to_its_end(monkeypatch, size):
    """XLA then writes a part of the optimized program."""
    lowered = lowered_dot()
    compiler = Compiler(lowered, program_report(lowered))
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path)[:size])
    assert figures(compiler.report(())) == figures(compiler.base)
    monkeypatch.setattr(Path, "glob", lambda *_: [])
    assert figures(compiler.report(())) == figures(compiler.base)


@in_memory
def test_an_error_of_the_program_is_raised(monkeypatch):
    """Only that about the added call is expected."""
    lowered = lowered_dot()
    compiler = Compiler(lowered, program_report(lowered))
    assert compiler._stops
    monkeypatch.setattr(compilation, "_CALL", "another_call")
    compiler.report(())
    monkeypatch.setattr(compilation, "_with_stop", _with_unknown_call)
    with pytest.raises(jax.errors.JaxRuntimeError, match="a_call_of_the_user"):
        compiler.report(())
    assert files() == set()


def _with_unknown_call(ir, module):
    """Add the output with a call of another name than the one that is expected."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compilation, "_CALL", "a_call_of_the_user")
        WITH_STOP(ir, module)


DUMPED = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.core.programs.advice.test_measured import *
lowered = lowered_step()
compiler = Compiler(lowered, program_report(lowered))
compiler.report(())
print(compiler._stops)
"""


@in_memory
@pytest.mark.own_process
@pytest.mark.newest
def test_the_dump_folder_of_the_user_gets_nothing(tmp_path):
    """It has the programs that the user's process compiles, and none with the added call."""
    root = Path(__file__).parents[4]
    flags = f"{os.environ['XLA_FLAGS']} --xla_dump_to={tmp_path} --xla_dump_hlo_as_text"
    done = subprocess.run(
        [sys.executable, "-c", DUMPED, str(root)],
        env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout.split() == ["True"], done.stderr
    texts = [one.read_text() for one in tmp_path.glob("*.txt")]
    assert any("jit_step" in text for text in texts)
    assert not any("jax_array_info_stop" in text for text in texts)
