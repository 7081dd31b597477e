"""Matching of the leaves of two trees by path, with and without the keys of boxes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..reports.tree import TreeRow

BOX_KEYS = ("value", "0", "data_array")
"""Keys of boxes in files: of Flax, and of the NamedArrays of haliax and penzai."""


def matched_paths(rows: Sequence[TreeRow], others: Collection[TreeRow]) -> list[str]:
    """Return the path of each leaf; if another tree has the leaf with other keys of boxes, its path there."""
    own = {row.path for row in rows}
    exact = {row.path for row in others}
    similar = {path: row.path for row in others if row.path not in own for path in row.paths}
    found: dict[str, None] = {}
    for row in rows:
        path = row.path
        if path not in exact:
            names = (name for name in row.paths if name in similar and similar[name] not in found)
            path = next(map(similar.__getitem__, names), path)
        found[path] = None
    return list(found)


def without_box_keys(paths: Sequence[str]) -> list[str]:
    """Return the paths of a file without the key of a box that all of them end with.

    They stay as they are if two of them would become equal.

    >>> without_box_keys(["bias/value", "kernel/value"]), without_box_keys(["attn/key", "attn/value"])
    (['bias', 'kernel'], ['attn/key', 'attn/value'])
    """
    for key in BOX_KEYS:
        if all(path.endswith(f"/{key}") for path in paths):
            cut = [path.removesuffix(f"/{key}") for path in paths]
            return cut if len({*cut, *paths}) == 2 * len(paths) else list(paths)
    return list(paths)
