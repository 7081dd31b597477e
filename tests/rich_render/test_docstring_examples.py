"""Examples in the docstrings of the verbs and of ``to_text``."""

import doctest
import sys
import types

import jax
import pytest

import jax_array_info
from tests.documents import run_python

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]

needs_shardy = pytest.mark.skipif(
    jax.__version_info__ < (0, 10, 1), reason="Shardy tells origins from JAX 0.10.1 on"
)
VERBS = [
    "pretty_memory_stats",
    "print_array_stats",
    "print_check",
    "print_compilations",
    "print_growth",
    "print_memory_profile",
    "print_memory_stats",
    "print_mesh",
    pytest.param("print_propagation", marks=needs_shardy),
    "print_reshard",
    "print_tree_diff",
    "print_tree",
    "report_on_oom",
    "sharding_info",
    "sharding_vis",
    "simple_array_info",
    "tap_sharding",
    "to_text",
]


def example_of(name):
    """Return the code of a docstring's example, and the output that it shows."""
    examples = doctest.DocTestParser().get_examples(getattr(jax_array_info, name).__doc__)
    assert examples
    return "".join(example.source for example in examples), "".join(example.want for example in examples)


def is_shown(shown, printed):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(shown, printed, flags)


@pytest.mark.parametrize("name", VERBS)
def test_the_example_of_a_verb_prints_what_its_docstring_shows(name, no_arrays, capsys, monkeypatch):
    code, shown = example_of(name)
    # As a file of its own, since the output names files and lines.
    program = types.ModuleType("train")
    monkeypatch.setitem(sys.modules, "train", program)
    exec(compile(code, "train.py", "exec"), vars(program))
    vars(program).clear()
    printed = capsys.readouterr().out
    assert is_shown(shown, printed), printed


def run_of(code):
    """Return the output of a program in a process of its own. It can read its source."""
    cached = f"linecache.cache['train.py'] = (1, None, {code!r}.splitlines(keepends=True), 'train.py')"
    return run_python(f"import linecache\n{cached}\nexec(compile({code!r}, 'train.py', 'exec'))")


@pytest.mark.own_process
@pytest.mark.newest
@pytest.mark.parametrize("name", ["explain_errors", "print_program", "print_program_diff"])
def test_the_example_of_a_program_prints_what_its_docstring_shows(name):
    """On the newest JAX: the values and the temporaries of older versions differ."""
    code, shown = example_of(name)
    printed = run_of(code)
    assert is_shown(shown, printed), printed


@pytest.mark.own_process
@pytest.mark.newest
def test_the_example_of_the_compile_caches_prints_what_its_docstring_shows():
    """In a process of its own: its only jitted function is the one of the example."""
    code, shown = example_of("print_compile_caches")
    printed = run_python(f"exec(compile({code!r}, 'train.py', 'exec'))")

    def without_jax(text):
        # The functions of JAX differ between its releases.
        return "\n".join(line for line in text.splitlines() if "functions of JAX itself" not in line)

    assert is_shown(without_jax(shown), without_jax(printed)), printed
