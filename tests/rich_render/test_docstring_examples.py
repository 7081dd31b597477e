"""Examples in the docstrings of the verbs."""

import doctest
import sys
import types

import pytest

import jax_array_info

pytestmark = pytest.mark.oldest_and_newest

VERBS = [
    "pretty_memory_stats",
    "print_array_stats",
    "print_compile_caches",
    "print_growth",
    "print_memory_profile",
    "print_memory_stats",
    "print_mesh",
    "report_on_oom",
    "sharding_info",
    "sharding_vis",
    "simple_array_info",
    "tap_sharding",
]


@pytest.mark.needs_devices(8)
@pytest.mark.parametrize("name", VERBS)
def test_the_example_of_a_verb_prints_what_its_docstring_shows(name, no_arrays, capsys, monkeypatch):
    examples = doctest.DocTestParser().get_examples(getattr(jax_array_info, name).__doc__)
    assert examples
    # As a file of its own, since the output names files and lines.
    program = types.ModuleType("train")
    monkeypatch.setitem(sys.modules, "train", program)
    source = "".join(example.source for example in examples)
    exec(compile(source, "train.py", "exec"), vars(program))
    vars(program).clear()
    shown = "".join(example.want for example in examples)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    printed = capsys.readouterr().out
    assert doctest.OutputChecker().check_output(shown, printed, flags), printed
