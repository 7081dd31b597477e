"""Helpers for the tests of reference paths."""

import functools

from jax_array_info_core.arrays.holders.search import find_holders

# Without a time limit, since with one the result depends on the speed of the machine.
find_all = functools.partial(find_holders, max_seconds=None)


def path_of(arrays):
    """Return the path to the only array of a list, taken out of the list first; None without one."""
    found = find_all([arrays.pop()])
    assert found.is_complete
    return next(iter(found.paths.values()), None)


def paths_of(arrays):
    """Return the path to each array of a list, taken out of the list first, found in one search."""
    taken = [*arrays]
    arrays.clear()
    keys = [*map(id, taken)]
    found = find_all(taken)
    assert found.is_complete
    return [found.paths[key] for key in keys]


class Node:
    pass


def make_step(params):
    def step(x):
        return x @ params

    return step
