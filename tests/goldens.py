"""Pages of stored reports, as they were drawn when each was last changed on purpose.

Each ``tests/data/pages/NAME.json`` is a report with the options of its page; ``NAME.txt`` is its page at five
widths, in two encodings and with colors. ``python -m tests.goldens`` writes the pages anew.
In many, ``"shows"`` says in one sentence what the page shows: what a change of it must not lose.

Reports of programs and trees that are longer than a screen, each on 8 devices: ``program-report-28`` is a step
of 24 layers, ``program-report-29`` one of a flax nnx model of three transformer blocks, with adam.
``check-report-11`` has 1,000 leaves and ``tree-report-20`` has 500, whose names hardly fold.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jax_array_info_core import from_json
from jax_array_info_core.facts.pages import page
from jax_array_info_core.reports import Report

FOLDER = Path(__file__).parent / "data" / "pages"
WIDTHS = (40, 60, 80, 100, 140)
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


def stored(name: str) -> tuple[Report, dict[str, Any]]:
    """Return a stored report, and the options of its page."""
    case = json.loads((FOLDER / f"{name}.json").read_text())
    return from_json(json.dumps(case["report"])), case["options"]


def one_of_each() -> dict[str, Report]:
    """Return the first stored report of each class, by the name of the class."""
    first = [stored(name)[0] for name in NAMES if name.endswith("-01")]
    return {type(report).__name__: report for report in first}


def drawn(name: str) -> str:
    """Return the pages of a report: equal ones once, below the names of all of them."""
    report, options = stored(name)
    pages: dict[str, list[str]] = {}
    with _utc():
        for title, text in _pages(report, options):
            pages.setdefault(text, []).append(title)
    return "\n".join(f"=== {', '.join(titles)} ===\n{text}" for text, titles in pages.items()) + "\n"


@contextlib.contextmanager
def _utc() -> Iterator[None]:
    """Run a block in the time zone of the stored pages, which have times of day."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        yield
    finally:
        del os.environ["TZ"]
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()


def _pages(report: Report, options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name of each page with its text. Trailing spaces are left out, as editors do."""
    from jax_array_info import to_html
    from jax_array_info.engine.render import on_console, shown_blocks, text_of

    of_page = dict(options)
    max_rows = of_page.pop("max_rows", "fit")
    # As ``render`` does at each width: the rows that fit are those of a width of 80.
    blocks = shown_blocks([*page(report, **of_page)], max_rows)
    for encoding, color in (("utf-8", False), ("ascii", False), ("utf-8", True)):
        for width in WIDTHS:
            drawn = on_console(blocks, width=width, use_color=color)
            text = text_of(drawn, width=width, color=color, encoding=encoding)
            lines = (line.rstrip() for line in text.replace("\x1b", "\\e").split("\n"))
            yield f"{'color' if color else encoding} {width}", "\n".join(lines)
    if not options:
        yield "html", to_html(report)


if __name__ == "__main__":
    for name in NAMES:
        (FOLDER / f"{name}.txt").write_text(drawn(name))
