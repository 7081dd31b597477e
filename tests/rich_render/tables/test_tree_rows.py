"""Rows of a table of leaves: folded indices, prefixes, order and sums."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_array_info import print_tree
from jax_array_info_core.facts.pages import trees
from jax_array_info_core.facts.pages.blocks import Table, cut
from jax_array_info_core.facts.pages.folds import number_ranges, path_keys, path_pieces
from jax_array_info_core.facts.pages.tree_rows import leaf_groups, leaf_sums
from jax_array_info_core.reports import ElsewhereBytes, LeafStatistics, TreeMesh, TreeReport, TreeRow

pytestmark = pytest.mark.newest


def leaf(path, **fields):
    made = TreeRow(path=path, kind="planned", shape=(4, 4), dtype="float32", nbytes=64, shard_nbytes=64)
    return dataclasses.replace(made, **fields)


def tree(*rows):
    rows = [leaf(row) if isinstance(row, str) else row for row in rows]
    devices = TreeMesh(axes=None, device_count=2)
    return TreeReport(name=None, type_name="dict", rows=tuple(rows), meshes=(devices, devices))


def paths(report, **options):
    return [row.path for row in leaf_groups(report, **options)]


def table(report, max_rows=None, **options):
    """Return the table of a page."""
    [found] = [
        block for block in cut(trees.tree_page(report, **options), max_rows) if isinstance(block, Table)
    ]
    return found


LAYERS = [f"params/layers/{i}/{name}" for i in range(4) for name in ("b", "w")]
EXPERTS = [f"{i}/experts/{j}" for i in range(4) for j in range(8)]


@pytest.mark.parametrize(
    ("leaves", "depth", "expected"),
    [
        (["embed", *LAYERS, "norm"], None, "embed params/layers/0-3/b params/layers/0-3/w norm"),
        (EXPERTS, None, "0-3/experts/0-7"),
        (EXPERTS[:-1], None, "0-2/experts/0-7 3/experts/0-6"),
        (["wi_0", "wi_1"], None, "wi_0 wi_1"),
        (["wi_0", "wi_1", "wi_2"], None, "wi_0-2"),
        ([f"model.layers.{i}.mlp.weight" for i in range(3)], None, "model.layers.0-2.mlp.weight"),
        (["w1", "w2", "w3"], None, "w1 w2 w3"),
        (
            [f"a/{number}" for number in (0, 1, 2, 5, 9, 10, 14, 20, 26, 27, 39)],
            None,
            "a/0-2 a/5 a/9-10 a/14 a/20 a/26-27 a/39",
        ),
        ([*LAYERS, "step"], 1, "params step"),
        ([*LAYERS, "step"], 2, "params/layers step"),
        ([*LAYERS, "step"], 3, "params/layers/0-3 step"),
        ([*LAYERS, "step"], 4, "params/layers/0-3/b params/layers/0-3/w step"),
    ],
)
def test_paths_that_differ_in_indices_share_a_row(leaves, depth, expected):
    """The indices must have all combinations; in a name, there must be three."""
    assert paths(tree(*leaves), depth=depth) == expected.split()


def test_numbers_in_even_steps_are_one_range():
    assert list(number_ranges([4, 0, 2, 6, 8], least=2)) == [("0-8:2", [0, 2, 4, 6, 8])]


@pytest.mark.parametrize(
    "fields",
    [
        {"shape": (4, 5)},
        {"dtype": "bfloat16"},
        {"shard_nbytes": 32},
        {"replicas": 2},
        {"mesh": 1},
        {"weak_type": True},
        {"is_deleted": True},
        {"source": "compiler"},
        {"memory_kind": "pinned_host"},
        {"same_as": "b"},
    ],
)
def test_a_leaf_that_differs_in_a_printed_fact_has_its_own_row(fields):
    rows = tree(leaf("b"), leaf("a/0"), leaf("a/1", **fields), leaf("a/2"))
    assert paths(rows) == ["b", "a/0,2", "a/1"]


def test_orders_begin_with_the_most_avoidable_bytes_or_with_leaves_that_are_not_finite():
    statistics = LeafStatistics(mean=0, std=0, least=0, greatest=0, zeros=0, nans=1, infinities=0)
    report = tree(
        "none",
        leaf("some", avoidable_nbytes=2),
        leaf("most", avoidable_nbytes=3),
        leaf("nan", statistics=statistics),
    )
    assert paths(report, sort="waste") == ["most", "some", "none", "nan"]
    assert paths(report, sort="nan") == ["nan", "none", "some", "most"]
    assert paths(report) == ["none", "some", "most", "nan"]


def test_sums_count_an_array_once_and_host_memory_apart():
    sums = leaf_sums(
        [
            leaf("a", mesh=0),
            leaf("b", mesh=0, same_as="a"),
            leaf("c", kind="numpy", nbytes=5),
            leaf("d", is_in_host_memory=True, shard_nbytes=7),
            leaf("e", shard_nbytes=None),
            leaf("f", shard_nbytes=None, is_deleted=True),
        ]
    )
    assert (sums.nbytes, sums.host_nbytes, sums.leaf_count) == (64, 7, 6)
    assert sums.elsewhere == (ElsewhereBytes(place="on the host", leaf_count=1, nbytes=5),)
    assert (sums.unknown_count, sums.deleted_count, sums.is_bound) == (1, 1, False)
    assert leaf_sums([leaf("a", mesh=0), leaf("b", mesh=1)]).is_bound
    assert not leaf_sums([leaf("a", mesh=0), leaf("b", mesh=None)]).is_bound


def test_an_array_at_several_paths_is_named_in_each_row():
    rows = leaf_groups(tree("a", leaf("b", same_as="a"), leaf("c", same_as="a"), "d"))
    assert {row.path: row.same_as for row in rows} == {"a": ("b", "c"), "b": ("a",), "c": ("a",), "d": ()}


def test_a_key_in_quotes_may_have_a_slash():
    assert path_keys("a/'b/c'/d") == ("a", "'b/c'", "d")
    assert path_keys("\"it's/\"/'a\\'/b'#2/''") == ('"it\'s/"', "'a\\'/b'#2", "''")
    assert path_keys("") == ("",)
    assert path_keys("'unbalanced/x") == ("'unbalanced", "x")
    assert path_keys("'/" * 10**5)[:2] == ("'", "'"), "in linear time"


@given(st.lists(st.text("ab0129._/'", max_size=8), max_size=4).map("/".join))
def test_the_keys_and_the_pieces_of_a_path_add_up_to_it(path):
    assert "/".join(path_keys(path)) == path
    assert "".join(path_pieces(path)) == path


PATHS = st.lists(
    st.sampled_from([f"{a}/{i}/{b}_{j}" for a in "xy" for i in range(4) for b in "pq" for j in range(4)]),
    min_size=1,
    unique=True,
)


@settings(max_examples=50, deadline=None)
@given(PATHS, st.none() | st.integers(1, 3), st.sampled_from(["tree", "waste"]))
def test_every_leaf_is_in_one_row(chosen, depth, sort):
    rows = leaf_groups(tree(*chosen), depth=depth, sort=sort)
    assert sorted(leaf.path for row in rows for leaf in row.leaves) == sorted(chosen)
    assert sum(row.sums.nbytes for row in rows) == 64 * len(chosen)
    assert len({row.path for row in rows}) == len(rows)


def nbytes_of(row):
    """Return the bytes per device in a row of leaves of one byte each."""
    [text] = row["per device"]
    return int(text.removesuffix(".0 B"))


@settings(max_examples=50, deadline=None)
@given(PATHS, st.none() | st.integers(1, 3), st.none() | st.integers(0, 5))
def test_rows_and_rest_add_up_to_the_tree(chosen, depth, max_rows):
    report = tree(*(leaf(path, shard_nbytes=1) for path in chosen))
    if max_rows == 0:
        assert not any(isinstance(one, Table) for one in cut(trees.tree_page(report, depth=depth), 0))
        return
    shown, rest = table(report, depth=depth, max_rows=max_rows).sections
    assert sum(map(nbytes_of, [*shown, *rest])) == len(chosen)
    assert max_rows is None or len(shown) <= max_rows


@settings(max_examples=50, deadline=None)
@given(PATHS, st.none() | st.integers(1, 3), st.integers(1, 6))
def test_prefixes_that_fold_add_up_to_what_is_below_them(chosen, depth, most):
    report = tree(*(leaf(path, shard_nbytes=1) for path in chosen))

    def check(branches, nbytes):
        assert sum(nbytes_of(branch.row) for branch in branches) == nbytes
        for branch in branches:
            if branch.below:
                assert len(branch.below) > 1, "a prefix with one child is joined with it"
                check(branch.below, nbytes_of(branch.row))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trees, "_MOST_ROWS", most)
        check(table(report, depth=depth).tree(), len(chosen))


def test_only_the_order_of_the_tree_folds():
    assert table(tree("a"), sort="waste").tree is None
    assert table(tree("a"), sort="nan").tree is None


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"depth": 0}, ValueError, "depth must be at least 1, or None for all leaves, got 0"),
        ({"depth": 1.5}, TypeError, "depth must be an integer or None, got 1.5"),
        ({"depth": True}, TypeError, "depth must be an integer or None, got True"),
        ({"sort": "size"}, ValueError, "sort must be 'tree', 'waste' or 'nan', got 'size'"),
        ({"sort": []}, ValueError, r"sort must be 'tree', 'waste' or 'nan', got \[\]"),
    ],
)
def test_an_error_names_the_argument(options, error, message):
    with pytest.raises(error, match=f"^{message}"):
        next(trees.tree_page(tree("a"), **options))


@pytest.mark.parametrize(
    ("most", "error", "message"),
    [
        (-1, ValueError, "max_rows must be at least 0"),
        ("all", TypeError, "max_rows must be an integer, None or 'fit', got 'all'"),
    ],
)
def test_an_error_names_the_number_of_rows(most, error, message):
    with pytest.raises(error, match=f"^{message}"):
        print_tree(tree("a"), max_rows=most)
