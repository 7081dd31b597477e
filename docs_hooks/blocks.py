"""The blocks of a page: fences of its Markdown whose code runs, or is written to a file."""

from __future__ import annotations

import re
import textwrap
from typing import Annotated, Literal

import msgspec

FENCE = re.compile(
    r"""^(?P<indent>[ >]*)(?P<ticks>`{3,}|~{3,})(?P<info>[^`\n]*)\n
    (?P<code>.*?)
    (?P<end>^(?P=indent)(?P=ticks)[ ]*$|\Z)""",
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
OPTION = r' +(\w+)="([^"]*)"'
INFO = re.compile(rf" *(?P<language>[\w#.+-]*)(?P<options>(?:{OPTION})*) *")
LOOKS = {"hl_lines", "linenums", "title"}
"""Options of every fence."""


class Block(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=str.lower):
    """A block of any language."""

    source: str
    width: int = 80
    """Columns of the terminal."""
    fresh: Literal["yes", "no"] = "no"
    """Whether a new process begins."""


class Python(Block, frozen=True, tag=str.lower):
    """Code that runs in the process of the page; with ``file`` it is only written there."""

    devices: int = 0
    """Fake CPU devices; with 0, JAX decides."""
    raises: str = ""
    """Class of the exception that must end it."""
    file: str = ""


class Console(Block, frozen=True, tag=str.lower):
    """Commands of a shell; each begins with ``$ ``, and goes on in the lines that do not."""

    source: Annotated[str, msgspec.Meta(pattern=r"\A\$ ")]
    exit: int = 0
    """Exit code of each command."""


class PageError(Exception):
    """A page cannot be made. The message begins with the line, or with the cell of a notebook."""


def blocks_of(source: str) -> list[tuple[re.Match[str], Python | Console]]:
    """Return the fences of a page that run, and their blocks.

    Raises:
        PageError: A fence cannot be read, though it may mean to run.
    """
    found = []
    for fence in FENCE.finditer(source):
        try:
            block = _block_of(fence)
        except (ValueError, msgspec.ValidationError) as error:
            raise PageError(
                f"{line_of(fence)}: this fence cannot run: {fence['info'].strip()}\n{error}"
            ) from None
        if block:
            found.append((fence, block))
    return found


def line_of(fence: re.Match[str]) -> int:
    """Return the line of its page on which a fence begins, counted from 1."""
    return fence.string.count("\n", 0, fence.start()) + 1


def _block_of(fence: re.Match[str]) -> Python | Console | None:
    info = INFO.fullmatch(fence["info"])
    if not fence["end"]:
        raise ValueError("No line closes it at the same indentation.")
    if not info:
        raise ValueError('Its options are not name="value".')
    options = dict(re.findall(OPTION, info["options"]))
    if info["language"].lower() != "console" and options.keys() <= LOOKS:
        return None
    code = re.sub(f"^{fence['indent'].rstrip()}", "", fence["code"], flags=re.MULTILINE)
    facts = options | {"type": info["language"], "source": textwrap.dedent(code)}
    block: Python | Console = msgspec.convert(facts, Python | Console, strict=False)
    return block
