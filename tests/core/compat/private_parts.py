"""Private parts of JAX: whether a version has them, and how a test hides them."""

import operator
from collections.abc import Callable
from typing import NamedTuple

import jax
import pytest

from jax_array_info_core.compat import private

VERSION = tuple(map(int, jax.__version__.split(".")[:2]))
MOVED = "moved by a new jax"


class Part(NamedTuple):
    """A private part of JAX."""

    name: str
    is_present: Callable[[], object]
    hide: Callable[[pytest.MonkeyPatch], None]


def problem(part, used_by, consequence):
    """Return the message for a missing part, None for one that is present."""
    try:
        if part.is_present():
            return None
    except (ImportError, AttributeError):
        pass
    return f"jax {jax.__version__} has moved or removed {part.name}, which {used_by} needs: without it, {consequence}"


def renamed(module, name):
    """Return a function that hides a part by changing the constant with its name."""

    def hide(monkeypatch):
        names = getattr(module, name)
        monkeypatch.setattr(module, name, MOVED if isinstance(names, str) else (MOVED,) * len(names))

    return hide


def without(module, name, index):
    """Return a function that hides a part by changing one of several names in a constant."""

    def hide(monkeypatch):
        names = getattr(module, name)
        monkeypatch.setattr(module, name, (*names[:index], MOVED, *names[index + 1 :]))

    return hide


def attribute(module, path):
    """Return the part at a dotted path in one of JAX's private modules."""
    name = path.partition(".")[0]
    return Part(
        f"jax._src.{module}.{path}",
        lambda: operator.attrgetter(path)(private(module)) or True,
        lambda monkeypatch: monkeypatch.delattr(private(module), name),
    )


def since(version, part):
    """Return a list with a part if this JAX is at least a version, else an empty list."""
    return [part] if version <= VERSION else []
