"""Program that runs the code of pages and writes its output into their Markdown files.

``python -m docs_hooks docs/shell.md`` writes the named pages; without names, all pages of ``docs/``, the
files about findings, the pages that are generated from the source, and the picture of the README. The
README's table of questions is written into the pages that repeat it.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from jax_array_info_core.base.files import write_whole

from .blocks import PageError
from .finding_pages import EXPLAINED
from .generated import generated_pages
from .pages import page_with_text
from .questions import page_with_questions
from .running import AT_ONCE, code_as_it_is
from .step_picture import PICTURE, step_picture

DOCS = Path(__file__).parent.parent / "docs"


def main() -> None:
    """Write the pages whose stored output differs, and exit with the errors of the others."""
    pages = [Path(name) for name in sys.argv[1:]]
    if not pages:
        write_whole(PICTURE, step_picture().encode())
        for name, page in generated_pages().items():
            write_whole(DOCS / name, page.encode())
        pages = sorted([*DOCS.rglob("*.md"), *EXPLAINED.glob("*.md")])
    with ThreadPoolExecutor(AT_ONCE) as pool:
        errors = pool.map(partial(write_page, code=code_as_it_is()), pages)
        sys.exit("\n".join(filter(None, errors)) or None)


def write_page(path: Path, code: object) -> str:
    """Write the output of the code of a page into the page, and return its error or an empty string."""
    source = path.read_text(encoding="utf-8")
    try:
        written = page_with_text(page_with_questions(source), code)
    except PageError as error:
        return f"{path}:{error}"
    if written != source:
        write_whole(path, written.encode())
        print(f"{path}: written", flush=True)
    return ""


if __name__ == "__main__":
    main()
