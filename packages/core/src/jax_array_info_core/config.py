"""Settings of the current process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from .errors import ConfigError


@dataclass(slots=True)
class Config:
    """Settings of the current process. Assign to an attribute to change a setting.

    Raises:
        AttributeError: If there is no setting with this name.
        ConfigError: (a ValueError) If the value is invalid. The setting keeps its value.

    >>> from jax_array_info_core import config
    >>> config.hidden_modules = ["my_framework"]
    >>> config.hidden_modules
    ('my_framework',)
    >>> config.hidden_modules = ()
    """

    assign_labels_to_arrays: bool = True
    """Whether the name that you pass with an array becomes its label in tables of live arrays."""

    process: int | Literal["all"] = "all"
    """Index of the only process that prints (its ``jax.process_index()``), or ``"all"``. The other processes
    still create reports, assign labels and raise errors. The index is not checked against the number of
    processes: if there is no such process, nothing is printed."""

    hidden_modules: tuple[str, ...] = ()
    """Modules to skip, with their submodules, in the search for an allocation site. The site is then the line
    that called into the skipped module. JAX, Flax, Optax, Equinox, this package and the standard library are
    always skipped."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "process":
            # bool is a subclass of int, but not a process index.
            is_valid = value == "all" if isinstance(value, str) else type(value) is int and value >= 0
            if not is_valid:
                raise ConfigError(f"config.process must be 'all' or the index of a process, got {value!r}")
        if name == "hidden_modules":
            value = _names(value)
        object.__setattr__(self, name, value)


def _names(value: Any) -> tuple[str, ...]:
    """Return module names as a tuple, or raise ConfigError."""
    names = None if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if names is None or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"config.hidden_modules must be a tuple of module names, got {value!r}")
    return names


config = Config()
"""The current settings."""
