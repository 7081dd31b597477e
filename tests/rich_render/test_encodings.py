"""Output to consoles with a limited encoding, width or color."""

import textwrap

import pytest

from jax_array_info import to_json
from tests.documents import run_python
from tests.goldens import one_of_each

pytestmark = [pytest.mark.own_process, pytest.mark.newest]

PROGRAM = f"REPORTS = {[to_json(report) for report in one_of_each().values()]!r}" + textwrap.dedent(
    """
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    from jax_array_info import *
    mesh = Mesh(jax.devices(), ("größe",))
    array = jax.device_put(jax.numpy.zeros((8, 8, 8)), NamedSharding(mesh, P("größe")))
    sharding_info(array, "größe")
    sharding_vis(array)
    print_array_stats()
    pretty_memory_stats(jax.devices()[0], override={"größe": 1})
    print_memory_stats()
    print_memory_profile()
    print_hosts(tree_report({"größe": array}))
    größe = jax.jit(lambda größe: größe)
    größe.__wrapped__.__qualname__ = "größe"
    with watch_compiles() as watch:
        größe({"größe": 1})
        größe({"größe": 1.0})
    print_compilations(watch)
    print_program(größe, array)
    print_tree({"größe": [array, array]}, "größe")
    for report in map(from_json, REPORTS):
        print_report(report)
    """
)


@pytest.mark.parametrize(("encoding", "name"), [("ascii", r"gr\xf6\xdfe"), ("cp1252", "größe")])
def test_boxes_become_ascii_and_names_are_escaped(encoding, name):
    text = run_python(PROGRAM, devices=2, encoding=encoding)
    assert f"- {name} -" in text
    assert f"P('{name}',)" in text
    assert "yes (2.0 KiB total)" in text
    assert "|" in text
    assert "│" not in text
    assert "\x1b[" not in text


def widest(program, **environment):
    """Return the length of the longest line, but for code to copy, which stays whole."""
    lines = run_python(program, devices=2, **environment).splitlines()
    return max(len(line) for line in lines if "jax.lax.with_sharding_constraint(" not in line)


def test_output_fits_the_width_of_the_terminal():
    assert widest(PROGRAM, COLUMNS="50") == 50
    wide = PROGRAM.replace("sharding_vis(array)", "sharding_vis(array, max_width=100)")
    assert widest(wide, COLUMNS="50") == 50
    assert widest(wide) == 100, "the width of the terminal is unknown"


def test_colors_follow_the_environment_variables():
    assert "\x1b[" in run_python(PROGRAM, devices=2, FORCE_COLOR="1", TERM="xterm-256color")
