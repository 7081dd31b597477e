import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import layout
from jax.sharding import Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import PathRules, check_report, from_json, to_json, tree_report
from jax_array_info_core.errors import SpecError, UnsupportedValueError
from jax_array_info_core.layouts import Spec
from tests.arrays import abstract_mesh, mesh_of, sharded

pytestmark = pytest.mark.once_per_version


def shape_of(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def row(report, path):
    [found] = [row for row in report.rows if row.path == path]
    return found


def test_a_single_array_is_a_tree_of_one_leaf_without_a_path():
    report = tree_report(jnp.ones((4, 2)), "state")
    assert [(row.path, row.shape, row.nbytes) for row in report.rows] == [("", (4, 2), 32)]
    assert (report.name, report.type_name, report.others) == ("state", "ArrayImpl", 0)


@pytest.mark.parametrize(
    ("make", "same"),
    [
        (lambda: jnp.ones(4), "a"),
        (lambda: np.zeros(4, np.float32).view(np.ma.MaskedArray), "a"),
        (lambda: shape_of(4), None),
    ],
    ids=["JAX", "a subclass of NumPy", "no data"],
)
def test_an_array_at_two_paths_counts_once(make, same):
    array = make()
    report = tree_report({"a": array, "b": [array], "c": make()})
    assert [row.same_as for row in report.rows] == [None, same, None]
    elements = 8 if same else 12
    assert (report.elements, report.nbytes + report.numpy_nbytes) == (elements, 4 * elements)


def test_a_number_in_place_of_an_array_is_no_longer_a_row():
    w = np.zeros(4, np.float32)
    for tree, paths in (
        ({"w": w, "n": w}, ["n", "w"]),
        ({"w": w, "n": 3}, ["w"]),
        ({"w": 3, "n": w}, ["n"]),
        ({"w": w, "n": 3}, ["w"]),
    ):
        report = tree_report(tree)
        assert ([row.path for row in report.rows], report.others) == (paths, 2 - len(paths))


@pytest.mark.needs_devices(8)
def test_each_row_has_the_sharding_and_the_bytes_of_its_leaf():
    mesh = mesh_of((4, 2), ("data", "model"))
    report = tree_report({"w": sharded((8, 4), mesh, "data"), "b": sharded((4,), mesh)})
    w = row(report, "w")
    assert (w.kind, w.dtype, w.shape, w.source, w.sharding) == (
        "array",
        "float32",
        (8, 4),
        "array",
        "NamedSharding",
    )
    assert (w.spec, w.shard_shape, w.nbytes, w.shard_nbytes, w.replicas) == (
        Spec((("data",),)),
        (2, 4),
        128,
        32,
        2,
    )
    assert w.avoidable_nbytes == 16  # over model
    assert row(report, "b").avoidable_nbytes == 16 - 4  # 4 of 8 shards are possible
    assert [mesh.axes.shape for mesh in report.meshes] == [{"data": 4, "model": 2}]
    assert (report.nbytes, report.fullest_device_nbytes, report.ideal_nbytes) == (144, 48, 18)
    assert [(part.cause, part.axes, part.nbytes) for part in report.excess] == [
        ("replicated over", ("model",), 16),
        ("fully replicated", (), 14),
    ]


@pytest.mark.needs_devices(8)
def test_leaves_in_host_memory_count_their_devices():
    if jax.devices()[0].default_memory().kind != "device":
        pytest.skip("these devices have no other memory than that of the host")
    sharding = NamedSharding(mesh_of((8,), ("x",)), P("x"), memory_kind="pinned_host")
    report = tree_report({"w": jax.device_put(np.zeros((8, 4), np.float32), sharding)})
    assert (report.device_count, report.fullest_device_nbytes, report.host_nbytes) == (8, 0, 16)
    assert tree_report(report, specs=P("x")).device_count == 8


def test_the_gradient_of_an_integer_is_a_float0():
    loss = jax.grad(lambda tree: (tree["n"] * 2.0).sum(), allow_int=True)
    [leaf] = tree_report(loss({"n": jnp.ones(3, jnp.int32)})).rows
    assert (leaf.dtype, leaf.nbytes) == ("float0", 0)


def test_parameters_are_the_leaves_whose_first_key_is_params():
    tree = {"params": {"w": shape_of(4, 4)}, "params_ema": shape_of(4), "opt": {"params": shape_of(4)}}
    assert tree_report(tree).parameters == 16
    assert tree_report({"w": shape_of(4)}).parameters is None
    assert tree_report({"params": shape_of(4)}).parameters == 4


def test_a_leaf_without_a_sharding_counts_in_full_on_each_device():
    report = tree_report({"a": shape_of(8), "b": shape_of(8)}, mesh={"x": 8}, specs={"a": P("x"), "b": None})
    assert report.fullest_device_nbytes == 4 + 32
    assert [(part.cause, part.nbytes) for part in report.excess] == [("no sharding", 28)]


@pytest.mark.needs_devices(8)
def test_leaves_on_several_device_sets_are_counted_on_each_device():
    mesh = mesh_of((8,), ("x",))
    tree = {"all": sharded((8,), mesh, "x"), "one": jax.device_put(jnp.ones(100), jax.devices()[3])}
    report = tree_report(tree)
    assert (report.fullest_device_nbytes, report.emptiest_device_nbytes) == (404, 4)
    assert [mesh.device_count for mesh in report.meshes] == [8, 1]
    assert [(part.cause, part.nbytes) for part in report.excess] == [("device set", 404 - 54)]


@pytest.mark.needs_devices(8)
def test_the_same_tree_has_the_same_report_until_a_leaf_changes():
    mesh = mesh_of((8,), ("x",))
    tree = {"w": sharded((8, 4), mesh, "x"), "n": 1}
    before = tree_report(tree)
    assert tree_report(tree) is before
    assert tree_report({"w": sharded((8, 4), mesh, "x"), "n": 2}) is before
    assert tree_report({"w": sharded((8, 4), mesh), "n": 1}) != before
    tree["w"].delete()
    assert tree_report(tree).rows[0].is_deleted
    assert tree_report(tree, "named").name == "named"
    assert tree_report(tree).name is None


class TestPlan:
    """Another mesh and other specs."""

    tree = {"params": {"w": shape_of(16, 8), "b": shape_of(8)}, "n": 3}  # noqa: RUF012
    mesh = {"fsdp": 8, "tensor": 2}  # noqa: RUF012

    @pytest.mark.parametrize(
        ("specs", "b", "w"),
        [
            (P("fsdp"), "P('fsdp',)", "P('fsdp',)"),
            ({"params": {"w": P("fsdp"), "b": None}, "n": None}, None, "P('fsdp',)"),
            (PathRules({"*w": P("fsdp", "tensor"), "params/*": P()}), "P()", "P('fsdp', 'tensor')"),
            (None, "P()", "P()"),
        ],
        ids=["one for all leaves", "None leaves a leaf as it is", "the first rule wins", "no specs"],
    )
    def test_each_leaf_has_its_spec(self, specs, b, w):
        rows = tree_report(self.tree, mesh=self.mesh, specs=specs).rows
        assert [(row.path, row.spec and str(row.spec)) for row in rows] == [("params/b", b), ("params/w", w)]

    @pytest.mark.parametrize(
        ("options", "problems"),
        [
            (
                {"specs": {"params": {"w": P("data", "fsdp"), "b": P("data", "fsdp")}, "n": None}},
                [
                    "params/b: 'data' is not a mesh axis: the mesh has 'fsdp', 'tensor'",
                    "params/b: the spec has 2 entries, but the array has 1 axis: shape (8,)",
                    "params/w: 'data' is not a mesh axis: the mesh has 'fsdp', 'tensor'",
                ],
            ),
            (
                {"specs": {"params": {"w": P(), "c": P()}, "n": "fsdp"}},
                [
                    "the entry of specs at 'n' must be a PartitionSpec, a Sharding or None, got <class 'str'>",
                    "specs has no entry for 'params/b': None leaves a leaf as it is",
                    "specs has an entry at 'params/c', but the tree has no leaf there",
                ],
            ),
            (
                {"specs": PathRules({**{f"*mpl{number}": P() for number in range(2)}, "*": P()})},
                [
                    f"the pattern '*mpl{number}' matches no leaf: print_tree shows the paths"
                    for number in (0, 1)
                ],
            ),
            (
                {"specs": PathRules({"*w": P("fsdp")}), "mesh": None},
                ["params/w: the leaf has no mesh for its spec: pass mesh="],
            ),
            ({"mesh": {"x": 0}}, ["mesh axis 'x' has no devices: its size is 0"]),
            ({"mesh": {"x": "8"}}, ["the size of mesh axis 'x' must be an integer, got '8'"]),
            ({"mesh": {"x": 8.0}}, ["the size of mesh axis 'x' must be an integer, got 8.0"]),
            (
                {"specs": PathRules({"*w": 3})},
                [
                    "params/w: a spec must be a PartitionSpec or a sequence of None, names and tuples of names, "
                    "got 3"
                ],
            ),
        ],
    )
    def test_every_problem_is_listed(self, options, problems):
        with pytest.raises(SpecError) as error:
            tree_report(self.tree, **{"mesh": self.mesh, "specs": P(), **options})
        assert list(error.value.problems) == problems

    def test_something_else_in_place_of_a_mesh_is_an_error_and_numpy_integers_are_not(self):
        with pytest.raises(UnsupportedValueError, match="mesh must be a Mesh, an AbstractMesh or a mapping"):
            tree_report(self.tree, mesh="fsdp=8", specs=P())
        report = tree_report(self.tree, mesh={"x": np.int32(8)}, specs=P("x"))
        assert from_json(to_json(report)) == tree_report(self.tree, mesh={"x": 8}, specs=P("x"))

    def test_patterns_that_match_nothing_share_a_line(self):
        with pytest.raises(SpecError) as error:
            tree_report(self.tree, mesh=self.mesh, specs=PathRules({f"*mpl{n}": P() for n in range(9)}))
        words = "the pattern '*mpl0' matches no leaf: print_tree shows the paths (and 8 more: see the error's problems)"
        assert str(error.value) == words

    def test_shardings_have_their_own_mesh(self):
        sharding = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("x",)), P("x"))
        tree = {"b": shape_of(8), "i": shape_of(8, dtype=jnp.int8), "w": shape_of(16, 8)}
        report = tree_report(tree, specs=sharding)
        assert [mesh.axes.shape for mesh in report.meshes] == [{"x": 1}]
        facts = [(row.path, row.dtype, row.shard_shape, row.shard_nbytes) for row in report.rows]
        assert facts == [("b", "float32", (8,), 32), ("i", "int8", (8,), 8), ("w", "float32", (16, 8), 512)]
        single = tree_report(self.tree, specs=SingleDeviceSharding(jax.devices()[0]))
        assert {row.sharding for row in single.rows} == {"SingleDeviceSharding"}

    def test_leaves_with_the_same_problem_share_a_line_of_the_message(self):
        tree = {"step": shape_of(), "params": [shape_of(8, 8)] * 80}
        with pytest.raises(SpecError) as error:
            tree_report(tree, mesh={"fsdp": 4}, specs={"step": P("data"), "params": P("data")})
        assert str(error.value) == (
            "'data' is not a mesh axis: the mesh has 'fsdp' (81 leaves: params/0, params/1, params/2, …)\n"
            "step: the spec has 1 entry, but the array has 0 axes: shape ()"
        )
        assert len(error.value.problems) == 82
        assert error.value.problems[79] == "params/79: 'data' is not a mesh axis: the mesh has 'fsdp'"

    @pytest.mark.parametrize("specs", [{"*w": P("fsdp")}, {"params": [P()]}])
    def test_the_message_has_the_first_problem_of_each_kind_and_the_forms_of_specs(self, specs):
        tree = {"params": [shape_of(8, 8)] * 80}
        with pytest.raises(SpecError) as error:
            tree_report(tree, mesh={"fsdp": 4}, specs=specs)
        missing, *surplus, forms = str(error.value).splitlines()
        assert re.fullmatch(
            r"specs has no entry for 'params/[01]': None leaves a leaf as it is \(and (79|78) more: see the error's problems\)",
            missing,
        )
        assert len(surplus) == (list(specs) == ["*w"])
        assert forms == (
            "specs takes one PartitionSpec for all leaves, a tree of them like the tree or a prefix of it, "
            "or PathRules({'*/kernel': P('data'), '*': P()})"
        )
        assert len(error.value.problems) >= 79

    def test_a_spec_of_the_leaf_itself_that_does_not_fit_another_mesh_names_the_way_out(self):
        before = tree_report({"w": shape_of(8, 8)}, mesh={"fsdp": 4}, specs=P("fsdp"))
        with pytest.raises(SpecError) as error:
            tree_report(before, mesh={"data": 2})
        assert str(error.value) == (
            "w: 'fsdp' is not a mesh axis: the mesh has 'data'. "
            "This is the spec of the leaf: pass specs for the new mesh"
        )

    def test_a_format_is_the_sharding_in_it(self):
        sharding = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("x",)), P("x"))
        formats = getattr(layout, "Format", layout.Layout)  # JAX 0.7 renamed it
        for specs in (formats(None, sharding), PathRules({"*": formats(None, sharding)})):
            assert tree_report(self.tree, specs=specs) == tree_report(self.tree, specs=sharding)
        assert tree_report(self.tree, specs=formats()) == tree_report(self.tree)

    def test_padding_is_a_cause_of_more_bytes(self):
        report = tree_report({"w": shape_of(17, 16)}, mesh={"data": 8}, specs=P("data"))
        assert (report.rows[0].shard_shape, report.fullest_device_nbytes) == ((3, 16), 192)
        assert [(part.cause, part.nbytes) for part in report.excess] == [("padding", 192 - 136)]

    def test_a_plan_is_of_a_report_as_of_its_tree(self):
        report = from_json(to_json(tree_report(self.tree)))
        planned = tree_report(report, mesh=self.mesh, specs=P("fsdp"))
        assert planned == tree_report(self.tree, mesh=self.mesh, specs=P("fsdp"))

    def test_a_mesh_stands_once_in_the_report(self):
        tree = {f"w{number}": shape_of(65536, 4) for number in range(100)}
        report = tree_report(tree, mesh={"data": 65536}, specs=P("data"))
        assert len(report.meshes) == 1
        assert len(to_json(report)) < 100_000

    def test_the_plan_of_a_tree_leaves_its_report_as_it_is(self):
        before = tree_report(self.tree)
        tree_report(self.tree, mesh=self.mesh, specs=P("fsdp"))
        assert tree_report(self.tree) == before
        assert before.meshes == ()


def test_an_abstract_mesh_needs_no_devices():
    mesh = abstract_mesh(fsdp=4096, tensor=16)
    report = tree_report({"w": shape_of(8192, 8192)}, mesh=mesh, specs=P("fsdp", "tensor"))
    assert (report.device_count, report.fullest_device_nbytes) == (65536, 4096)


def test_the_metadata_of_flax_boxes_are_logical_names():
    @jax.tree_util.register_pytree_with_keys_class
    class Partitioned:
        def __init__(self, value, names):
            self.value, self.names = value, names

        def tree_flatten_with_keys(self):
            return [(jax.tree_util.GetAttrKey("value"), self.value)], self.names

        @classmethod
        def tree_unflatten(cls, names, children):
            return cls(*children, names)

    tree = {"kernel": Partitioned(shape_of(16, 8), ("embed", "mlp"))}
    report = tree_report(tree, mesh={"fsdp": 8, "tensor": 2}, logical_axes={"embed": "fsdp"})
    [found] = report.rows
    assert (found.path, found.full_path, str(found.logical), str(found.spec)) == (
        "kernel",
        "kernel/value",
        "P('embed', 'mlp')",
        "P('fsdp', None)",
    )


@dataclasses.dataclass
class ArrayLike:
    """A leaf whose sharding is not checked, as that of a ShapeDtypeStruct in JAX 0.4.38."""

    shape: tuple[int, ...]
    dtype: np.dtype
    sharding: NamedSharding

    def __array__(self, *_, **__):
        raise AssertionError("data is not read")


@pytest.mark.needs_devices(8)
@pytest.mark.parametrize("shape", [(), (4,)])
def test_a_spec_with_more_entries_than_the_array_has_axes_leaves_the_sharding_unknown(shape):
    leaf = ArrayLike(shape, np.dtype("float32"), NamedSharding(mesh_of((4, 2), ("a", "b")), P("a", "b")))
    report = tree_report({"w": leaf})
    assert (row(report, "w").spec, row(report, "w").sharding) == (None, "NamedSharding")
    assert row(report, "w").shard_shape is None
    assert from_json(to_json(report)) == report
    assert [finding.name for finding in check_report({"w": leaf}).findings] == ["not-checked"]


STATE = {"w": shape_of(16, 8), "v": shape_of(16, 8)}
PLAN = {"mesh": {"x": 4}, "specs": P("x")}


def test_a_tree_that_is_planned_again_has_the_same_report():
    report = tree_report(STATE, **PLAN)
    assert tree_report(STATE, **PLAN) is report
    assert tree_report({**STATE}, mesh={"x": 4}, specs={"w": P("x"), "v": P("x")}).rows == report.rows
    assert tree_report(STATE, "named", **PLAN) == dataclasses.replace(report, name="named")


CHANGES = {
    "a mesh": (STATE, {"mesh": {"x": 8}, "specs": P("x")}),
    "the name of an axis": (STATE, {"mesh": {"y": 4}, "specs": P()}),
    "specs": (STATE, {"mesh": {"x": 4}, "specs": P(None, "x")}),
    "a spec": (STATE, {"mesh": {"x": 4}, "specs": {"w": P("x"), "v": P()}}),
    "rules": (STATE, {"mesh": {"x": 4}, "specs": PathRules({"w": P("x"), "*": P()})}),
    "logical axes": (STATE, {"mesh": {"x": 4}, "specs": P("a"), "logical_axes": {"a": "x"}}),
    "no specs": (STATE, {"mesh": {"x": 4}}),
    "a shape": ({**STATE, "v": shape_of(16, 4)}, PLAN),
    "a dtype": ({**STATE, "v": shape_of(16, 8, dtype=jnp.bfloat16)}, PLAN),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_plan_of_other_leaves_or_of_another_mesh_is_made_anew(name):
    tree, plan = CHANGES[name]
    tree_report(STATE, **PLAN)
    report = tree_report(tree, **plan)
    assert report != tree_report(STATE, **PLAN)
    tree_report({"other": shape_of(2)})
    assert tree_report(tree, **plan) == report


def test_rules_that_changed_in_place_are_planned_anew():
    entry = ["x"]
    rules = PathRules({"*": entry})
    before = tree_report(STATE, mesh={"x": 4}, specs=rules)
    entry[0] = None
    assert [str(row.spec) for row in before.rows] == ["P('x',)"] * 2
    assert [str(row.spec) for row in tree_report(STATE, mesh={"x": 4}, specs=rules).rows] == ["P(None,)"] * 2


def test_what_jax_does_not_flatten_is_that_of_the_planned_tree():
    class Model:
        def __init__(self, leaf):
            self.leaf = leaf

    def checked(entry):
        return check_report({**STATE, "model": entry}, mesh={"x": 4}, specs=P("x"), min_nbytes=2**20)

    assert [finding.kind for finding in checked(Model(jnp.ones(2))).findings] == ["not checked"]
    assert checked(Model(2)).findings == ()
