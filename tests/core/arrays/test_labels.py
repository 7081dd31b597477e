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
def labels_off():
    config.assign_labels_to_arrays = False
    yield
    config.assign_labels_to_arrays = True


def test_a_label_is_not_stored_on_the_array_and_can_be_removed():
    array = jnp.zeros(3) + 1
    label_array(array, "x")
    assert label_of(array) == "x"
    assert not hasattr(array, "_custom_label")
    label_array(array, "y")
    assert label_of(array) == "y"
    label_array(array, None)
    label_array(array, None)
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
    @jax.jit
    def function(x):
        label_array(x, "traced")
        return x

    function(jnp.zeros(3))
    assert "traced" not in labels_by_id().values()


def test_with_labels_turned_off_arrays_have_none(labels_off):
    array = jnp.zeros(3) + 1
    label_array(array, "x")
    assert label_of(array) is None


def test_a_label_can_be_removed_while_labels_are_turned_off():
    array = jnp.zeros(3) + 1
    label_array(array, "old")
    config.assign_labels_to_arrays = False
    label_array(array, None)
    config.assign_labels_to_arrays = True
    assert label_of(array) is None


def test_an_empty_label_removes_the_label():
    array = jnp.zeros(3) + 1
    label_array(array, "x")
    label_array(array, "")
    assert label_of(array) is None


@pytest.mark.parametrize(("value", "name"), [(np.zeros(3), "x"), (3, "x"), (None, None)])
def test_only_jax_arrays_can_be_labeled(value, name):
    with pytest.raises(LabelError, match=r"only a jax\.Array can have a label, got <class '"):
        label_array(value, name)


def test_a_label_must_be_a_str():
    with pytest.raises(TypeError, match="a label must be a str, or None to remove it, got int"):
        label_array(jnp.zeros(3), 3)


def test_a_misspelled_setting_raises():
    with pytest.raises(AttributeError):
        config.asign_labels_to_arrays = False
