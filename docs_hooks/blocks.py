"""Blocks of a page: Markdown fences with code that runs or is written to a file."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from itertools import zip_longest
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
COMMAND = re.compile(r"^\$ (?:.*\\\n)*.*", re.MULTILINE)


class Block(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=str.lower):
    """A block of any language."""

    source: str
    width: int = 80
    """Columns of the terminal."""
    fresh: Literal["yes", "no"] = "no"
    """Whether the block starts a new process."""
    varies: str = "(?!)"
    """Pattern of the parts of the output that may differ from those stored; the default matches nothing."""

    def __post_init__(self) -> None:
        re.compile(self.varies)


class Python(Block, frozen=True, tag=str.lower):
    """Code that runs in the process of the page or, with ``file``, is only written to a file."""

    devices: int = 0
    """Number of simulated CPU devices; 0 for JAX's default."""
    raises: str = ""
    """Exception class with which the block must end."""
    file: str = ""


class Console(Block, frozen=True, tag=str.lower):
    """Shell commands without their output; each begins with ``$ ``."""

    source: Annotated[str, msgspec.Meta(pattern=r"\A\$ ")]
    exit: int = 0
    """Required exit code of each command."""


class PageError(Exception):
    """An error on a page. The message begins with the line, or with the cell of a notebook."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A block on its page.

    Attributes:
        fence: The fence of the code.
        block: The code and its options.
        stored: The output on the page, with the commands of a console block.
        end: The position on the page after the code and the stored output.
    """

    fence: re.Match[str]
    block: Python | Console
    stored: str
    end: int

    @property
    def line(self) -> int:
        """The line number of the fence, from 1."""
        return self.fence.string.count("\n", 0, self.fence.start()) + 1

    def agrees(self, printed: str) -> bool:
        """Return whether the stored output equals the printed output, except where it may vary."""
        varies = re.compile(self.block.varies)
        return varies.sub("…", self.stored) == varies.sub("…", printed)

    def with_output(self, printed: str) -> str:
        """Return the Markdown of the block with an output.

        Raises:
            PageError: If the output contains the end of the fence, or a line that reads as a command.
        """
        fence, indent = self.fence, self.fence["indent"]
        opening = f"{indent}{fence['ticks']}"
        text = "".join(f"{indent}{line}".rstrip() + "\n" for line in printed.splitlines())
        if isinstance(self.block, Console):
            markdown = f"{opening}{fence['info']}\n{text}{opening}"
        else:
            stored = f"\n{indent.rstrip()}\n{opening}text\n{text}{opening}" if text else ""
            markdown = f"{fence[0]}{stored}"
        if [(placed.block, placed.stored) for placed in blocks_of(markdown)] != [(self.block, printed)]:
            raise PageError(
                f"{self.line}: the output of this block cannot be stored, because it contains the end of its "
                f"fence or a line that begins with '$ ':\n{printed}"
            )
        return markdown


def blocks_of(source: str) -> list[Placed]:
    """Return the blocks of a page that run, with their stored output.

    Raises:
        PageError: If a fence has invalid options.
    """
    found = []
    fences = list(FENCE.finditer(source))
    for fence, following in zip_longest(fences, fences[1:]):
        try:
            block = _block_of(fence)
        except (ValueError, re.error, msgspec.ValidationError) as error:
            line = source.count("\n", 0, fence.start()) + 1
            raise PageError(f"{line}: this fence cannot run: {fence['info'].strip()}\n{error}") from None
        if isinstance(block, Console):
            found.append(Placed(fence, block, _unindented(fence), fence.end()))
        elif block and following and _is_output_of(fence, following):
            found.append(Placed(fence, block, _unindented(following), following.end()))
        elif block:
            found.append(Placed(fence, block, "", fence.end()))
    return found


def _is_output_of(fence: re.Match[str], following: re.Match[str]) -> bool:
    between = fence.string[fence.end() : following.start()]
    alike = following["indent"] == fence["indent"] and following["info"].strip() == "text"
    return alike and between == f"\n{fence['indent'].rstrip()}\n"


def _unindented(fence: re.Match[str]) -> str:
    """Return the text of a fence, without the indentation of the fence."""
    indent = fence["indent"]
    lines = (line.removeprefix(indent.rstrip()) for line in fence["code"].split("\n"))
    return "\n".join(line.removeprefix(indent[len(indent.rstrip()) :]) for line in lines)


def _block_of(fence: re.Match[str]) -> Python | Console | None:
    info = INFO.fullmatch(fence["info"])
    if not fence["end"]:
        raise ValueError("No closing fence at the same indentation.")
    if not info:
        raise ValueError('Options must have the form name="value".')
    options = dict(re.findall(OPTION, info["options"]))
    if info["language"].lower() != "console" and options.keys() <= LOOKS:
        return None
    code = textwrap.dedent(_unindented(fence))
    if info["language"] == "console":
        code = "\n".join(COMMAND.findall(code))
    fields = options | {"type": info["language"], "source": code}
    block: Python | Console = msgspec.convert(fields, Python | Console, strict=False)
    return block
