"""``config.process`` chooses the process that prints."""

import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_array_info as jai
from jax_array_info import (
    config,
    label_of,
    print_mesh,
    sharding_info,
    sharding_vis,
    simple_array_info,
)
from jax_array_info_core.facts.pages import REPORTS
from tests.arrays import mesh_of
from tests.goldens import one_of_each

pytestmark = pytest.mark.once_per_version

VERBS = [
    lambda: sharding_info(jnp.zeros(3)),
    lambda: simple_array_info(3),
    lambda: sharding_vis(jnp.zeros(3)),
    lambda: jax.eval_shape(lambda x: sharding_vis(x), jnp.zeros(3)),
    lambda: print_mesh({"a": 4}),
    lambda: print_mesh(mesh_of((1,), ("a",))),
    *(functools.partial(getattr(jai, REPORTS[name].verb), report) for name, report in one_of_each().items()),
]


@pytest.fixture
def process(monkeypatch):
    """Set ``config.process`` for the test, and reset it afterwards."""
    yield lambda value: setattr(config, "process", value)
    config.process = "all"


@pytest.mark.parametrize("verb", VERBS)
def test_only_the_chosen_process_prints(verb, process, capsys):
    verb()
    assert capsys.readouterr().out
    process(0)
    verb()
    assert capsys.readouterr().out
    process(1)
    verb()
    assert capsys.readouterr() == ("", "")


def test_a_silent_process_still_sets_labels_and_raises_errors(process, capsys):
    process(1)
    array = jnp.zeros(3) + 1
    sharding_info(array, "weights")
    assert label_of(array) == "weights"
    with pytest.raises(ValueError, match="is not a jax array"):
        sharding_vis(np.zeros(3))
    assert capsys.readouterr().out == ""


def test_a_picture_without_jax_is_printed_by_process_0():
    code = """
import sys
from jax_array_info import config, print_mesh
for config.process in (0, 1):
    print_mesh({"a": 2})
assert "jax" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("mesh a=2") == 1
