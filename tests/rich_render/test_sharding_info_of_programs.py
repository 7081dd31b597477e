"""``sharding_info`` of jitted functions and of the stages of their compilation."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import serialize_executable

from jax_array_info import collect_reports, print_program, sharding_info, simple_array_info
from jax_array_info.reports import ArrayReport, ProgramReport

LINE = "print_program(f, *args) shows what XLA makes of it\n"


class Doubling:
    @jax.jit
    def step(self, x):
        return x


@jax.jit
def double(x):
    return 2 * x


def saved(compiled):
    """Return a compiled program that was written and read again."""
    return serialize_executable.deserialize_and_load(*serialize_executable.serialize(compiled))


@pytest.mark.parametrize("form", [lambda compiled: compiled, saved])
def test_of_a_compiled_it_prints_the_page_of_the_program(form, capsys, monkeypatch):
    compiled = form(double.lower(jnp.ones((8, 4))).compile())
    monkeypatch.setattr(jax.stages.Lowered, "compile", None)  # nothing is compiled
    print_program(compiled)
    page = capsys.readouterr().out
    assert "memory per device" in page
    sharding_info(compiled)
    simple_array_info(compiled)
    jax.eval_shape(lambda x: sharding_info(compiled), 1.0)
    assert capsys.readouterr().out == 3 * page


@pytest.mark.parametrize(
    "value",
    [double, functools.partial(double), Doubling.step, Doubling().step, jnp.sin, jax.jit(jax.grad(jnp.sum))],
    ids=["jit", "partial", "method", "bound method", "of JAX", "of a gradient"],
)
def test_of_a_jitted_function_it_prints_one_line_that_names_print_program(value, capsys):
    sharding_info(value)
    assert capsys.readouterr().out == f"jitted function: {LINE}"
    sharding_info(value, "step [b]")
    assert " ".join(capsys.readouterr().out.split()) == f"step [b]: jitted function: {LINE}".strip()


@pytest.mark.parametrize("stage", ["trace", "lower"])
def test_of_a_program_that_is_not_compiled_it_prints_one_line(stage, capsys):
    sharding_info(getattr(double, stage)(jnp.ones((8, 4))))
    assert capsys.readouterr().out == f"{'Traced' if stage == 'trace' else 'Lowered'}: {LINE}"


def test_the_reports_of_programs_are_collected():
    with collect_reports() as reports:
        sharding_info(double.lower(jnp.ones((8, 4))).compile())
        sharding_info(double)
    assert [type(one) for one in reports] == [ProgramReport, ArrayReport]


class Trainer:
    """An object of a user, with stages in it and attributes that raise."""

    def __init__(self):
        self.compiled = double.lower(jnp.ones(3)).compile()

    def __call__(self):
        return self.compiled

    @property
    def lowered(self):
        raise RuntimeError

    @property
    def as_text(self):
        raise RuntimeError

    @property
    def __wrapped__(self):
        raise RuntimeError


@pytest.mark.parametrize("value", [len, lambda x: x, int, Trainer(), Trainer])
def test_other_functions_and_objects_are_not_programs(value, capsys):
    sharding_info(value)
    assert "type: " in capsys.readouterr().out
