"""Named scopes in the names of operations, as all versions of JAX write them."""

import pytest

from jax_array_info_core.hlo.source import scope_of

pytestmark = pytest.mark.oldest_and_newest


@pytest.mark.parametrize(
    ("op_name", "scope"),
    [
        (None, ""),
        ("", ""),
        ("params['wi']", ""),
        ("jit(step)/dot_general", ""),
        ("jit(step)/jit(main)/jvp(head)/attn/sin", "head/attn"),
        ("jit(step)/jit(main)/jvp(while)/body/layers/attn/dot_general", "layers/attn"),
        ("jit(step)/jvp()/while/body/eval_jaxpr/layers/mlp/inner/cos", "layers/mlp/inner"),
        ("jit(step)/transpose(jvp(head))/jvp(head)/checkpoint/rematted_computation/attn/cos", "head/attn"),
        (
            "jit(step)/transpose(jvp())/while/body/closed_call/layers/layers/checkpoint/attn/mul",
            "layers/attn",
        ),
        ("jit(step)/transpose(jvp(a/b))/jvp(a/b)/checkpoint/c/mul", "a/b/c"),
        ("jit(step)/vmap(jvp(Model))/Dense_0/jit(relu)/max", "Model/Dense_0"),
        ("jit(step)/cond/branch_1_fun/head/add", "head"),
        ("jit(step)/bsd,dh->bsh/dot_general", "bsd,dh->bsh"),
        ("jit(step)/jvp(Model/sin", ""),
        ("jit(step)/transpose(jvp(head))/mul;jit(step)/transpose(jvp())/broadcast_in_dim", "head"),
    ],
)
def test_the_scope_of_an_operation(op_name, scope):
    assert scope_of(op_name) == scope
