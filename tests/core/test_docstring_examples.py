"""Examples in the docstrings of the reports on live arrays, growth, devices, profiles, compile caches and compilations."""

import doctest
import importlib

import pytest

pytestmark = pytest.mark.newest

MODULES = [
    "jobs.devices",
    "arrays.live.growth",
    "arrays.live.report",
    "arrays.origins.profiles",
    "programs.caches",
    "programs.recompiles.watch",
    "facts.reports.metrics",
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_print_what_the_docstrings_show(name, no_arrays):
    module = importlib.import_module(f"jax_array_info_core.{name}")
    results = doctest.testmod(module)
    assert results.attempted
    assert not results.failed
