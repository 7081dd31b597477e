"""Examples in the docstrings of pictures and exports."""

import doctest
import importlib

import pytest

pytestmark = pytest.mark.newest


@pytest.mark.parametrize("name", ["export.formats", "pictures.fitting", "pictures.text"])
def test_docstring_examples_show_their_real_output(name):
    result = doctest.testmod(importlib.import_module(f"jax_array_info.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
