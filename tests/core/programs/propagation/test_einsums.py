"""Letters of the user's einsums for the factors of their products."""

import re
import string

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

from jax_array_info import print_program
from jax_array_info_core.programs.propagation.einsums import einsum_letters
from tests.programs import abstract, line

pytestmark = pytest.mark.newest

_DOT = re.compile(
    r"dot_general \S+ \S+(?: batching_dims = \[(.*?)\] x \[(.*?)\],)? contracting_dims = \[(.*?)\] x \[(.*?)\].*?"
    r": \(tensor<(.*?)xf32>, tensor<(.*?)xf32>\) -> tensor<(.*?)xf32> loc\((#\w+)\)"
)
"""A product in a lowered program."""


def products(function, *arguments):
    """Yield the name, the factors of the operands and of the result, and the size of each factor of products."""
    text = jax.jit(function).lower(*arguments).as_text(debug_info=True)
    names = dict(re.findall(r'(#\w+) = loc\("([^"]+)"', text))
    for match in _DOT.findall(text):
        dims = [[int(place) for place in group.split(", ") if place] for group in match[:4]]
        sizes = [[int(size) for size in shape.split("x")] for shape in match[4:7]]
        first = [*range(len(sizes[0]))]
        second = [len(first) + place for place in range(len(sizes[1]))]
        for here, there in zip(dims[0] + dims[2], dims[1] + dims[3], strict=True):
            second[there] = first[here]
        batch, summed = [first[place] for place in dims[0]], {first[place] for place in dims[2]}
        result = batch + [factor for factor in first + second if factor not in {*batch, *summed}]
        every = dict(zip(first + second, sizes[0] + sizes[1], strict=True))
        as_rule = [[[factor] for factor in factors] for factors in (first, second, result)]
        yield names[match[7]], as_rule[:2], as_rule[2:], every


@st.composite
def subscripts(draw):
    """Return the subscripts of an einsum of two operands that JAX computes with one product."""
    letters = draw(st.lists(st.sampled_from(string.ascii_letters), min_size=2, max_size=6, unique=True))
    roles = [draw(st.sampled_from(["batch", "summed", "left", "right"])) for _ in letters]
    terms = [
        [letter for letter, role in zip(letters, roles, strict=True) if role in wanted]
        for wanted in (("batch", "summed", "left"), ("batch", "summed", "right"), ("batch", "left", "right"))
    ]
    left, right, result = ("".join(draw(st.permutations(term))) for term in terms)
    return f"{left},{right}->{result}"


@settings(max_examples=60, deadline=None)
@given(subscripts())
def test_letters_of_products_and_gradients_are_those_of_the_user(text):
    left, right, _ = re.split(",|->", text)
    sizes = dict(zip(sorted({*left, *right}), (2, 3, 5, 7, 11, 13), strict=False))
    operands = [
        jax.ShapeDtypeStruct([sizes[letter] for letter in term], jnp.float32) for term in (left, right)
    ]
    gradients = jax.grad(lambda one, other: jnp.sum(jnp.einsum(text, one, other) ** 2), (0, 1))
    for name, factors, result, every in products(gradients, *operands):
        letters = einsum_letters(name, factors, result)
        assert {factor: sizes[letter] for factor, letter in letters.items()} in ({}, every)


@pytest.mark.parametrize(
    "text", ["bsd,vd->bsv", "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "ij,jk->ik", "gecd,edf->gecf"]
)
def test_each_product_of_a_usual_einsum_has_the_letters(text):
    left, right, _ = re.split(",|->", text)
    sizes = dict(zip(sorted({*left, *right}), (2, 3, 5, 7, 11), strict=False))
    operands = [
        jax.ShapeDtypeStruct([sizes[letter] for letter in term], jnp.float32) for term in (left, right)
    ]
    gradients = jax.grad(lambda one, other: jnp.sum(jnp.einsum(text, one, other) ** 2), (0, 1))
    every = [*products(gradients, *operands)]
    assert len(every) == 3
    for name, factors, result, sizes_of in every:
        letters = einsum_letters(name, factors, result)
        assert {factor: sizes[letter] for factor, letter in letters.items()} == sizes_of


@pytest.mark.parametrize(
    "name", ["dot_general", "ii,ij->j/dot", "...d,vd->...v/dot", "ij,jk,kl->il/dot", "ij,j/dot"]
)
def test_other_names_have_no_letters(name):
    assert einsum_letters(f"jit(f)/{name}", [[[0], [1]], [[1], [2]]], [[[0], [2]]]) == {}


@pytest.mark.needs_devices(8)
def test_a_reason_has_the_letters_of_the_einsum(capsys):
    def logits(x, embed):
        return jnp.einsum("bsd,vd->bsv", x, embed)

    mesh = line()
    x = abstract(mesh, P(None, None, "dp"), (4, 8, 64))
    print_program(jax.jit(logits), x, abstract(mesh, P(None, "dp"), (128, 64)))
    assert "because 'd' is summed in bsd,vd->bsv" in capsys.readouterr().out
