"""Blocks of a page: Markdown fences with code that runs or is written to a file."""

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
"""Options of fences that do not run."""


class Block(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=str.lower):
    """A block of any language."""

    source: str
    width: int = 80
    """Columns of the terminal."""
    fresh: Literal["yes", "no"] = "no"
    """Whether the block starts a new process."""


class Python(Block, frozen=True, tag=str.lower):
    """Code that runs in the process of the page or, with ``file``, is only written to a file."""

    devices: int = 0
    """Number of fake CPU devices; 0 for JAX's default."""
    raises: str = ""
    """Exception class with which the block must end."""
    file: str = ""


class Console(Block, frozen=True, tag=str.lower):
    """Shell commands; each begins with ``$ ``, and other lines continue it."""

    source: Annotated[str, msgspec.Meta(pattern=r"\A\$ ")]
    exit: int = 0
    """Required exit code of each command."""


class PageError(Exception):
    """An error on a page. The message begins with the line, or with the cell of a notebook."""


def blocks_of(source: str) -> list[tuple[re.Match[str], Python | Console]]:
    """Return the fences of a page that run, and their blocks.

    Raises:
        PageError: If a fence has invalid options.
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
    """Return the line number of a fence on its page, from 1."""
    return fence.string.count("\n", 0, fence.start()) + 1


def _block_of(fence: re.Match[str]) -> Python | Console | None:
    info = INFO.fullmatch(fence["info"])
    if not fence["end"]:
        raise ValueError("No closing fence at the same indentation.")
    if not info:
        raise ValueError('Options must have the form name="value".')
    options = dict(re.findall(OPTION, info["options"]))
    if info["language"].lower() != "console" and options.keys() <= LOOKS:
        return None
    code = re.sub(f"^{fence['indent'].rstrip()}", "", fence["code"], flags=re.MULTILINE)
    fields = options | {"type": info["language"], "source": textwrap.dedent(code)}
    block: Python | Console = msgspec.convert(fields, Python | Console, strict=False)
    return block
