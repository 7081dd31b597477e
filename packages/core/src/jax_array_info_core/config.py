"""Settings that hold for the whole process."""

from __future__ import annotations

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

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "process":
            # A bool is an int too, but no process.
            known = value == "all" if isinstance(value, str) else type(value) is int and value >= 0
            if not known:
                wanted = "'all' or the index of the process that prints, 0 or more"
                raise ConfigError(f"config.process is {wanted}; got {value!r}")
        object.__setattr__(self, name, value)


config = Config()
"""The settings in force."""
