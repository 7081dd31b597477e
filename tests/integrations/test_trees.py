"""Trees of flax, equinox and optax: paths, totals, plans and checks."""

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from flax.core.spmd import logical_axis_rules
from flax.training.train_state import TrainState
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import (
    CheckError,
    PathRules,
    assert_tree,
    check_report,
    collect_reports,
    from_json,
    print_check,
    print_tree,
    sharding_info,
    tap_sharding,
    to_json,
    tree_report,
)
from jax_array_info.layouts import Spec
from jax_array_info_core.facts.pages.tree_rows import leaf_groups
from tests.arrays import mesh_of

pytestmark = pytest.mark.needs_devices(8)

LOGICAL = {"embed": "fsdp", "mlp": "tensor"}
KERNEL = Spec((("embed",), ("mlp",)))
SHARDED = Spec((("fsdp",), ("tensor",)))


def mesh():
    return mesh_of((4, 2), ("fsdp", "tensor"))


def paths_of(tree):
    return [row.path for row in tree_report(tree).rows]


def elements_of(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree) if hasattr(leaf, "size"))


def placement(report):
    """Return what a plan must know about each leaf."""
    return [
        (row.path, row.shape, row.dtype, row.spec, row.shard_shape, row.shard_nbytes, row.replicas)
        for row in report.rows
    ]


def totals(report):
    return (report.elements, report.nbytes, report.fullest_device_nbytes, report.ideal_nbytes, report.excess)


class Model(nnx.Module):
    """Two layers with logical names, and a norm."""

    def __init__(self, rngs):
        init = nnx.with_partitioning(nnx.initializers.lecun_normal(), tuple(LOGICAL))
        self.layers = nnx.List([nnx.Linear(8, 8, kernel_init=init, rngs=rngs) for _ in range(2)])
        self.norm = nnx.BatchNorm(8, rngs=rngs)


@pytest.fixture
def placed():
    """Yield the contexts in which flax places the arrays of nnx modules."""
    with jax.set_mesh(mesh()), logical_axis_rules(tuple(LOGICAL.items())):
        yield


PARAMETERS = [
    "layers/0/bias",
    "layers/0/kernel",
    "layers/1/bias",
    "layers/1/kernel",
    "norm/bias",
    "norm/scale",
]


def test_an_nnx_module_and_its_state_have_the_same_leaves(placed):
    model = Model(nnx.Rngs(0))
    report = tree_report(model, "model")
    assert report.type_name == "Model"
    assert [row.path for row in report.rows] == sorted([*PARAMETERS, "norm/mean", "norm/var"])
    assert report.elements == elements_of(nnx.state(model)) == 2 * (8 * 8 + 8) + 4 * 8
    assert tree_report(nnx.state(model)).rows == report.rows
    kernels = [row for row in report.rows if row.path.endswith("kernel")]
    assert {(row.logical, row.spec, row.shard_shape) for row in kernels} == {(KERNEL, SHARDED, (2, 4))}
    assert paths_of(nnx.split(model)[1]) == paths_of(model)


def test_an_nnx_optimizer_has_the_moments_of_each_parameter(placed):
    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)
    report = tree_report(optimizer)
    moments = [f"opt_state/0/{moment}/{path}" for moment in ("mu", "nu") for path in PARAMETERS]
    assert [row.path for row in report.rows] == ["opt_state/0/count", *moments, "step"]
    assert report.elements == elements_of(nnx.state(optimizer))
    named = [row for row in report.rows if row.logical]
    assert len(named) == 4
    assert {(row.logical, row.spec) for row in named} == {(KERNEL, SHARDED)}


def test_an_abstract_nnx_state_is_planned_as_flax_places_it(placed):
    def create():
        model = Model(nnx.Rngs(0))
        return nnx.state((model, nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)))

    alive = tree_report(create())
    sizes = {"fsdp": 4, "tensor": 2}
    for abstract in (
        nnx.eval_shape(create),
        jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), create()),
    ):
        planned = tree_report(abstract, mesh=sizes, logical_axes=LOGICAL)
        assert placement(planned) == placement(alive)
        assert totals(planned) == totals(alive)
        assert {mesh.platform for mesh in planned.meshes} == {None}


def test_the_empty_state_of_sgd_is_accepted_only_by_name():
    state = optax.sgd(0.1).init({"w": jnp.zeros(8)})
    with pytest.raises(CheckError, match="nothing was checked"):
        assert_tree(state)
    assert_tree(state, allow_empty=True)


def test_moments_that_lost_their_sharding_are_found(placed):
    model = Model(nnx.Rngs(0))
    state = nnx.state(nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param))
    tree = {"params": nnx.state(model, nnx.Param), "opt": state}
    intended = {"max_replicated": 0.5, "replicated_over": ()}
    assert not [one for one in check_report(tree, **intended).findings if "moment" in one.kind]
    replicated = NamedSharding(mesh(), P())
    tree["opt"] = jax.device_put(state, replicated)
    with pytest.raises(CheckError) as error:
        assert_tree(tree, **intended)
    (found,) = [one for one in error.value.report.findings if "moment" in one.kind]
    assert sorted(leaf.path for leaf in found.leaves) == [
        f"opt/opt_state/0/{moment}/layers/{layer}/kernel" for moment in ("mu", "nu") for layer in (0, 1)
    ]
    assert {(leaf.spec, leaf.expected) for leaf in found.leaves} == {(Spec(()), SHARDED)}
    assert "P(), expected P('fsdp', 'tensor')" in str(error.value)


class Block(linen.Module):
    """A layer with logical names and a layer with mesh axes."""

    @linen.compact
    def __call__(self, x):
        init = linen.initializers.lecun_normal()
        x = linen.Dense(16, kernel_init=linen.with_logical_partitioning(init, ("embed", "mlp")))(x)
        return linen.Dense(8, kernel_init=linen.with_partitioning(init, ("tensor", "fsdp")))(x)


def variables():
    return Block().init(jax.random.key(0), jnp.ones((2, 8)))


def test_tapped_nnx_modules_keep_their_updates():
    """A copy of a module would lose updates, and turn one submodule in two places into two."""
    module = nnx.BatchNorm(4, rngs=nnx.Rngs(0))

    @nnx.jit
    def step(both, x):
        first, second = tap_sharding(both, "modules")
        assert first is second
        return first(x)

    with collect_reports() as reports:
        step((module, module), jnp.ones((2, 4)))
    assert [row.path for row in reports[0].rows if row.source == "compiler"] == paths_of((module, module))
    assert not jnp.array_equal(module.mean[...], jnp.zeros(4))


def test_linen_boxes_name_the_axes_of_their_values():
    report = tree_report(variables())
    assert [(row.path, row.logical and str(row.logical)) for row in report.rows] == [
        ("params/Dense_0/bias", None),
        ("params/Dense_0/kernel", "P('embed', 'mlp')"),
        ("params/Dense_1/bias", None),
        ("params/Dense_1/kernel", "P('tensor', 'fsdp')"),
    ]
    assert report.parameters == report.elements == elements_of(linen.unbox(variables())) == 280


def test_logical_axes_plan_as_flax_does():
    rules = tuple({**LOGICAL, "tensor": "tensor", "fsdp": "fsdp"}.items())
    specs = linen.logical_to_mesh(linen.get_partition_spec(variables()), rules)
    shardings = jax.tree.map(lambda spec: NamedSharding(mesh(), spec), specs)
    alive = tree_report(jax.jit(lambda: linen.unbox(variables()), out_shardings=shardings)())
    abstract = jax.eval_shape(variables)
    planned = tree_report(abstract, mesh=mesh(), logical_axes=dict(rules))
    by_specs = tree_report(linen.unbox(abstract), mesh=mesh(), specs=specs)
    by_rules = tree_report(
        abstract,
        mesh=mesh(),
        specs=PathRules({"*_0/kernel/*": P("fsdp", "tensor"), "*kernel/*": P("tensor", "fsdp"), "*": P()}),
    )
    for report in (planned, by_specs, by_rules):
        assert totals(report) == totals(alive)
        assert [row.shard_shape for row in report.rows] == [row.shard_shape for row in alive.rows]


def test_a_train_state_has_its_parameters_and_moments():
    params = linen.unbox(variables())["params"]
    state = TrainState.create(apply_fn=Block().apply, params=params, tx=optax.adam(1e-3))
    report = tree_report(state)
    assert (report.type_name, report.others) == ("TrainState", 1)  # the step is an int
    assert report.parameters == elements_of(params) == 280
    assert report.elements == elements_of(state) == 3 * 280 + 1
    assert [row.path for row in report.rows[:5]] == [
        "params/Dense_0/bias",
        "params/Dense_0/kernel",
        "params/Dense_1/bias",
        "params/Dense_1/kernel",
        "opt_state/0/count",
    ]
    assert from_json(to_json(report)) == report


def test_equinox_modules_have_their_fields_as_keys():
    model = equinox.nn.MLP(8, 4, 16, 2, key=jax.random.key(0))
    state = optax.adam(1e-3).init(equinox.filter(model, equinox.is_array))
    report = tree_report({"params": model, "opt": state})
    weights = [f"layers/{layer}/{name}" for layer in range(3) for name in ("weight", "bias")]
    moments = [f"opt/0/{moment}/{path}" for moment in ("mu", "nu") for path in weights]
    assert [row.path for row in report.rows] == [
        "opt/0/count",
        *moments,
        *(f"params/{path}" for path in weights),
    ]
    assert report.parameters == elements_of(equinox.filter(model, equinox.is_array))
    placed = equinox.filter_shard(model, NamedSharding(mesh(), P("fsdp")))
    specs = PathRules({"*": P("fsdp")})
    assert placement(
        tree_report(equinox.filter_eval_shape(lambda: model), mesh=mesh(), specs=specs)
    ) == placement(tree_report(placed))


def test_statistics_find_the_parameter_that_is_nan():
    params = linen.unbox(variables())["params"]
    params["Dense_1"]["bias"] = jnp.full(8, np.nan)
    with collect_reports() as reports:
        print_tree({"params": params}, statistics=True, sort="nan")
    (report,) = reports
    assert [row.path for row in report.rows if not row.statistics.is_finite] == ["params/Dense_1/bias"]


def test_trees_of_libraries_are_printed(capsys, placed, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    model = Model(nnx.Rngs(0))
    tree = {
        "params": nnx.state(model, nnx.Param),
        "opt": nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param),
    }
    print_tree(tree, "state")
    print_check(tree, max_replicated=1)
    printed = capsys.readouterr().out
    assert "params/layers/0-1/kernel ×2" in printed
    assert "20 leaves, 482 elements, 160 parameters" in printed
    assert "no findings\n20 leaves on 8 devices" in printed


class Dropped(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(4, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)


def test_parameters_of_nnx_are_counted_and_its_rng_state_is_one_row():
    model = Dropped(nnx.Rngs(0, params=1, dropout=2))
    for tree in (model, nnx.state(model), {"model": nnx.state(model), "lr": jnp.ones(())}):
        report = tree_report(tree)
        assert report.parameters == 4 * 8 + 8 + 2 * 8
        *others, rngs = leaf_groups(report)
        assert (rngs.path, rngs.is_prefix, rngs.sums.leaf_count) == (
            "(RNG state)",
            True,
            len(report.rows) - sum(row.count for row in others),
        )
        assert all(row.variable == "RNG state" for row in rngs.leaves)
        assert not any("rngs" in row.path for row in others)
    with collect_reports() as traced:
        nnx.jit(lambda model: sharding_info(model))(model)
    assert [report.parameters for report in traced] == [56]
    assert tree_report(nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)).parameters is None
    assert tree_report(model, mesh={"x": 4}, specs=P()).parameters == 56
