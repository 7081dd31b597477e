"""Labels of arrays."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info_core import config, label_array, label_of, live_array_report
from jax_array_info_core.arrays.labels import labels_by_id
from jax_array_info_core.errors import LabelError

pytestmark = pytest.mark.once_per_version


@pytest.fixture
def array():
    return jnp.zeros(3) + 1


@pytest.mark.parametrize("removed", [None, ""])
def test_a_label_is_not_stored_on_the_array_and_can_be_removed(array, removed):
    for name in ("x", "y"):
        label_array(array, name)
        assert label_of(array) == name
    assert not hasattr(array, "_custom_label")
    for _ in range(2):
        label_array(array, removed)
        assert label_of(array) is None


def test_a_label_keeps_no_array_alive_and_is_dropped_with_it():
    array = jnp.zeros(3) + 1
    label_array(array, "x")
    gone, key = weakref.ref(array), id(array)
    assert key in labels_by_id()
    del array
    gc.collect()
    assert gone() is None
    assert key not in labels_by_id()


def test_the_label_of_prng_keys_is_in_the_table_of_live_arrays(no_arrays):
    keys = jax.random.split(jax.random.key(0), 4)
    label_array(keys, "keys")
    assert label_of(keys) == "keys"
    assert "keys" in {group.label for group in live_array_report().groups}


def test_labeling_a_traced_value_has_no_effect():
    jax.jit(lambda x: label_array(x, "traced") or x)(jnp.zeros(3))
    assert "traced" not in labels_by_id().values()


def test_with_labels_turned_off_arrays_have_none_and_labels_can_be_removed(array, monkeypatch):
    other = jnp.zeros(3) + 1
    label_array(other, "old")
    monkeypatch.setattr(config, "assign_labels_to_arrays", False)
    label_array(array, "x")
    assert label_of(array) is label_of(other) is None
    label_array(other, None)
    config.assign_labels_to_arrays = True
    assert label_of(array) is label_of(other) is None


@pytest.mark.parametrize(
    ("value", "name", "problem"),
    [
        (np.zeros(3), "x", r"only a jax\.Array can have a label, got <class '"),
        (3, "x", r"only a jax\.Array can have a label, got <class '"),
        (None, None, r"only a jax\.Array can have a label, got <class '"),
        (np.zeros(3), 3, "a label must be a str, or None to remove it, got int"),
    ],
)
def test_only_jax_arrays_have_labels_which_are_texts(value, name, problem):
    with pytest.raises(LabelError, match=problem) as refused:
        label_array(value, name)
    assert isinstance(refused.value, TypeError)


def test_a_misspelled_setting_raises():
    with pytest.raises(AttributeError):
        config.asign_labels_to_arrays = False
