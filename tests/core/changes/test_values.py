"""Differences between the values of arrays in files."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_array_info_core import from_json, to_json, tree_diff_report
from jax_array_info_core.errors import FileFormatError, UnsupportedValueError
from jax_array_info_core.stored import elements
from jax_array_info_core.stored.elements import blocks, runs, whole

pytestmark = pytest.mark.once_per_version


def compared(folder, before, after, save=np.savez, other_save=np.savez):
    save(folder / "before.npz", w=before)
    other_save(folder / "after.npz", w=after)
    diff = tree_diff_report(folder / "before.npz", folder / "after.npz", values=True)
    assert from_json(to_json(diff)) == diff
    return diff.values


def leaf_of(*arguments):
    [leaf] = compared(*arguments).leaves
    return leaf


@pytest.mark.parametrize("most", [1, 3, 4, 2**22])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_difference_is_found_in_any_order_and_compression(tmp_path, monkeypatch, most, order, save):
    monkeypatch.setattr(elements, "MOST", most)
    before = np.arange(24.0).reshape(2, 3, 4)
    after = np.array(before, order=order)
    assert compared(tmp_path, before, after, np.savez_compressed, save).leaves == ()
    after[1, 2, 0] += 0.5
    after[0, 1, 3] -= 2
    leaf = leaf_of(tmp_path, before, after, np.savez_compressed, save)
    assert (leaf.differing_count, leaf.largest_difference, leaf.index) == (2, 2, (0, 1, 3))
    assert (leaf.before_value, leaf.after_value) == ("7.0", "5.0")


def test_nan_at_the_same_places_is_equal_and_counted(tmp_path):
    leaf = leaf_of(tmp_path, np.array([np.nan, 0.0]), np.array([np.nan, -0.0]))
    assert leaf.is_equal
    assert (leaf.nan_count_before, leaf.nan_count_after, leaf.nan_in_one_count) == (1, 1, 0)


def test_nan_in_one_file_differs(tmp_path):
    leaf = leaf_of(tmp_path, np.array([1.0, 2.0]), np.array([1.0, np.nan]))
    assert (leaf.differing_count, leaf.largest_difference, leaf.index) == (1, None, (1,))
    assert leaf.nan_in_one_count == 1


@pytest.mark.parametrize(
    ("before", "after", "difference"),
    [
        (np.int64([2**62]), np.int64([-(2**62)]), 2.0**63),
        (np.uint64([2**53]), np.uint64([2**53 + 1]), 1),
        (np.array([True]), np.array([False]), 1),
        (np.complex64([3j]), np.complex64([4]), 5),
        (np.array([1], ml_dtypes.bfloat16), np.array([1.5], ml_dtypes.bfloat16), 0.5),
        (np.float32([1]), np.array([2], ">f4"), 1),
        (np.float32([np.inf]), np.float32([0]), None),
    ],
)
def test_the_largest_difference_is_exact(tmp_path, before, after, difference):
    assert leaf_of(tmp_path, before, after).largest_difference == difference


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", ">f4", ml_dtypes.bfloat16])
def test_dtypes_are_compared_after_exact_conversion(tmp_path, dtype):
    assert compared(tmp_path, np.float32([1, 2]), np.array([1, 2], dtype)).leaves == ()


@pytest.mark.parametrize("after", [np.int64([1]), np.float32([[1]])])
def test_other_shapes_and_inexact_dtypes_are_not_comparable(tmp_path, after):
    assert leaf_of(tmp_path, np.float32([1]), after).differing_count is None


def test_a_truncated_file_is_one_clear_error(tmp_path, monkeypatch):
    path = tmp_path / "w.npy"
    np.save(path, np.zeros(10**5))
    read = elements.FileBytes.read_at

    def truncated(self, start, count):
        with open(path, "r+b") as file:
            file.truncate(1000)
        return read(self, start, count)

    monkeypatch.setattr(elements.FileBytes, "read_at", truncated)
    with pytest.raises(FileFormatError, match=r"w\.npy: ends at byte .* it is truncated"):
        tree_diff_report(path, path, values=True)


def test_values_need_paths():
    with pytest.raises(UnsupportedValueError, match="pass paths of checkpoints"):
        tree_diff_report({"w": np.zeros(3)}, {"w": np.ones(3)}, values=True)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 7)), max_size=3), st.integers(1, 30))
def test_boxes_cover_an_array_once(axes, most):
    shape, chunk = tuple(length for length, _ in axes), tuple(size for _, size in axes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elements, "MOST", most)
        for boxes in (runs(shape, whole(shape)), blocks(shape, chunk)):
            counts = np.zeros(shape, int)
            for box in boxes:
                counts[box] += 1
                assert counts[box].size <= most
            assert (counts == 1).all()
