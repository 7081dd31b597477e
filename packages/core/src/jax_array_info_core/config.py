"""Settings that hold for the whole process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from .errors import ConfigError


@dataclass(slots=True)
class Config:
    """Settings; a misspelt one is an AttributeError, a value that makes no sense a ConfigError."""

    assign_labels_to_arrays: bool = True
    """Whether names are remembered as labels of the arrays they were given for, and shown in tables."""

    process: int | Literal["all"] = "all"
    """Who prints, of several processes that run the same program: the one whose ``jax.process_index()``
    this is, or ``"all"``. The others make their reports, give their labels and raise their errors all
    the same. How many processes there will be is not known when this is set: where none has the
    number, nothing is printed."""

    hidden_modules: tuple[str, ...] = ()
    """Modules whose functions are not what made an array: its origin is the line that called them. They
    are hidden with all that is in them, beside jax, flax, optax, equinox, this package and the standard
    library."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "process":
            # A bool is an int too, but no process.
            known = value == "all" if isinstance(value, str) else type(value) is int and value >= 0
            if not known:
                raise ConfigError(f"config.process must be 'all' or the index of a process, got {value!r}")
        if name == "hidden_modules":
            value = _names(value)
        object.__setattr__(self, name, value)


def _names(value: Any) -> tuple[str, ...]:
    """Return names of modules as a tuple."""
    names = None if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if names is None or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"config.hidden_modules must be a tuple of module names, got {value!r}")
    return names


config = Config()
"""The settings in force."""
