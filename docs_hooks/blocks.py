"""The blocks of a page that are run, and what running them leaves to show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

Kind = Literal["python", "file", "console", "cell"]
"""Code that runs, a file that is written, a shell's commands, a notebook's cell."""


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a page."""

    kind: Kind
    source: str
    devices: int = 0
    """How many fake CPU devices it has; 0 leaves that to the code."""
    width: int = 80
    """Columns of the terminal."""
    fresh: bool = False
    """Whether a new process begins."""
    raises: str = ""
    """The class of the exception that must end it."""
    exit: int = 0
    """The exit code that each of its commands must have."""
    name: str = ""
    """Of the file."""
    line: int = field(default=0, compare=False)
    """Where it begins in the page's source, or which of a notebook's cells of code it is; counted from 1."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One piece of what a block leaves: text with a terminal's colours, or HTML."""

    text: str = ""
    html: str = ""
    command: str = ""
    """What was typed, of a shell's commands."""


class BlockError(Exception):
    """A block cannot be read, or does not do what its page says.

    Attributes:
        block: The block.
        reason: What is wrong, and what the block printed.
    """

    def __init__(self, block: Block, reason: str) -> None:
        super().__init__(reason)
        self.block = block
        self.reason = reason


def names_of(blocks: Sequence[Block]) -> list[str]:
    """Return the name of each block's file: its own, or one of its number among the page's Python."""
    numbers = count(1)
    return [block.name or (f"block{next(numbers)}.py" if block.kind == "python" else "") for block in blocks]


OPTIONS = {
    "python": {"devices", "width", "fresh", "raises", "file"},
    "console": {"devices", "width", "exit"},
}


def block_of(language: str, source: str, options: Mapping[str, str]) -> Block:
    """Return the block that a fence means.

    Raises:
        ValueError: An option is unknown or has no such value.
    """
    unknown = sorted(set(options) - OPTIONS[language])
    if unknown:
        known = ", ".join(sorted(OPTIONS[language]))
        raise ValueError(f"a {language} block has no option {', '.join(unknown)}; it has {known}")
    fresh = options.get("fresh", "no")
    if fresh not in ("yes", "no"):
        raise ValueError(f'fresh="{fresh}" is neither yes nor no')
    kind: Kind = "console" if language == "console" else "file" if "file" in options else "python"
    return Block(
        kind,
        source,
        devices=_count(options, "devices", 0),
        width=_count(options, "width", 80),
        fresh=fresh == "yes",
        raises=options.get("raises", ""),
        exit=_count(options, "exit", 0),
        name=options.get("file", ""),
    )


def _count(options: Mapping[str, str], name: str, otherwise: int) -> int:
    text = options.get(name, str(otherwise))
    if not text.isdecimal():
        raise ValueError(f'{name}="{text}" is no number')
    return int(text)
