"""Text of checks of trees."""

import textwrap
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info import (
    PathRules,
    check_report,
    collect_reports,
    print_check,
    to_html,
    to_text,
    tree_report,
)
from jax_array_info.engine.render import render, text_of
from jax_array_info.layouts import MeshAxes, Spec
from jax_array_info.reports import CheckReport, ElsewhereBytes, Finding, FindingLeaf, TreeReport, TreeRow
from jax_array_info_core.trees.rows import DeviceSet
from jax_array_info_core.trees.totals import tree_of_rows

pytestmark = pytest.mark.oldest_and_newest


def tree_of(**shapes):
    """Return the report of a tree of abstract leaves without shardings."""
    rows = tuple(
        TreeRow(path=path, kind="abstract", shape=shape, dtype="float32", shard_shape=shape)
        for path, shape in shapes.items()
    )
    return TreeReport(name="state", type_name="dict", rows=rows)


def planned(specs, mesh, **shapes):
    """Return the report of a planned tree."""
    return tree_report(tree_of(**shapes), mesh=mesh, specs=PathRules(specs))


PADDED = planned(
    {"*key": Spec((("fsdp",), ("tensor",))), "norm": Spec(()), "*": Spec((("fsdp",), ("tensor", "one")))},
    {"fsdp": 4, "tensor": 16, "one": 1},
    **{"layers/0/attention/key": (8192, 8), "wi": (8192, 1024), "norm": (65536,)},
)


def shown(report, width=80):
    """Return the printed text of a report, without the first line break of a literal picture."""
    return "\n" + to_text(report, width=width)


def picture(text):
    """Return a literal picture without its indent."""
    return textwrap.dedent(text).rstrip()


def test_a_check_without_findings_has_the_numbers():
    """What was checked, and how much memory it takes."""
    report = check_report(planned({"*": Spec((("x",),))}, {"x": 8}, w=(64, 64)), hbm_nbytes=2**30)
    assert shown(report) == picture(
        """
        state: fits: needs 2.0 KiB of 1.0 GiB per device, without gradients and
        activations; no findings
        1 leaf on 8 devices (x=8) takes 2.0 KiB per device
        shardings were not compared: pass expect=
        """
    )


def test_leaves_to_which_checks_do_not_apply_are_counted():
    """NumPy arrays, abstract leaves without a sharding, unknown shardings and ignored leaves."""
    report = CheckReport(
        name=None,
        findings=(),
        leaf_count=7,
        ignored_count=1,
        numpy_count=1,
        elsewhere=(
            ElsewhereBytes(place="on the host", leaf_count=1, nbytes=8),
            ElsewhereBytes(place="not in device memory", leaf_count=2, nbytes=16, unknown_count=1),
        ),
        unsharded_count=2,
        unknown_count=3,
    )
    assert shown(report) == picture(
        """
        no findings
        4 leaves on 1 device take 0.0 B per device
        does it fit? pass hbm_nbytes="95GiB"; gradients and activations are not included
        counted in full on each device: 2 leaves without a sharding
        on the host: 8.0 B in 1 leaf
        not in device memory: 16.0 B + ? in 2 leaves
        not checked: 3 leaves with unknown shardings
        ignored: 1 leaf
        """
    )


def leaf(path, **fields):
    """Return a leaf of a finding."""
    return FindingLeaf(path=path, shape=(8,), dtype="float32", **fields)


def test_leaves_that_are_not_arrays_are_counted():
    """The report on a tree does not say whether they have arrays in them."""
    report = check_report(replace(tree_of(w=(8,)), others=2))
    assert shown(report).splitlines()[-1] == "not arrays: 2 leaves"
    report = check_report({"w": jnp.ones(8), "bias": None, "step": 3, "name": "x"})
    assert shown(report).splitlines()[-1] == "not arrays: 2 leaves: name, step"
    report = check_report({"w": jnp.ones(8), "bias": None, **{f"n{number}": number for number in range(5)}})
    assert shown(report).splitlines()[-1] == "not arrays: 5 leaves: n0, n1, n2, …"


def test_leaves_that_differ_in_an_index_share_a_row():
    """The bytes are the sum."""
    found = [leaf(f"layers/{number}/{name}", nbytes=64) for number in range(32) for name in ("q", "k")]
    finding = Finding(
        kind="moments", problem="Differ.", remedy="Change.", leaves=(*found, leaf("head", nbytes=1024))
    )
    lines = to_text(CheckReport(name=None, findings=(finding,), leaf_count=65)).splitlines()
    assert lines[-4:] == [
        "  2.0 KiB  layers/0-31/q ×32  float32[8]",
        "  2.0 KiB  layers/0-31/k ×32  float32[8]",
        "  1.0 KiB  head               float32[8]",
        "  ×n: n leaves; the bytes are their sum",
    ]


def test_long_lists_are_folded():
    """The last line has the number and the bytes of the other leaves."""
    leaves = tuple(leaf(f"w{number}", nbytes=1024) for number in range(30))
    finding = Finding(kind="moments", problem="Differ.", remedy="Change.", leaves=leaves)
    report = CheckReport(name=None, findings=(finding,), leaf_count=30)
    lines = text_of(render(report, max_rows=10)).splitlines()
    assert lines[-3:-1] == ["  1.0 KiB  w9  float32[8]", "  and 20 more, 20.0 KiB"]
    assert str(finding).count("\n") == 30, "the error of assert_tree has all"


@pytest.mark.parametrize("width", [20, 40, 80])
def test_paths_are_never_truncated(width):
    """They wrap at their slashes, and inside a key only if it is too long for a line."""
    path = "/".join(["params", "decoder", "layers", "q" * 50, "kernel"])
    finding = Finding(
        kind="padding", problem="p", remedy="r", leaves=(leaf(path, nbytes=5, remedy="fix " * 30),)
    )
    text = to_text(CheckReport(name=None, findings=(finding,)), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert path in "".join(line.strip() for line in text.splitlines()).replace("5.0 B  ", "")


def test_names_are_data():
    """Markup and escapes in paths and names are printed as they are, but never interpreted."""
    finding = Finding(kind="padding", problem="p", remedy="r", leaves=(leaf("[bold]\x1b[31m'ö"),))
    report = CheckReport(name="[red]\x1b", findings=(finding,), meshes=(MeshAxes(("[/]",), (2,)),))
    text = to_text(report)
    assert "[bold]\\x1b[31m'ö" in text
    assert text.startswith("[red]\\x1b: 1 finding: JAI103 padded-leaf\n0 leaves on 1 device ('[/]'=2)")
    ascii_text = text_of(render(report), encoding="ascii")
    assert "'\\xf6" in ascii_text
    assert "-- JAI103 padded-leaf -----" in ascii_text
    assert "\x1b" not in to_html(report)


def test_mesh_axes_of_different_sizes_keep_their_names():
    """A mesh axis is left out of a spec only if it has size 1 in every mesh."""
    spec = Spec((("x", "one"),))
    finding = Finding(kind="moments", problem="p", remedy="r", leaves=(leaf("w", spec=spec, expected=spec),))
    meshes = (MeshAxes(("x", "one"), (1, 1)), MeshAxes(("x",), (2,)))
    text = to_text(CheckReport(name=None, findings=(finding,), meshes=meshes))
    assert text.splitlines()[-1] == "  w  float32[8]  P('x',)  expected P('x',)"


def test_print_check_prints_the_findings(capsys):
    """Inside ``collect_reports``, the report is collected instead."""
    options = {"max_replicated": 0, "ignore": "norm"}
    print_check(PADDED, **options)
    assert capsys.readouterr().out == to_text(check_report(PADDED, **options)) + "\n"
    with collect_reports() as reports:
        print_check(PADDED, **options)
    assert reports == [check_report(PADDED, **options)]
    with pytest.raises(ValueError, match="from 0 to 1"):
        print_check(PADDED, max_replicated=-1)
    assert capsys.readouterr().out == ""


def test_a_name_that_is_wider_than_the_console_ends_before_the_next_word():
    """Without the space, the number of findings would read as the number of a line in the file."""
    tree = planned({"*": Spec((("fsdp",),))}, {"fsdp": 4}, w=(8,))
    report = check_report(replace(tree, name=f"{'x' * 70}.json"))
    end = f"{'x' * 10}.json: no findings"
    assert to_text(report, width=60).splitlines()[:2] == ["x" * 60, end]


def test_logical_axes_without_a_match_are_listed_after_the_bytes():
    tree = tree_of(w=(8, 8))
    names = tuple(f"unused{number}" for number in range(8))
    rules = [("embed", ("x", "y")), ("mpl", "x"), *((name, "x") for name in names)]
    specs = PathRules({"*": Spec((("embed",), ("mlp",)))})
    report = check_report(tree, mesh={"x": 8}, specs=specs, logical_axes=rules)
    assert shown(report) == picture(
        """
        state: no findings
        1 leaf on 8 devices (x=8) takes 32.0 B per device
        does it fit? pass hbm_nbytes="95GiB"; gradients and activations are not included
        logical axes without a rule, replicated: 'mlp' (similar: 'mpl')
        rules without a leaf: 'mpl' (similar: 'mlp'), 'unused0', 'unused1', 'unused2',
        'unused3', 'unused4' and 3 more
        not mesh axes, left out of rules: 'y'
        """
    )


def hosted(report):
    """Return the report of a tree with its leaves in host memory."""
    rows = (replace(row, memory_kind="pinned_host", is_in_host_memory=True) for row in report.rows)
    return tree_of_rows(list(rows), [DeviceSet(mesh, None) for mesh in report.meshes])


@pytest.mark.parametrize(
    ("options", "syntax", "lines"),
    [
        (
            {},
            "python",
            [
                "1 leaf on 8 devices (x=8) takes 0.0 B and 2.0 KiB in pinned_host per device",
                'does it fit? pass hbm_nbytes="95GiB"; gradients and activations are not included',
                'does the host memory fit? pass host_nbytes="512GiB", of one host',
                "shardings were not compared: pass expect=",
            ],
        ),
        (
            {"host_nbytes": "1GiB", "hbm_nbytes": 1},
            "shell",
            [
                "1 leaf on 8 devices (x=8) takes 0.0 B and 2.0 KiB in pinned_host per device",
                "host memory: summed over all devices, hosts are not known: pass --hosts",
                "shardings were not compared: pass --expect",
            ],
        ),
        (
            {"host_nbytes": "1GiB", "hbm_nbytes": 1, "hosts": 2},
            "python",
            [
                "1 leaf on 8 devices (x=8) takes 0.0 B and 2.0 KiB in pinned_host per device",
                "shardings were not compared: pass expect=",
            ],
        ),
    ],
)
def test_bytes_in_both_memories_stand_side_by_side(options, syntax, lines):
    tree = hosted(planned({"*": Spec((("x",),))}, {"x": 8}, w=(64, 64)))
    text = to_text(replace(check_report(tree, **options), syntax=syntax), width=200)
    assert text.splitlines()[1:] == lines
    of_process = replace(check_report(tree, host_nbytes=1, hbm_nbytes=1), host_unit="process")
    assert "summed over the devices of a process, several may be on one host: pass hosts=" in to_text(
        of_process, width=120
    )


def test_leaves_that_are_one_array_are_named_and_are_no_finding(capsys):
    def arrays(*names):
        array = jnp.ones((4, 4))
        return dict.fromkeys(names, array)

    tree = {**arrays("embed", "head"), **arrays("a", "b", "c"), "own": jnp.ones((4, 4))}
    report = check_report(tree)
    assert report.passed
    assert report.shared == (("a", "b", "c"), ("embed", "head"))
    print_check(tree)
    printed = capsys.readouterr().out
    assert "embed and head share a buffer: donating both fails\n" in printed
    assert "a, b and c share a buffer: donating more than one of them fails\n" in printed


@pytest.mark.parametrize(
    "make",
    [
        lambda: dict.fromkeys("ab", np.ones((4, 4), np.float32)),
        lambda: dict.fromkeys("ab", jax.ShapeDtypeStruct((4, 4), jnp.float32)),
        lambda: {"a": jnp.ones(4), "b": jnp.ones(4)},
    ],
    ids=["NumPy", "abstract", "equal"],
)
def test_other_leaves_share_no_buffer(make):
    assert check_report(make()).shared == ()


def test_of_many_shared_buffers_a_few_are_named():
    tree = {f"layer_{number}": [array] * 2 for number, array in enumerate(map(jnp.ones, range(2, 8)))}
    assert "and 3 more buffers are shared by leaves" in check_report(tree).accepted
