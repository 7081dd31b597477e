"""The fences of a page: those that run are collected, with a mark where what they show will stand."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from markdown import Markdown

from .blocks import Block, block_of

DISPLAY = ("hl_lines", "linenums", "title")
MARK = re.compile(r'<p data-shown="(\d+)"></p>')
CELL = "cell"
"""The option of a notebook's cells, which only ``notebooks`` writes."""


class Page:
    """The blocks of the page that is being read."""

    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.blocks: list[Block] = []
        self.problems: list[str] = []
        self._lines = source.splitlines()
        self._place = 0

    def line_of(self, code: str) -> int:
        """Return the next line that opens a fence with such code, counted from 1; 0 where none does."""
        first = next((line.strip() for line in code.splitlines() if line.strip()), "")
        for place in range(self._place, len(self._lines) - 1):
            opens = self._lines[place].lstrip(" >").startswith(("```", "~~~"))
            following = (line.strip() for line in self._lines[place + 1 :])
            if opens and next((line for line in following if line), "") == first:
                self._place = place + 1
                return place + 1
        return 0


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

    Superfences hides what is raised here: an option that means nothing is remembered for the end of the page.
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
            reading.problems.append(f"docs/{reading.path}:{line}: {error}")
            return ""
    reading.blocks.append(block)
    code = ""
    if block.kind != "console":
        if block.name:
            display.setdefault("title", block.name)
        fence: Any = md.preprocessors["fenced_code_block"]
        code = fence.highlight(src=source, language="python", options=display, md=md, **kwargs)
    return f'<div class="runs {block.kind}">{code}<p data-shown="{len(reading.blocks) - 1}"></p></div>'
