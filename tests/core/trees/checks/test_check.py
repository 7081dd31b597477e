"""Checks of trees: replicas, padding, specs, moments, memory."""

import ast
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    CheckError,
    PathRules,
    assert_tree,
    check_report,
    from_json,
    to_json,
    tree_report,
)
from jax_array_info_core.errors import SpecError
from jax_array_info_core.layouts import Spec
from tests.arrays import mesh_of, sharded
from tests.core.trees.checks.findings import abstract, kinds, paths, the_finding

pytestmark = pytest.mark.newest


def test_key_heads_on_more_shards_than_there_are_are_padded():
    """8 % 16, as in Llama-2-70B: key and value are named, and no other leaf."""
    heads = abstract(8192, 80, 8, 128)
    tree = {"query": abstract(8192, 80, 64, 128), "key": heads, "value": heads, "norm_scale": abstract(8192)}
    rules = PathRules({"*scale": P(), "*": P("fsdp", None, "tensor")})
    report = check_report(tree, mesh={"fsdp": 16, "tensor": 16}, specs=rules)
    finding = the_finding(report, "padding")
    assert kinds(report) == ["padding"]
    assert paths(finding) == ["key", "value"]
    assert finding.mesh_axes == ("tensor",)
    assert finding.nbytes == 2 * 512 * 80 * 128 * 4 // 2
    assert finding.leaves[0].remedy == (
        "axis 2 of shape (8192, 80, 8, 128) is not divisible by mesh axis 'tensor' of size 16: 8 % 16 = 8. "
        "Pad it to 16, or leave it unsharded."
    )


def test_replicas_are_found_with_the_array_axis_and_the_mesh_axes():
    """Experts that are replicated over a mesh that could shard them."""
    tree = {"experts": abstract(2048, 26, 64)}
    report = check_report(tree, mesh={"fsdp": 4, "expert": 2}, specs=P())
    finding = the_finding(report, "avoidable replication")
    assert report.fullest_device_nbytes == 13_631_488
    assert report.avoidable_nbytes == finding.nbytes == 11_927_552
    [leaf] = finding.leaves
    assert (leaf.path, leaf.nbytes) == ("experts", 11_927_552)
    assert leaf.remedy == "shard axis 0 over ('fsdp', 'expert')"


def test_an_axis_that_is_already_sharded_can_be_sharded_further():
    """The fix for such an axis is an additional mesh axis."""
    report = check_report({"x": abstract(64_000, 3)}, mesh={"a": 4, "b": 2}, specs=P("a"))
    assert the_finding(report, "avoidable replication").leaves[0].remedy == "shard axis 0 also over 'b'"


def test_data_parallelism_is_declared_with_replicated_over():
    """A finding about leaves that are all replicated over an axis names the argument."""
    tree = {"a": abstract(512, 512), "b": abstract(2**15)}
    report = check_report(tree, mesh={"data": 8}, specs=P())
    assert kinds(report) == ["avoidable replication", "unused mesh axis"]
    finding = report.findings[0]
    assert "Every leaf is replicated over mesh axis 'data' of size 8" in finding.remedy
    assert "replicated_over=('data',)" in finding.remedy
    assert check_report(tree, mesh={"data": 8}, specs=P(), replicated_over="data").passed
    assert check_report(tree, mesh={"data": 8}, specs=P(), replicated_over=("data",)).avoidable_nbytes == 0


def test_intended_replication_over_one_axis_leaves_the_others():
    """Hybrid sharding: replicas over ``data`` are accepted, those over ``fsdp`` are not."""
    tree = {"a": abstract(512, 512), "b": abstract(512, 512)}
    options = {"mesh": {"data": 2, "fsdp": 4}, "specs": {"a": P("fsdp"), "b": P()}}
    finding = the_finding(check_report(tree, **options, replicated_over="data"), "avoidable replication")
    assert paths(finding) == ["b"]
    assert finding.mesh_axes == ("fsdp",)
    assert finding.nbytes == 512 * 512 * 4 * 3 // 4


def test_the_fix_names_every_axis_over_which_replication_has_to_be_intended():
    """Also those of small leaves, one that a leaf could take instead, and those that are declared already."""
    tree = {"large": abstract(2**22), "small": abstract(2048, 2048)}
    mesh, specs = {"a": 4, "b": 4, "c": 4}, {"large": P("b"), "small": P(("a", "c"))}
    [finding] = check_report(tree, mesh=mesh, specs=specs, replicated_over="c").findings
    assert (
        "pass replicated_over=('c', 'a', 'b') if replication over 'a' and 'b' is intended" in finding.remedy
    )
    assert check_report(tree, mesh=mesh, specs=specs, replicated_over=("c", "a", "b")).passed
    one = {"large": abstract(2**20), "small": abstract(2**16)}
    options = {"mesh": {"data": 2, "fsdp": 4}, "specs": {"large": P("fsdp"), "small": P()}}
    options["max_replicated"] = 0
    finding = check_report(one, **options).findings[0]
    assert "of size 2, and some also over 'fsdp': if this is intended" in finding.remedy
    assert "pass replicated_over=('data', 'fsdp')." in finding.remedy


def test_the_limit_is_a_fraction_of_the_fullest_device():
    """Replicas up to the limit, and not beyond it, are accepted."""
    tree = {"large": abstract(2**22), "small": abstract(2**15)}
    options = {"mesh": {"x": 8}, "specs": {"large": P("x"), "small": P()}}
    share = 28 / (512 + 32)
    assert check_report(tree, **options, max_replicated=share).passed
    assert kinds(check_report(tree, **options, max_replicated=share - 1e-9)) == ["avoidable replication"]
    assert kinds(check_report(tree, **options, max_replicated=0)) == ["avoidable replication"]


def test_an_abstract_leaf_without_a_sharding_counts_as_replicated():
    """Rules that forget a leaf leave it without a sharding, in full on each device."""
    tree = {"a": abstract(512, 512), "b": abstract(512, 512)}
    report = check_report(tree, mesh={"x": 8}, specs=PathRules({"a": P("x")}))
    [leaf] = the_finding(report, "avoidable replication").leaves
    assert (leaf.path, leaf.remedy) == ("b", "without a sharding: shard axis 0 over 'x'")
    assert report.unsharded_count == 1


def test_mesh_axes_that_shard_nothing_are_found():
    """Only those of size 2 or more, and not those in ``replicated_over``."""
    tree = {"w": abstract(64, 64)}
    mesh = {"data": 2, "fsdp": 4, "expert": 3, "one": 1}
    report = check_report(tree, mesh=mesh, specs=P("fsdp"), replicated_over="data")
    finding = the_finding(report, "unused mesh axis")
    assert finding.mesh_axes == ("expert",)
    assert "Mesh axis 'expert' of size 3 shards no leaf." in finding.problem
    assert "replicated_over=('data', 'expert')" in finding.remedy


def test_an_unconstrained_axis_may_use_any_mesh_axis():
    """XLA may shard it over each of them."""
    spec = Spec(((), ("a",)), unconstrained=(0,))
    assert check_report({"w": abstract(64, 64)}, mesh={"a": 4, "b": 2}, specs=spec).passed


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (P("y"), "'y' is not a mesh axis: the mesh has 'x'"),
        (Spec((("x",), ("x",))), "'x' is used twice: a mesh axis can shard only one axis of an array"),
        (P("x", None, None), "the spec has 3 entries, but the array has 2 axes: shape (8, 8)"),
    ],
)
def test_an_invalid_spec_is_a_finding(spec, problem):
    """``tree_report`` raises an error for it."""
    tree, options = {"w": abstract(8, 8)}, {"mesh": {"x": 8}, "specs": {"w": spec}}
    [leaf] = the_finding(check_report(tree, **options), "invalid spec").leaves
    assert (leaf.path, leaf.remedy, leaf.spec) == ("w", problem, None)
    with pytest.raises(SpecError, match="w: "):
        tree_report(tree, **options)


def test_ignored_leaves_are_in_no_finding_but_take_memory():
    """The patterns are those of ``PathRules``."""
    tree = {"a": {"w": abstract(1024)}, "b": abstract(17), "c": abstract(8, 8)}
    options = {"mesh": {"x": 8}, "specs": {"a": P(), "b": P("x"), "c": P("x")}}
    report = check_report(tree, **options, ignore=("a/*", "?"), hbm_nbytes=4000)
    assert kinds(report) == ["memory"]
    assert (report.leaf_count, report.ignored_count) == (0, 3)
    assert kinds(check_report(tree, **options, ignore="a*")) == ["padding"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_replicated": 2}, "a fraction of the bytes of the fullest device, from 0 to 1, got 2"),
        ({"max_replicated": float("nan")}, "got nan"),
        ({"max_replicated": "0.02"}, "got '0.02'"),
        ({"hbm_nbytes": 0}, r"hbm_nbytes must be a positive integer, got 0"),
        ({"hbm_nbytes": 95e9}, "got 95000000000.0"),
        ({"hbm_nbytes": True}, "got True"),
        ({"optimizer": "adamax"}, "must be one of 'adam', 'adamw', 'lion', 'momentum', got 'adamax'"),
        ({"optimizer": "adamax"}, r"check the parameters with the state that jax.eval_shape\(optimizer.init"),
        ({"optimizer": "adam", "moment_dtype": "f7"}, "moment_dtype: 'f7' is not an array dtype"),
        (
            {"optimizer": "adam", "moment_dtype": bool},
            "moment_dtype must be a dtype of numbers, .*, got bool",
        ),
        ({"moment_dtype": "float32"}, "moment_dtype needs optimizer"),
        (
            {"replicated_over": "dtaa"},
            "'dtaa' is not a mesh axis of the tree: its meshes have 'data', 'fsdp'",
        ),
        ({"replicated_over": (1,)}, r"replicated_over must be a tuple of strings, got \(1,\)"),
        ({"ignore": ("w", "q*")}, "ignore: the pattern 'q\\*' matches no leaf"),
        ({"expect": PathRules({"q*": P()})}, "expect: the pattern 'q\\*' matches no leaf"),
        ({"expect": {"v": P()}}, "expect has no entry for 'w'"),
        ({"expect": 3}, "must be a PartitionSpec, a Sharding or None, got <class 'int'>"),
    ],
)
def test_an_invalid_argument_is_one_clear_error(arguments, message):
    """Each is a ValueError that names the argument."""
    options = {"mesh": {"data": 2, "fsdp": 4}, "specs": P(), **arguments}
    with pytest.raises(ValueError, match=message):
        check_report({"w": abstract(8)}, **options)


def test_a_tree_without_a_mesh_accepts_any_mesh_axis():
    """The same call passes in a run on one device."""
    assert check_report({"w": np.zeros(3), "b": jnp.zeros(3)}, replicated_over="data").passed


def test_the_error_of_an_assertion_has_every_finding_and_every_path():
    """It is an AssertionError, with the report."""
    tree = {f"layer{number}": abstract(8192) for number in range(200)} | {"odd": abstract(17)}
    with pytest.raises(AssertionError) as caught:
        assert_tree(tree, mesh={"x": 8}, specs=PathRules({"odd": P("x"), "*": P()}), hbm_nbytes=100)
    assert isinstance(caught.value, CheckError)
    assert kinds(caught.value.report) == ["memory", "avoidable replication", "padding"]
    first, *lines = str(caught.value).splitlines()
    assert first == (
        "does not fit: needs 6.3 MiB, has 100.0 B per device; 3 findings: JAI108 tree-memory, "
        "JAI101 replicated-leaf, JAI103 padded-leaf"
    )
    assert [line.partition(":")[0] for line in lines if not line.startswith(" ")] == [
        "JAI108 tree-memory",
        "JAI101 replicated-leaf",
        "JAI103 padded-leaf",
    ]
    assert lines[2] == "  layer0: float32[8192], P(), 28.0 KiB: shard axis 0 over 'x'"
    listed = {line.split(":")[0].strip() for line in lines if line.startswith(" ")}
    assert listed == set(tree)


def test_an_assertion_passes_silently_and_takes_the_same_arguments():
    """It returns None."""
    assert assert_tree({"w": abstract(8)}, mesh={"x": 8}, specs=P("x"), hbm_nbytes=4) is None
    with pytest.raises(ValueError, match="expected a tree of arrays, got <class 'object'>"):
        assert_tree(object())


def test_names_of_leaves_are_printed_without_their_escapes():
    """A path from a file must not reach the terminal as it is."""
    report = check_report({"\x1b[31m\n": abstract(512, 512)}, mesh={"x": 8}, specs=P())
    assert "\x1b" not in str(report)
    assert len(str(report).splitlines()) == 1 + 2 + 1


@pytest.mark.needs_devices(8)
def test_arrays_on_two_sets_of_devices_are_checked_on_the_fuller_one():
    """Bytes on the other devices are not avoidable on the fullest device."""
    first, second = (mesh_of((4,), ("x",), jax.devices()[start : start + 4]) for start in (0, 4))
    tree = {"a": sharded((512, 512), first), "b": sharded((512, 256), second)}
    for checked in (tree, tree_report(tree), from_json(to_json(tree_report(tree)))):
        report = check_report(checked, optimizer="adam")
        assert (report.device_count, report.fullest_device_nbytes) == (8, 2**20)
        assert report.avoidable_nbytes == 2**20 * 3 // 4
        assert report.optimizer_nbytes == 2**20 * 2
        assert paths(report.findings[0]) == ["a"]


@pytest.mark.needs_devices(8)
def test_the_state_of_a_tied_array_counts_for_each_path():
    """The array counts once, but an optimizer has moments for each leaf."""
    array = sharded((64,), mesh_of((8,), ("x",)), "x")
    report = check_report({"params": {"a": array, "b": array}}, optimizer="adam")
    assert (report.fullest_device_nbytes, report.optimizer_nbytes) == (32, 4 * 32)


@pytest.mark.needs_devices(8)
def test_unusual_leaves_are_checked_without_errors():
    """PRNG keys, deleted arrays, NumPy arrays, traced values and other objects."""
    mesh = mesh_of((8,), ("x",))
    deleted = sharded((64,), mesh, "x")
    deleted.delete()
    keys = jax.device_put(jax.random.split(jax.random.key(0), 64), NamedSharding(mesh, P()))
    tree = {"d": deleted, "k": keys, "n": np.zeros(3), "s": "text", "none": None}
    report = check_report(tree, expect=PathRules({"d": P(), "k": None}))
    assert report.avoidable_nbytes == 64 * 8 * 7 // 8
    found = []
    jax.make_jaxpr(lambda tree: found.append(check_report(tree, expect=P("x"))) or tree)({"w": keys})
    assert (found[0].leaf_count, found[0].unknown_count) == (1, 1)


@given(
    shapes=st.lists(st.lists(st.sampled_from([1, 2, 3, 8, 17, 8191]), max_size=3), min_size=1, max_size=5),
    names=st.lists(st.permutations(["x", "y"]), min_size=5, max_size=5),
    intended=st.sets(st.sampled_from(["x", "y", "z"])),
)
@settings(max_examples=60)
def test_laws_of_a_check(shapes, names, intended):
    """Bytes add up, JSON round-trips, and intended replication only lowers the avoidable bytes."""
    tree = [abstract(*shape) for shape in shapes]
    specs = [P(*names[number][: len(shape)]) for number, shape in enumerate(shapes)]
    options = {"mesh": {"x": 2, "y": 3, "z": 2}, "specs": specs, "max_replicated": 0}
    whole = check_report(tree, **options)
    report = check_report(tree, **options, replicated_over=intended)
    assert from_json(to_json(report)) == report
    assert (
        report.avoidable_nbytes
        <= whole.avoidable_nbytes
        == tree_report(tree, mesh=options["mesh"], specs=specs).avoidable_nbytes
    )
    for finding in report.findings:
        if finding.kind == "avoidable replication":
            advised_nbytes = report.avoidable_nbytes - report.small_shard_nbytes
            assert finding.nbytes == advised_nbytes == sum(leaf.nbytes for leaf in finding.leaves)
            assert not intended & set(finding.mesh_axes)
            advised = ast.literal_eval(re.search(r"replicated_over=(\(.*?\))", finding.remedy)[1])
            assert finding.kind not in kinds(check_report(tree, **options, replicated_over=advised))
    expected = {row.path: row.spec for row in tree_report(tree, mesh=options["mesh"], specs=specs).rows}
    again = check_report(tree, **options, expect=PathRules(expected))
    assert "unexpected sharding" not in kinds(again)
    every = check_report(tree, **options, ignore="*", replicated_over=("x", "y", "z"))
    assert every.passed


@pytest.mark.parametrize("optimizer", [None, "adam"])
def test_whether_a_leaf_of_unknown_size_fits_is_not_known(optimizer):
    tree = {"a": jax.ShapeDtypeStruct((2**41, 2**41), jnp.float32)}
    plan = {"mesh": {"data": 4, "model": 2}, "specs": P("data", "model"), "optimizer": optimizer}
    with pytest.raises(CheckError, match=r"memory: The bytes per device of 1 leaf are not known"):
        assert_tree(tree, **plan, hbm_nbytes="16GiB")
    report = check_report(tree, **plan)
    assert (report.passed, report.uncounted_count) == (True, 1)


def test_a_leaf_that_no_mesh_axis_divides_is_named_with_its_padding():
    tree = {"pos": abstract(1_000_003, 3), "grid": abstract(64, 64, 64)}
    specs = {"pos": P(), "grid": P("p")}
    [leaf] = the_finding(check_report(tree, mesh={"p": 8}, specs=specs), "avoidable replication").leaves
    assert (leaf.path, leaf.remedy) == ("pos", "pad axis 0 to 1,000,008, then shard axis 0 over 'p'")
    assert leaf.nbytes == 4 * (1_000_003 * 3 - 1_000_008 * 3 // 8)
    padded = {**tree, "pos": abstract(1_000_008, 3)}
    assert kinds(check_report(padded, mesh={"p": 8}, specs=P("p"))) == []


@pytest.mark.parametrize("shape", [(1023,), (9, 513), (3, 5, 67)])
def test_neither_a_small_leaf_nor_one_with_much_padding_is_to_be_padded(shape):
    assert tree_report({"w": abstract(*shape)}, mesh={"x": 8}, specs=P()).avoidable_nbytes == 0


def test_no_leaf_is_to_be_sharded_over_a_mesh_axis_that_divides_none():
    mesh = {"fsdp": 8, "tensor": 4}
    finding = the_finding(
        check_report({"odd": abstract(50257, 5001)}, mesh=mesh, specs=P()), "unused mesh axis"
    )
    assert finding.remedy.startswith("No axis of a leaf is divisible by 'fsdp' or 'tensor': pad one, or pass")
    finding = the_finding(check_report({"w": abstract(64, 5001)}, mesh=mesh, specs=P()), "unused mesh axis")
    assert finding.remedy.startswith("Shard leaves over them")


@given(
    st.lists(st.sampled_from([8, 16, 24, 8191, 4096]), min_size=1, max_size=3), st.permutations(["x", "y"])
)
@settings(max_examples=40)
def test_no_leaf_with_an_expected_sharding_is_to_be_sharded_otherwise(shape, names):
    """What JAI101 proposes would be a JAI106."""
    spec, options = (
        P(*names[: len(shape) - 1]),
        {"mesh": {"x": 2, "y": 2}, "min_nbytes": 0, "max_replicated": 0},
    )
    tree = {"w": abstract(*shape)}
    assert "avoidable replication" not in kinds(check_report(tree, **options, specs=spec, expect=spec))
    free = check_report(tree, **options, specs=spec, expect=PathRules({"w": None}))
    assert kinds(free) == kinds(check_report(tree, **options, specs=spec))


def advised(path, shape, **mesh):
    report = check_report({path: abstract(*shape)}, mesh=mesh, specs=P())
    return the_finding(report, "avoidable replication").leaves[0].remedy


def test_a_cache_is_to_be_sharded_over_its_batch_and_its_heads():
    """Not over the time, its longest axis; keys may have the heads before or after it."""
    over_both = "shard axis 1 over 'data' and axis {} over 'tensor'"
    assert advised("cache", (4, 16, 2048, 8, 64), data=4, tensor=2) == over_both.format(3)
    assert advised("kv_cache", (4, 16, 8, 2048, 64), data=4, tensor=2) == over_both.format(2)
    assert advised("cached_key", (16, 2048, 8, 64), data=4) == "shard axis 0 over 'data'"
    assert advised("cache", (1, 2048, 8, 64), tensor=8) == "shard axis 2 over 'tensor'"
    assert advised("cache", (1, 2048, 3, 64), tensor=8) == "shard axis 1 over 'tensor'"
    assert advised("w", (4, 16, 2048, 8, 64), data=4, tensor=2) == "shard axis 2 over ('data', 'tensor')"


@pytest.mark.parametrize("state", ["avoidable replication", "fewer devices"])
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (P("fsdp", "tensor"), "axis 0 over 'fsdp' and axis 1 over 'tensor'"),
        (P("tensor", "fsdp"), "axis 0 over 'tensor' and axis 1 over 'fsdp'"),
        (P("fsdp"), "axis 0 over 'fsdp'"),
        (P(None, "tensor"), "axis 1 over 'tensor'"),
        (P(("tensor", "fsdp")), "axis 0 over ('tensor', 'fsdp')"),
        (P(), "axis 1 over ('fsdp', 'tensor')"),
    ],
    ids=repr,
)
def test_a_moment_is_to_be_sharded_like_its_parameter(spec, words, state):
    """If it is replicated, and if it is on one device. Otherwise, the longest axis is the one to shard."""
    shape, mesh = (256, 1024), jax.make_mesh((2, 2), ("fsdp", "tensor"), devices=jax.devices()[:4])
    w = sharded(shape, mesh, *spec)
    mu = sharded(shape, mesh) if state == "avoidable replication" else jnp.zeros(shape)
    finding = the_finding(check_report({"params": {"w": w}, "opt": {"mu": {"w": mu}}}), state)
    assert {leaf.path: leaf.remedy for leaf in finding.leaves}["opt/mu/w"].endswith(f"shard {words}")
