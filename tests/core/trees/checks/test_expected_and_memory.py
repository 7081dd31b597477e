"""Checks against expected specs, of optimizer moments and of memory."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import CheckError, PathRules, assert_tree, check_report, tree_report
from jax_array_info_core.layouts import Spec
from jax_array_info_core.reports import OutOfMemory
from tests.arrays import mesh_of, sharded
from tests.core.trees.checks.findings import abstract, kinds, paths, the_finding

pytestmark = pytest.mark.newest


def test_surplus_entries_of_none_are_expected_of_any_leaf():
    """A prefix such as ``P("x", None)`` also fits vectors."""
    tree = {"w": abstract(64, 64), "b": abstract(64)}
    assert check_report(tree, mesh={"x": 8}, specs=P("x"), expect=P("x", None)).passed


@pytest.mark.parametrize("spec", [P(), P(None, "x"), P("x", "y"), P(("y", "x"))])
def test_other_specs_are_found_with_both_specs(spec):
    """The finding has the spec and the expected spec."""
    options = {"mesh": {"x": 4, "y": 2}, "specs": P(("x", "y"))}
    report = check_report({"w": abstract(64, 64)}, **options, expect=PathRules({"*": spec}))
    [leaf] = the_finding(report, "unexpected sharding").leaves
    assert leaf.path == "w"
    assert leaf.spec == Spec((("x", "y"),))
    assert leaf.expected == Spec(tuple((n,) if isinstance(n, str) else tuple(n or ()) for n in spec))


def test_none_in_expect_matches_any_sharding():
    """A prefix of None leaves a whole subtree unchecked."""
    tree = {"a": abstract(8), "b": {"c": abstract(8), "d": abstract(8)}}
    options = {"mesh": {"x": 8}, "specs": P("x")}
    assert check_report(tree, **options, expect={"a": P("x"), "b": None}).passed
    report = check_report(tree, **options, expect={"a": None, "b": {"c": P(), "d": None}})
    assert paths(the_finding(report, "unexpected sharding")) == ["b/c"]


def test_an_invalid_expected_spec_is_named():
    """A misspelt mesh axis in ``expect`` does not pass as unsharded."""
    report = check_report({"w": abstract(8)}, mesh={"x": 8}, specs=P("x"), expect=P("model"))
    [leaf] = the_finding(report, "unexpected sharding").leaves
    assert leaf.remedy == "in expect, 'model' is not a mesh axis: the mesh has 'x'"


@pytest.mark.needs_devices(8)
def test_expected_shardings_are_compared_with_those_of_arrays():
    """``expect`` takes shardings, too; NumPy arrays and single-device arrays have none of its specs."""
    mesh = mesh_of((8,), ("x",))
    tree = {"a": sharded((64, 2), mesh, "x"), "n": np.zeros(64), "s": jnp.zeros(64)}
    expect = {"a": NamedSharding(mesh, P("x", None)), "n": P("x"), "s": P("x")}
    finding = the_finding(check_report(tree, expect=expect), "unexpected sharding")
    found = {leaf.path: leaf.remedy for leaf in finding.leaves}
    assert found == {"n": "on the host", "s": "SingleDeviceSharding"}
    same = jax.tree.map(lambda leaf: getattr(leaf, "sharding", None), tree)
    assert check_report(tree, expect=same).passed
    single = {**same, "a": SingleDeviceSharding(jax.devices()[1])}
    [leaf] = the_finding(check_report(tree, expect=single), "unexpected sharding").leaves
    assert leaf.remedy == "expected SingleDeviceSharding"


def test_an_array_on_the_only_device_is_replicated():
    """On one device, every sharding is fully replicated."""
    assert check_report({"a": jnp.zeros(4)}, expect=P()).passed


STATE = {
    "params": {"layers": [{"w": abstract(64, 8)}, {"w": abstract(64, 8)}], "head": abstract(8, 64)},
    "opt_state": (
        {
            "count": abstract(dtype=jnp.int32),
            "mu": {"layers": [{"w": abstract(64, 8)}, {"w": abstract(64, 8)}], "head": abstract(8, 64)},
            "nu": {"layers": [{"w": abstract(64, 8)}, {"w": abstract(64, 8)}], "head": abstract(3)},
        },
    ),
}


def test_moments_are_compared_with_their_parameters():
    """Parameters over fsdp, moments replicated: found, with both specs."""
    report = check_report(STATE, mesh={"fsdp": 8}, specs={"params": P("fsdp"), "opt_state": P()})
    finding = the_finding(report, "moments")
    assert paths(finding) == [
        "opt_state/0/mu/head",
        "opt_state/0/mu/layers/0/w",
        "opt_state/0/mu/layers/1/w",
        "opt_state/0/nu/layers/0/w",
        "opt_state/0/nu/layers/1/w",
    ], "opt_state/0/nu/head has another shape"
    assert {(str(leaf.spec), str(leaf.expected)) for leaf in finding.leaves} == {("P()", "P('fsdp',)")}
    assert "10.0 KiB per device, 1.3 KiB if sharded like it" in finding.problem


@pytest.mark.needs_devices(8)
def test_a_moment_on_fewer_devices_has_one_finding_unless_its_code_is_ignored():
    mesh = mesh_of((8,), ("x",))
    state = {
        "params": {"w": sharded((512, 64), mesh, "x")},
        "opt_state": {"mu": {"w": jax.device_put(jnp.zeros((512, 64)), jax.devices()[0])}},
    }
    assert kinds(check_report(state)) == ["incompatible devices"]
    assert kinds(check_report(state, ignore_codes="JAI112")) == ["fewer devices"]
    assert kinds(check_report(state, ignore_codes=("JAI102", "JAI112"))) == ["moments"]


def test_moments_with_an_equivalent_spec_are_not_found():
    """As with ``expect``."""
    specs = PathRules({"params*": P("fsdp"), "*count": P(), "*nu/head": P(), "*": P(("fsdp",), None)})
    assert check_report(STATE, mesh={"fsdp": 8}, specs=specs).passed


@pytest.mark.parametrize(
    ("parameter", "moment", "is_found"),
    [
        (P(), P("data"), False),
        (P(), P(("data", "model")), False),
        (P(None, "model"), P("data", "model"), False),
        (P(None, "model"), P(("data", "model")), False),
        (P("model"), P(("data", "model")), False),
        (P("model"), P("data"), True),
        (P("data", "model"), P("data"), True),
        (P("data", "model"), P("model", "data"), True),
        (P("model"), P(("one", "model")), False),
        (P("model"), P("one", "model"), True),
    ],
)
def test_moments_that_are_sharded_over_more_axes_are_intended(parameter, moment, is_found):
    """ZeRO-1 shards the optimizer state over the axis of data parallelism, too."""
    state = {"params": {"w": abstract(64, 64)}, "mu": {"w": abstract(64, 64)}, "nu": {"w": abstract(64, 64)}}
    options = {"mesh": {"data": 4, "model": 2, "one": 1}, "replicated_over": ("data", "model")}
    report = check_report(state, **options, specs={"params": parameter, "mu": moment, "nu": moment})
    assert kinds(report) == (["moments"] if is_found else [])
    assert paths(report.findings[0]) == ["mu/w", "nu/w"] if is_found else report.passed


def test_a_sharding_without_a_spec_is_compared_by_its_shards():
    """A GSPMDSharding has no spec: jit returns it for arguments that have one."""
    report = tree_report(
        {"params": {"w": abstract(64, 8)}, "mu": {"w": abstract(64, 8)}}, mesh={"x": 8}, specs=P("x")
    )
    mu, w = report.rows
    same = replace(mu, spec=None, sharding="GSPMDSharding")
    assert check_report(replace(report, rows=(same, w)), expect=P("x")).passed
    other = replace(same, shard_shape=(64, 1))
    report = check_report(replace(report, rows=(other, w)), expect=P("x"))
    assert kinds(report) == ["unexpected sharding", "moments"]
    assert all(paths(finding) == ["mu/w"] for finding in report.findings)


def test_moments_without_a_spec_that_are_sharded_further_are_intended():
    """Their shards are compared: jit may return a GSPMDSharding."""
    tree = {"params": {"w": abstract(64, 8)}, "mu": {"w": abstract(64, 8)}}
    report = tree_report(tree, mesh={"x": 8}, specs={"params": P(), "mu": P("x")})
    mu, w = report.rows
    further = replace(report, rows=(replace(mu, spec=None, sharding="GSPMDSharding"), w))
    assert check_report(further, replicated_over="x").passed
    less = replace(report, rows=(replace(mu, path="params/w"), replace(w, path="mu/w", spec=None)))
    assert kinds(check_report(less, replicated_over="x")) == ["moments"]


def test_moments_in_a_tree_without_params_are_those_below_mu_and_nu():
    """As in ``(model, opt_state)`` of Equinox."""
    tree = (
        {"layers": {"w": abstract(64, 8)}, "w": abstract(64, 8)},
        [{"count": abstract(), "mu": {"layers": {"w": abstract(64, 8)}, "w": abstract(64, 8)}}],
    )
    specs = ({"layers": {"w": P("x")}, "w": P()}, P())
    finding = the_finding(check_report(tree, mesh={"x": 8}, specs=specs), "moments")
    assert paths(finding) == ["1/0/mu/layers/w"]


def test_layers_that_share_a_name_are_not_moments():
    """In a tree of parameters alone, equal names at different depths mean nothing."""
    tree = {"head": {"w": abstract(64, 64)}, "layers": {"mlp": {"w": abstract(64, 64)}}}
    assert check_report(tree, mesh={"x": 8}, specs={"head": P("x"), "layers": P(None, "x")}).passed


def test_memory_is_compared_with_the_fullest_device():
    """A tree that needs exactly the memory of a device fits."""
    tree, options = {"w": abstract(1024)}, {"mesh": {"x": 8}, "specs": P("x")}
    assert check_report(tree, **options, hbm_nbytes=512).passed
    report = check_report(tree, **options, hbm_nbytes=511)
    finding = the_finding(report, "memory")
    assert (report.required_nbytes, report.hbm_nbytes, finding.nbytes) == (512, 511, 1)
    assert "Gradients and activations are not included." in finding.problem
    assert finding.remedy == "Use more devices: at least 9, if they divide the shapes evenly."


def test_a_limit_that_is_just_missed_or_kept_has_enough_digits():
    tree, options = {"w": abstract(2**20 + 2**11)}, {"mesh": {"x": 1}, "specs": P()}
    report = check_report(tree, **options, hbm_nbytes="4MiB")
    assert "does not fit: needs 4.01 MiB, has 4.00 MiB per device" in report.answer
    problem = the_finding(report, "memory").problem
    assert "takes 4.01 MiB per device, 8.0 KiB more than the 4.00 MiB of a device" in problem
    report = check_report(tree, **options, hbm_nbytes=4 * (2**20 + 2**11) + 1)
    assert "fits: needs 4,202,496 B of 4,202,497 B per device" in report.answer
    error = OutOfMemory(message="", required_nbytes=16_997_000_000, available_nbytes=63 * 2**28)
    assert error.answer == "does not fit: needs 15.83 GiB, has 15.75 GiB per device"
    error = replace(error, requested_nbytes=2**30 + 2**24, free_nbytes=2**30, required_nbytes=None)
    assert error.answer == "allocation failed: 1.02 GiB requested, 1.00 GiB free per device"


def test_a_share_that_just_exceeds_the_accepted_one_has_enough_digits():
    tree, options = {"a": abstract(8000 * 8192), "w": abstract(24 * 8192)}, {"mesh": {"x": 8}}
    specs = {"a": P("x"), "w": P()}
    report = check_report(tree, **options, specs=specs, max_replicated=0.0205)
    assert "(2.051%), within" not in str(report)
    assert "2.051%, more than the accepted 2.050%." in the_finding(report, "avoidable replication").problem
    report = check_report(tree, **options, specs=specs, max_replicated=0.02051)
    assert (
        "accepted: avoidable replicas of 672.0 KiB (2.0508%), within the limit of 2.0510%" in report.accepted
    )


def test_replicas_that_are_too_large_would_fit_if_sharded():
    """The fix has the bytes of an even distribution."""
    report = check_report({"w": abstract(1024)}, mesh={"x": 8}, specs=P(), hbm_nbytes=1000)
    remedy = the_finding(report, "memory").remedy
    assert remedy == "Evenly sharded over 8 devices, it would take 512.0 B per device."


@pytest.mark.parametrize(("optimizer", "count"), [("adam", 2), ("adamw", 2), ("lion", 1), ("momentum", 1)])
@pytest.mark.parametrize(
    ("dtype", "nbytes", "words"),
    [
        (None, 2, ("bfloat16", ", in the parameters' dtype,")),
        (jnp.float32, 4, ("float32", "")),
        ("int4", 0.5, ("int4", "")),
    ],
)
def test_an_optimizer_adds_moments_sharded_like_the_parameters(optimizer, count, dtype, nbytes, words):
    """For floating-point leaves below ``params`` only."""
    tree = {
        "params": {"w": abstract(1024, dtype=jnp.bfloat16), "ids": abstract(8, dtype=jnp.int32)},
        "batch_stats": {"mean": abstract(8)},
    }
    options = {"mesh": {"x": 8}, "specs": PathRules({"*w": P("x"), "*": P()})}
    report = check_report(tree, **options, optimizer=optimizer, moment_dtype=dtype)
    assert report.optimizer_nbytes == count * 1024 // 8 * nbytes
    assert report.required_nbytes == report.fullest_device_nbytes + report.optimizer_nbytes
    name, like = words
    noun = f"1 {name} moment" if count == 1 else f"2 {name} moments"
    assert report.optimizer_words == f"{optimizer}: {noun}{like} for 1 floating-point leaf below params"


def test_an_optimizer_adds_nothing_to_a_tree_with_moments():
    """Parameters without moments are then frozen."""
    tree = {
        "params": {"a": abstract(8), "frozen": abstract(64)},
        "opt_state": {"mu": {"a": abstract(8)}, "nu": {"a": abstract(8)}},
    }
    report = check_report(tree, hbm_nbytes=2**20, optimizer="adam")
    assert report.optimizer_nbytes == 0
    assert report.optimizer_words == "adam: none are added, because the tree has moments"


def test_averages_of_the_parameters_do_not_replace_the_moments():
    """Leaves with the path and shape of a parameter are not the state of Adam."""
    tree = {"params": {"a": abstract(8)}, "ema": {"a": abstract(8)}, "target": {"a": abstract(8)}}
    report = check_report(tree, optimizer="adam")
    assert report.optimizer_nbytes == 64
    assert "optimizer state" not in report.optimizer_words


@pytest.mark.parametrize(
    ("state", "count"),
    [
        ({"trace": {"w": abstract(64)}}, 1),
        ({"count": abstract(), "mu": {"w": abstract(64)}}, 1),
        ({"v_row": {"w": abstract(8)}, "v_col": {"w": abstract(4)}, "v": {"w": abstract(1)}}, 3),
        ({"z": {"w": abstract(64)}, "base_optimizer_state": {"nu": {"w": abstract(64)}}}, 2),
        ({"opt_state": {"m": {"w": abstract(64)}, "v": {"w": abstract(64)}}}, 2),
    ],
    ids=["momentum", "lion", "adafactor", "schedule free", "own"],
)
@pytest.mark.parametrize("has_params", [True, False])
def test_the_state_of_another_optimizer_gets_no_moments_and_is_told(state, count, has_params):
    tree = {"params": {"w": abstract(64)}, "state": state} if has_params else ({"w": abstract(64)}, state)
    report = check_report(tree, optimizer="adam")
    assert report.optimizer_nbytes == 2 * 64 * 4
    leaves = "1 leaf" if count == 1 else f"{count} leaves"
    assert report.optimizer_words.endswith(f", besides {leaves} of optimizer state")


def test_a_tree_with_the_name_of_a_moment_is_not_a_state():
    """As the mean that a layer of a variational autoencoder computes."""
    tree = {"encoder": {"mu": {"kernel": abstract(8, 2)}, "log_var": {"kernel": abstract(8, 2)}}}
    assert check_report(tree, optimizer="lion").optimizer_nbytes == 2 * 8 * 2 * 4


def test_an_optimizer_state_alone_has_no_parameters():
    tree = {"opt_state": [{"count": abstract(), "mu": {"w": abstract(8)}, "nu": {"w": abstract(8)}}]}
    report = check_report(tree, optimizer="adam")
    assert report.optimizer_words == "adam: none are added, because the tree has no parameters"


def test_the_parameters_of_a_tree_without_params_are_its_floating_point_leaves():
    """The words name this choice."""
    report = check_report([abstract(8), abstract(8, dtype=jnp.int8)], optimizer="adam", hbm_nbytes=100)
    assert report.optimizer_nbytes == 64
    assert "1 floating-point leaf of the whole tree: no key is params" in report.optimizer_words
    assert report.optimizer_words in the_finding(report, "memory").problem


@pytest.mark.needs_devices(8)
class TestPlansOfArrays:
    """``specs`` plans other shardings: no findings about these say nothing about the arrays."""

    SPECS = PathRules({"a": P("x"), "b": P(None, "x")})

    def arrays(self, *spec):
        mesh = mesh_of((8,), ("x",))
        return {"a": sharded((512, 16), mesh, "x"), "b": sharded((8, 16), mesh, *spec)}

    def test_a_plan_says_which_arrays_are_sharded_otherwise(self):
        report = check_report(self.arrays(), specs=self.SPECS)
        assert report.passed
        assert report.answer == "no findings; a plan: 1 leaf is sharded otherwise now"
        assert check_report(self.arrays(None, "x"), specs=self.SPECS).answer == "no findings"
        assert check_report(self.arrays(), specs=self.SPECS, ignore="b").answer == "no findings"

    def test_an_assertion_of_a_plan_is_not_silent(self):
        with pytest.raises(CheckError, match="pass expect= to compare those that the leaves have"):
            assert_tree(self.arrays(), specs=self.SPECS)
        assert_tree(self.arrays(None, "x"), specs=self.SPECS)
        assert_tree(tree_report(self.arrays(), specs=self.SPECS))
        with pytest.raises(CheckError, match="JAI106"):
            assert_tree(self.arrays(), expect=self.SPECS)

    def test_a_plan_for_another_mesh_is_a_plan_in_any_case(self):
        arrays = {"a": self.arrays()["a"]}
        assert_tree(arrays, mesh={"y": 4}, specs=P("y"))


def test_with_invalid_specs_it_is_not_known_whether_a_tree_fits():
    options = {"mesh": {"x": 4, "y": 2}, "hbm_nbytes": "16GiB"}
    report = check_report({"w": abstract(64, 64)}, **options, specs=P("x", "z"))
    assert report.answer.startswith("fit unknown: without the invalid specs, needs 4.0 KiB of 16.0 GiB")
    assert check_report({"w": abstract(64, 64)}, **options, specs=P("x", "y")).answer.startswith("fits:")
