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
    """Further modules to skip, with their submodules, in the search for the user's line. The line is then the
    one that called into the skipped module. JAX, this package, the standard library and installed packages
    are skipped by default, wherever one of your own lines called them."""

    user_packages: tuple[str, ...] = ()
    """Installed packages whose lines count as the user's, such as ``("maxtext",)``. An editable install needs
    no entry: only files in ``site-packages`` and ``dist-packages`` are skipped."""

    show_frames: int = 0
    """Maximum number of skipped lines that a report keeps for each line, innermost first, without those of
    JAX. Rows that differ in them are separate."""

    callers: int = 1
    """Number of the user's lines that tables show for an operation: 1 for the nearest, 2 adds its caller.
    For an array, tables show at least 2: its allocation site and the line that called it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "process":
            # bool is a subclass of int, but not a process index.
            is_valid = value == "all" if isinstance(value, str) else type(value) is int and value >= 0
            if not is_valid:
                raise ConfigError(f"config.process must be 'all' or the index of a process, got {value!r}")
        if name in ("hidden_modules", "user_packages"):
            value = _names(name, value)
        if name == "assign_labels_to_arrays" and not isinstance(value, bool):
            raise ConfigError(f"config.{name} must be True or False, got {value!r}")
        least = _LEAST.get(name)
        if least is not None and (type(value) is not int or value < least):
            raise ConfigError(f"config.{name} must be an integer of at least {least}, got {value!r}")
        object.__setattr__(self, name, value)


_LEAST = {"show_frames": 0, "callers": 1}
"""Smallest values of the settings that are numbers."""


def _names(name: str, value: Any) -> tuple[str, ...]:
    """Return module names as a tuple, or raise ConfigError."""
    names = None if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if names is None or not all(isinstance(entry, str) for entry in names):
        raise ConfigError(f"config.{name} must be a tuple of module names, got {value!r}")
    return names


config = Config()
"""The current settings."""


def shown_callers() -> int:
    """Return the number of callers that tables show for an allocation site."""
    return max(1, config.callers - 1)
