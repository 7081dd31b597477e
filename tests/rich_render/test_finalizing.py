"""Calls from a ``__del__`` that runs while the interpreter exits."""

import subprocess
import sys

import pytest

from jax_array_info import to_json
from tests.goldens import one_of_each

REPORTS = {name: to_json(report) for name, report in one_of_each().items()}
PROGRAM = (
    f"REPORTS = {REPORTS!r}"
    + """
import builtins
import jax
import jax.numpy as jnp
from jax_array_info import *
from jax_array_info_core.facts.pages import REPORTS as SHOWN


class Last:
    def __init__(self, verb, *args):
        self.verb, self.args = verb, args

    def __del__(self):
        self.verb(*self.args)


def all_verbs():
    array = jnp.zeros((4, 4))
    return [
        Last(sharding_info, array, "x"),
        Last(simple_array_info, array),
        Last(sharding_vis, array),
        Last(print_array_stats),
        Last(print_mesh, {"a": 2}),
        Last(print_memory_stats),
        Last(print_memory_profile),
        Last(print_hosts, devices_report()),
        Last(print_compile_caches),
        Last(print_log, []),
        Last(print_compilations, watch_compiles()),
        Last(print_check, {"a": array}),
        Last(pretty_memory_stats, jax.devices()[0]),
        Last(print_growth, tracker),
        Last(print_tree_diff, {"w": array}, {}),
        Last(print_reshard, {"w": array}, array.sharding),
        Last(print_tree, {"w": array}),
        Last(print_program, step, array),
        Last(print_program_timeline, step, array),
        Last(print_program_diff, program_report(step, array), program_report(step, array)),
        *(Last(globals()[SHOWN[name].verb], from_json(text)) for name, text in REPORTS.items()),
        *([Last(print_propagation, step, array)] if jax.__version_info__ >= (0, 10) else []),
    ]


@jax.jit
def step(x):
    return x + 1


with track_arrays() as tracker:
    pass
class FirstUse:
    def __init__(self):
        import jax_array_info

        self.package = jax_array_info
        vars(jax_array_info).pop("print_mesh", None)

    def __del__(self):
        self.package.print_mesh({"a": 2})


kept = all_verbs()
builtins.first_use = FirstUse()
builtins.kept_longest = all_verbs()
print("ready")
"""
)


@pytest.mark.own_process
def test_calls_while_the_interpreter_exits_print_nothing():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout.startswith("ready\n")
    assert (done.returncode, done.stderr) == (0, "")
