"""Printed reasons for an unknown sharding or for missing memory statistics."""

import pytest

from jax_array_info_core.facts.pages.words import reason_words

pytestmark = pytest.mark.newest


@pytest.mark.parametrize(
    ("stored", "printed"),
    [
        ("only the compiler will know it", "XLA chooses it at compile time"),
        ("the compiler removed it", "XLA removed the value"),
        ("this version of jax does not tell", "not available in this version of JAX"),
        (
            "never computed, only transposed",
            "the function is only transposed, so the value is never computed",
        ),
        ("a reducer sees single elements", "inside a reducer, which sees single elements"),
        ("a Pallas kernel sees a block", "inside a Pallas kernel, which sees one block"),
        (
            "jax.experimental.jet computes Taylor coefficients",
            "inside jax.experimental.jet, which computes Taylor coefficients",
        ),
        (
            "jax.experimental.sparse keeps it as several arrays",
            "jax.experimental.sparse stores it as several arrays",
        ),
        ("not compiled", "not compiled"),
        ("a reason of a later version", "a reason of a later version"),
    ],
)
def test_each_stored_reason_is_printed_in_plain_words(stored, printed):
    assert reason_words(stored) == printed


def test_every_reason_of_an_unknown_sharding_has_a_printed_form():
    from jax_array_info_core.facts.reports import array as unknown_reasons

    names = vars(unknown_reasons).items()
    stored = [text for name, text in names if name.isupper() and isinstance(text, str)]
    unchanged = [text for text in stored if reason_words(text) == text]
    assert unchanged == ["not compiled", "the program does not use the tapped value"]
