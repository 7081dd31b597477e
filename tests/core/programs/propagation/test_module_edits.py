"""Edits of a lowered module: each changes one sharding, by the numbers of the module as it is."""

import jax
import jax.numpy as jnp
import pytest

from jax_array_info_core.programs.propagation.module_edits import edited, operations
from tests.core.programs.propagation.programs import constrained, struct

pytestmark = [
    pytest.mark.once_per_version,
    pytest.mark.skipif(
        jax.__version_info__ < (0, 6), reason="jai-cli advise refuses JAX before 0.6, which has no jax.typeof"
    ),
]


@pytest.fixture
def module():
    """Return a module of its own, with two constraints, the second in a loop."""
    from jaxlib.mlir import ir

    given = struct((16, 16))

    def f(x, w):
        def turn(carried, _):
            return constrained(jnp.sin(carried), given, "data"), None

        y = constrained(x @ w, given, "data")
        return jax.lax.scan(turn, y, length=3)[0]

    is_on = jax.config.jax_use_shardy_partitioner
    jax.config.update("jax_use_shardy_partitioner", True)
    try:
        lowered = jax.jit(f).trace(struct((8, 16), "data"), given).lower(lowering_platforms=("tpu",))
        text = str(lowered.compiler_ir("stablehlo"))
    finally:
        jax.config.update("jax_use_shardy_partitioner", is_on)
    with lowered.compiler_ir("stablehlo").context:
        return ir.Module.parse(text)


def numbers(module, name):
    return [
        number for number, one in enumerate(operations(module.operation)) if one.name.endswith(f".{name}")
    ]


def edit(module, *edits):
    from jaxlib.mlir import ir

    edited(ir, module, edits)
    with module.context:
        assert module.operation.verify()
    return str(module)


def test_arguments_and_outputs_get_other_shardings(module):
    text = edit(module, ("argument", 1, [[], ["data"]], 0), ["output", 0, [["model", "data"], []], 0])
    assert '%arg1: tensor<16x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"data"}]>}' in text
    assert 'sdy.sharding = #sdy.sharding<@mesh, [{"model", "data"}, {}]>}) {' in text


def test_a_sharding_is_taken_away(module):
    assert "%arg0: tensor<8x16xf32>, " in edit(module, ("argument", 0, None, 0))


def test_constraints_are_replaced_and_taken_away_in_one_step(module):
    """A constraint on the result of the one that is taken away stays."""
    first, second = numbers(module, "sharding_constraint")
    text = edit(
        module,
        ("constraint", first, None, 0),
        ("constraint", second, [[], ["model"]], 0),
        ("result", first, [["model"], []], 0),
    )
    assert '<@mesh, [{"data"}, {}]> : tensor<8x16xf32>' not in text
    assert '<@mesh, [{}, {"model"}]> : tensor<8x16xf32>' in text
    assert '<@mesh, [{"model"}, {}]> : tensor<8x16xf32>' in text
    assert len(numbers(module, "sharding_constraint")) == 2


def test_constraints_are_added_on_results_and_operands(module):
    (sine,), (dot,) = numbers(module, "sine"), numbers(module, "dot_general")
    edit(module, ("result", sine, [["model"], []], 0), ("operand", dot, [[], ["data:(1)2"]], 1))
    every = [*operations(module.operation)]
    (sine,), (dot,) = numbers(module, "sine"), numbers(module, "dot_general")
    (after,) = (use.owner for use in every[sine].results[0].uses)
    assert '[{"model"}, {}]' in str(after)
    assert '[{}, {"data":(1)2}]' in str(every[dot].operands[1].owner)


def test_an_edit_of_another_module_is_refused(module):
    with pytest.raises(ValueError, match="no mesh of the program has the axes rows"):
        edit(module, ("argument", 0, [["rows"], []], 0))
    with pytest.raises(ValueError, match="operation 0 is not a constraint"):
        edit(module, ("constraint", 0, None, 0))
    with pytest.raises(IndexError):
        edit(module, ("output", 5, None, 0))
