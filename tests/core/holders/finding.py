"""Helpers for the tests of reference paths."""

import functools

from jax_array_info_core.holders.search import find_holders

# Without a time limit, since with one the result depends on the speed of the machine.
find_all = functools.partial(find_holders, max_seconds=None)


def paths(array):
    """Return the paths to an array without the paths from running functions, such as the test itself."""
    found = find_all([array])
    assert found.is_complete
    return [path for path in found.paths[id(array)] if "() local " not in path]


def find_without_variables(array):
    """Return the paths to an array that no running function has in a variable."""
    return next(iter(find_all([array.pop()]).paths.values()))


class Node:
    pass


def make_step(params):
    def step(x):
        return x @ params

    return step
