import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info_core import LabelError, config, label_array, label_of, live_array_report
from jax_array_info_core.arrays.labels import labels_by_id


@pytest.fixture
def labels_off():
    config.assign_labels_to_arrays = False
    yield
    config.assign_labels_to_arrays = True


def test_a_label_is_not_on_the_array_and_can_be_taken_away():
    array = jnp.zeros(3) + 1
    label_array(array, "x")
    assert label_of(array) == "x"
    assert not hasattr(array, "_custom_label")
    label_array(array, "y")
    assert label_of(array) == "y"
    label_array(array, None)
    label_array(array, None)
    assert label_of(array) is None


def test_a_label_keeps_nothing_alive_and_goes_with_the_array():
    array = jnp.zeros(3) + 1
    label_array(array, "x")
    gone, key = weakref.ref(array), id(array)
    assert key in labels_by_id()
    del array
    gc.collect()
    assert gone() is None
    assert key not in labels_by_id()


def test_the_label_of_prng_keys_stands_at_the_array_that_is_alive(no_arrays):
    keys = jax.random.split(jax.random.key(0), 4)
    label_array(keys, "keys")
    assert label_of(keys) == "keys"
    assert "keys" in {group.label for group in live_array_report().groups}


def test_traced_values_cannot_be_labelled_and_do_not_complain():
    @jax.jit
    def function(x):
        label_array(x, "traced")
        return x

    function(jnp.zeros(3))
    assert "traced" not in labels_by_id().values()


def test_switched_off_there_are_no_labels(labels_off):
    array = jnp.zeros(3) + 1
    label_array(array, "x")
    assert label_of(array) is None


def test_a_label_can_be_taken_away_while_they_are_off():
    array = jnp.zeros(3) + 1
    label_array(array, "old")
    config.assign_labels_to_arrays = False
    label_array(array, None)
    config.assign_labels_to_arrays = True
    assert label_of(array) is None


def test_an_empty_label_is_none():
    array = jnp.zeros(3) + 1
    label_array(array, "x")
    label_array(array, "")
    assert label_of(array) is None


@pytest.mark.parametrize(("value", "name"), [(np.zeros(3), "x"), (3, "x"), (None, None)])
def test_only_jax_arrays_carry_labels(value, name):
    with pytest.raises(LabelError, match="only jax arrays carry labels, got"):
        label_array(value, name)


def test_a_label_is_text():
    with pytest.raises(TypeError, match="a label is a str, or None to remove it; got int"):
        label_array(jnp.zeros(3), 3)


def test_a_misspelt_setting_is_refused():
    with pytest.raises(AttributeError):
        config.asign_labels_to_arrays = False
