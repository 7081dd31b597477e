"""Rules for logical axes, compared with those of Flax."""

import jax
import jax.numpy as jnp
from flax import linen
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

from jax_array_info_core import tree_report
from jax_array_info_core.geometry.layouts.spec import as_spec

NAMES = ("batch", "embed", "heads", "mlp", "vocab")
MESH = {"data": 2, "fsdp": 4, "tensor": 2, "expert": 3}
axes = st.one_of(
    st.none(),
    st.just(P.UNCONSTRAINED),
    st.sampled_from(tuple(MESH)),
    st.lists(st.sampled_from(tuple(MESH)), unique=True, max_size=3).map(tuple),
)
rules = st.lists(st.tuples(st.sampled_from(NAMES), axes), min_size=1, max_size=9)
leaves = st.lists(
    st.lists(st.sampled_from(NAMES), unique=True, max_size=4).flatmap(
        lambda names: st.permutations([*names, None, P.UNCONSTRAINED][: max(len(names), 3)])
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=100, deadline=None)
@given(rules, leaves)
def test_names_get_the_mesh_axes_of_flax(rules, leaves):
    """By specs and by boxes, for lists of rules and for mappings."""
    rules = [*rules, (NAMES[0], "data")]
    leaves = [*leaves, [NAMES[0]]]
    tree = [jax.ShapeDtypeStruct((7,) * len(names), jnp.int8) for names in leaves]
    boxes = [linen.LogicallyPartitioned(leaf, tuple(names)) for leaf, names in zip(tree, leaves, strict=True)]
    specs = [P(*names) for names in leaves]
    for chosen in (rules, dict(rules)):
        pairs = list(chosen.items()) if isinstance(chosen, dict) else chosen
        expected = [as_spec(spec) for spec in linen.logical_to_mesh(specs, pairs)]
        by_specs = tree_report(tree, mesh=MESH, specs=specs, logical_axes=chosen)
        assert [row.spec for row in by_specs.rows] == expected
        if not any(P.UNCONSTRAINED in names for names in leaves):
            by_boxes = tree_report(boxes, mesh=MESH, logical_axes=chosen)
            assert [row.spec for row in by_boxes.rows] == expected
