"""Names of functions in files, as ``step.py:step``."""

from __future__ import annotations

from typing import NamedTuple


class FunctionName(NamedTuple):
    """A function in a file."""

    source: str
    """Path of the file, or dotted name of a module."""

    function: str
    """Name of the function; ``Class.method`` for one in a class."""

    def __str__(self) -> str:
        return f"{self.source}:{self.function}"


def parse_function(text: str) -> FunctionName:
    """Parse the name of a function in a file, such as ``step.py:step`` or ``package.step:Model.step``.

    Raises:
        ValueError: If the text is not such a name.
    """
    source, _, function = text.rpartition(":")
    if not source or not all(part.isidentifier() for part in function.split(".")):
        raise ValueError(
            f"must be the name of a file and a function in it, such as step.py:step, got {text!r}"
        )
    return FunctionName(source, function)
