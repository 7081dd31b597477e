"""The fences of a page: those that run are collected, with a mark where what they show will stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from markdown import Markdown

from .blocks import OPTIONS, Block, block_of

DISPLAY = ("hl_lines", "linenums", "title")
MARK = re.compile(r'<p data-shown="(\d+)"></p>')
UNNAMED = re.compile(
    r'(<div data-block="(\d+)" class="runs python"><div class="highlight">)(?!<span class="filename)'
)
CELL = "cell"
"""The option of a notebook's cells, which only ``notebooks`` writes."""
OPENS = re.compile(r"[ >]*(?P<ticks>`{3,}|~{3,})(?P<info>[^`]*)")
OPTION = r"""[ \t]+[a-zA-Z]\w*(?:=(?:"[^"]*"|'[^']*'))?"""
INFO = re.compile(rf"[ \t]*(?P<language>[\w#.+-]*)(?P<options>(?:{OPTION})*)[ \t]*")


@dataclass(frozen=True, slots=True)
class Fence:
    """One fence as it stands in a page's source."""

    line: int
    """Where it opens, counted from 1."""
    info: str
    """What stands after its ticks."""
    code: str
    closed: bool


def fences_of(source: str) -> Iterator[Fence]:
    """Yield the fences of a page, first to last."""
    lines = enumerate(source.splitlines(), start=1)
    for number, line in lines:
        if opens := OPENS.fullmatch(line):
            code: list[str] = []
            closed = False
            for _, inner in lines:
                closed = inner.strip(" \t>") == opens["ticks"]
                if closed:
                    break
                code.append(inner)
            yield Fence(number, opens["info"], "\n".join(code), closed)


def runs(fence: Fence) -> bool:
    """Return whether a fence means a block that runs, or asks for something that only such a block has."""
    info = INFO.fullmatch(fence.info)
    return info is not None and (info["language"] == "console" or bool(_own_options(info)))


def reason_against(fence: Fence) -> str:
    """Return why a fence that means a block would be shown as it stands; nothing where all is well."""
    info = INFO.fullmatch(fence.info)
    if not fence.closed:
        return "this fence is not closed"
    if info is None:
        return f'the options of this fence are not name="value": {fence.info.strip()}'
    language = info["language"]
    if language not in OPTIONS and (_own_options(info) or language.lower() in OPTIONS):
        return f"a block of {language or 'no language'} is not run; one of {' or '.join(OPTIONS)} is"
    return ""


def _own_options(info: re.Match[str]) -> set[str]:
    """Return the names of the options that are not how code looks."""
    return {option.split("=")[0].strip() for option in re.findall(OPTION, info["options"])} - set(DISPLAY)


def _squeezed(code: str) -> str:
    """Return code without what indents and quotes it."""
    return re.sub(r"[\s>]+", "", code)


class Page:
    """The blocks of the page that is being read."""

    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.blocks: list[Block] = []
        self.problems: list[str] = []
        self._expected: list[Fence] = []
        for fence in fences_of(source):
            if reason := reason_against(fence):
                self.remember(fence.line, reason)
            elif runs(fence):
                self._expected.append(fence)

    def remember(self, line: int, problem: str) -> None:
        """Keep what is wrong until all pages are read: superfences hides what is raised."""
        self.problems.append(f"docs/{self.path}:{line}: {problem}")

    def line_of(self, code: str) -> int:
        """Return the line that opens the next fence with such code, counted from 1; 0 where none does."""
        for place, fence in enumerate(self._expected):
            if _squeezed(fence.code) == _squeezed(code):
                self._skip(place)
                del self._expected[0]
                return fence.line
        return 0

    def end(self) -> None:
        """Remember every fence that should have become a block."""
        self._skip(len(self._expected))

    def _skip(self, count: int) -> None:
        for fence in self._expected[:count]:
            self.remember(
                fence.line, "this block is not run: Markdown does not see its fence, where it stands"
            )
        del self._expected[:count]


reading = Page("", "")
"""mkdocs reads one page after the other and does not tell the fences which."""


def begin(path: str, source: str) -> Page:
    """Say which page is read from now on; return it, to be filled."""
    global reading
    reading = Page(path, source)
    return reading


def accepts(
    language: str, inputs: dict[str, str], options: dict[str, Any], attrs: dict[str, Any], md: Markdown
) -> bool:
    """Take every fence that runs: all of a console, and of Python what has an option of ours."""
    options.update(inputs)
    return language == "console" or any(name not in DISPLAY for name in inputs)


def shows(
    source: str, language: str, css_class: str, options: dict[str, str], md: Markdown, **kwargs: Any
) -> str:
    """Return the HTML of a block, with a mark where what it shows will stand.

    An option that means nothing is remembered.
    """
    line = reading.line_of(source)
    display = {name: options[name] for name in DISPLAY if name in options}
    ours = {name: value for name, value in options.items() if name not in DISPLAY}
    if CELL in ours:
        block = Block("cell", source, line=int(ours[CELL]))
    else:
        try:
            block = replace(block_of(language, source, ours), line=line)
        except ValueError as error:
            reading.remember(line, str(error))
            return ""
    place = len(reading.blocks)
    reading.blocks.append(block)
    code = ""
    if block.kind != "console":
        if block.name:
            display.setdefault("title", block.name)
        fence: Any = md.preprocessors["fenced_code_block"]
        code = fence.highlight(src=source, language="python", options=display, md=md, **kwargs)
    return f'<div data-block="{place}" class="runs {block.kind}">{code}<p data-shown="{place}"></p></div>'
