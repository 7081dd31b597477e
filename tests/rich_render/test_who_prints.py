"""``config.process`` chooses the process that prints."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info import (
    config,
    label_of,
    live_array_report,
    pretty_memory_stats,
    print_array_stats,
    print_check,
    print_compilations,
    print_compile_caches,
    print_growth,
    print_hosts,
    print_log,
    print_memory_profile,
    print_memory_stats,
    print_mesh,
    print_program,
    print_program_diff,
    print_program_timeline,
    print_propagation,
    print_reshard,
    print_tree,
    print_tree_diff,
    sharding_info,
    sharding_vis,
    simple_array_info,
    track_arrays,
    watch_compiles,
)
from tests.arrays import mesh_of
from tests.sample_programs import STEP, WHY

pytestmark = pytest.mark.once_per_version


def tracked():
    with track_arrays() as growth:
        return growth


VERBS = [
    lambda: sharding_info(jnp.zeros(3)),
    lambda: simple_array_info(3),
    lambda: sharding_vis(jnp.zeros(3)),
    lambda: jax.eval_shape(lambda x: sharding_vis(x), jnp.zeros(3)),
    lambda: print_mesh({"a": 4}),
    lambda: print_mesh(mesh_of((1,), ("a",))),
    lambda: print_array_stats(),
    lambda: pretty_memory_stats(jax.devices()[0]),
    lambda: print_memory_stats(),
    lambda: print_memory_profile(),
    lambda: print_hosts(live_array_report()),
    lambda: print_compile_caches(),
    lambda: print_log(["step 1"]),
    lambda: print_compilations(watch_compiles()),
    lambda: print_growth(tracked()),
    lambda: print_check({"w": jnp.zeros(3)}),
    lambda: print_tree_diff({"w": jnp.zeros(3)}, {}),
    lambda: print_reshard({"w": np.zeros(3)}, jnp.zeros(3).sharding),
    lambda: print_tree({"w": jnp.zeros(3)}),
    lambda: print_program(lambda x: x, jnp.zeros(3)),
    lambda: print_program_timeline(lambda x: x, jnp.zeros(3)),
    lambda: print_program_diff(STEP, STEP),
    lambda: print_propagation(WHY),
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
