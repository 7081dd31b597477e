"""Notations of the path from the root of a container to a leaf.

A path is the concatenation of the keys on the way to a leaf. Each notation writes a position in a sequence,
the keys of a dict, a field of a dataclass, and the key paths of a registered pytree's children.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base.text import plain_text

_SPECIAL = frozenset("/'\"")
_LITERAL = frozenset({int, float, complex, bool, str, bytes, type(None)})


class KeystrNotation:
    """The notation of ``jax.tree_util.keystr``: ``['layers'][0].w``."""

    def index(self, number: int) -> str:  # noqa: D102
        return f"[{number}]"

    def items(self, keys: Sequence[Any]) -> list[str]:  # noqa: D102
        return [f"[{repr(key) if type(key) in _LITERAL else plain_text(key, repr)}]" for key in keys]

    def attribute(self, name: str) -> str:  # noqa: D102
        return f".{name}"

    def children(self, key_paths: Sequence[tuple[Any, ...]]) -> list[str]:  # noqa: D102
        import jax

        return [plain_text(keys, jax.tree_util.keystr) for keys in key_paths]


class SlashNotation:
    """Keys after a ``/``: ``/layers/0/w``. Different keys of a container have different texts."""

    def index(self, number: int) -> str:  # noqa: D102
        return f"/{number}"

    def items(self, keys: Sequence[Any]) -> list[str]:  # noqa: D102
        return _distinct(keys)

    def attribute(self, name: str) -> str:  # noqa: D102
        return f"/{key_text(name)}"

    def children(self, key_paths: Sequence[tuple[Any, ...]]) -> list[str]:  # noqa: D102
        if all(len(keys) == 1 for keys in key_paths):
            return _distinct([_key_of(keys[0]) for keys in key_paths])
        return distinct_paths([f"/{path_text(map(_key_of, keys))}" for keys in key_paths])


Notation = KeystrNotation | SlashNotation


def path_text(keys: Any) -> str:
    """Return keys joined by ``/``, each as ``key_text`` writes it.

    >>> path_text(["params", "layers", 0, "a/b"])
    "params/layers/0/'a/b'"
    """
    return "/".join(map(key_text, keys))


def key_text(key: Any) -> str:
    """Return one key of a path: in quotes if it is empty or has a ``/``, a quote or a control character."""
    text = plain_text(key)
    if text.isidentifier() or (text.isprintable() and text and _SPECIAL.isdisjoint(text)):
        return text
    return repr(text)


def key_path_keys(entries: Sequence[Any]) -> list[Any]:
    """Return the keys, names and indices in one of JAX's key paths."""
    return [_key_of(entry) for entry in entries]


def _key_of(entry: Any) -> Any:
    """Return the key, the name or the index in an entry of JAX's key paths."""
    for name in ("key", "name", "idx"):
        key = getattr(entry, name, None)
        if key is not None:
            return key
    return entry


def _distinct(keys: Sequence[Any]) -> list[str]:
    """Return ``/`` and the text of each key. Where texts are equal, those of strings are in quotes.

    >>> _distinct([0, "0"])
    ['/0', "/'0'"]
    """
    texts = [f"/{key_text(key)}" for key in keys]
    if len(set(texts)) == len(texts):
        return texts
    quoted = [
        f"/{key!r}" if type(key) is str and texts.count(text) > 1 else text
        for key, text in zip(keys, texts, strict=True)
    ]
    return distinct_paths(quoted)


def distinct_paths(paths: Sequence[str]) -> list[str]:
    """Return paths with a number after those that occur before.

    >>> distinct_paths(["a", "b", "a"])
    ['a', 'b', 'a#2']
    """
    taken = set(paths)
    if len(taken) == len(paths):
        return list(paths)
    distinct: dict[str, None] = {}
    for path in paths:
        text, count = path, 1
        while text in distinct or (text != path and text in taken):
            count += 1
            text = f"{path}#{count}"
        distinct[text] = None
    return list(distinct)
