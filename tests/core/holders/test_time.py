"""A search whose time is up tells the best that it has found."""

import inspect
import sys
import types

import jax.numpy as jnp
import pytest

from jax_array_info_core import ArrayTracker, live_array_report
from jax_array_info_core.holders import search
from jax_array_info_core.holders.cycles import find_cycles
from jax_array_info_core.holders.search import find_holders


class Layer:
    pass


class Model:
    pass


class Trainer:
    pass


@pytest.mark.parametrize(
    ("missed", "path"),
    [
        # Who has the name has not had its turn, though what it names is found.
        (lambda train: [vars(train)], "train.trainer.model.layers['dense'].w"),
        # No name is known: the path begins as far from the array as was found.
        (lambda train: [vars(train), train.trainer, vars(train.trainer)], "Model.layers['dense'].w"),
    ],
)
def test_the_best_path_so_far_is_told(missed, path, monkeypatch):
    train = sys.modules["train"] = types.ModuleType("train")
    train.trainer, layer = Trainer(), Layer()
    train.trainer.model = Model()
    train.trainer.model.layers = {"dense": layer}
    layer.w = jnp.ones(3)
    arrays, missing = [layer.w], set(map(id, missed(train)))
    all_referrers = search.all_referrers
    del layer

    def some_holders(*args, **options):
        found, _ = all_referrers(*args, **options)
        return {key: thing for key, thing in found.items() if key not in missing}, False

    monkeypatch.setattr(search, "all_referrers", some_holders)
    try:
        found = find_holders(arrays, max_seconds=None)
    finally:
        del sys.modules["train"]
    (paths,) = found.paths.values()
    assert path in paths
    assert not found.is_complete


def test_progress_is_told_while_a_search_runs():
    seconds = []
    assert find_holders([jnp.ones(3)], max_seconds=None, on_progress=seconds.append).is_complete
    assert seconds == sorted(seconds)
    assert len(seconds) > 1
    assert seconds[0] >= 0


@pytest.mark.parametrize("function", [find_holders, find_cycles, live_array_report, ArrayTracker.report])
def test_a_search_takes_at_most_five_seconds_unless_told_otherwise(function):
    assert inspect.signature(function).parameters["max_seconds"].default == 5.0
