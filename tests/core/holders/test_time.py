"""Time limits of searches, and the results of an unfinished search."""

import inspect
import sys
import types

import jax.numpy as jnp
import pytest

from jax_array_info_core import ArrayTracker, live_array_report
from jax_array_info_core.holders import search
from jax_array_info_core.holders.search import find_holders

pytestmark = pytest.mark.own_process


class Layer:
    pass


class Model:
    pass


class Trainer:
    pass


@pytest.mark.parametrize(
    ("missed", "path"),
    [
        # The search found the named object, but not the module that names it.
        (lambda train: [vars(train)], "train.trainer.model.layers['dense'].w"),
        # The search found no name: the path begins at the farthest object found.
        (lambda train: [vars(train), train.trainer, vars(train.trainer)], "Model.layers['dense'].w"),
    ],
)
def test_an_unfinished_search_returns_the_best_path_so_far(missed, path, monkeypatch):
    train = sys.modules["train"] = types.ModuleType("train")
    train.trainer, layer = Trainer(), Layer()
    train.trainer.model = Model()
    train.trainer.model.layers = {"dense": layer}
    layer.w = jnp.ones(3)
    arrays, missing = [layer.w], set(map(id, missed(train)))
    all_referrers = search.all_referrers
    del layer

    def some_referrers(*args, **options):
        found, _ = all_referrers(*args, **options)
        return {key: thing for key, thing in found.items() if key not in missing}, False

    monkeypatch.setattr(search, "all_referrers", some_referrers)
    try:
        found = find_holders(arrays, max_seconds=None)
    finally:
        del sys.modules["train"]
    assert [*found.paths.values()] == [path]
    assert not found.is_complete


def test_a_running_search_reports_progress():
    seconds = []
    assert find_holders([jnp.ones(3)], max_seconds=None, on_progress=seconds.append).is_complete
    assert seconds == sorted(seconds)
    assert len(seconds) > 1
    assert seconds[0] >= 0


@pytest.mark.parametrize("function", [find_holders, live_array_report, ArrayTracker.report])
def test_the_default_time_limit_is_five_seconds(function):
    assert inspect.signature(function).parameters["max_seconds"].default == 5.0
