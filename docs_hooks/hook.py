"""mkdocs event handlers that run the code of pages and add generated pages.

``mkdocs serve`` runs blocks with the current packages at each save. What it compares the stored pages of the
command line and the contexts with stays as it was when it started.
"""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # mkdocs loads this file by path and then restores sys.path

from docs_hooks.blocks import PageError  # noqa: E402
from docs_hooks.finding_pages import TO_FILE, finding_pages  # noqa: E402
from docs_hooks.generated import generated_pages  # noqa: E402
from docs_hooks.notebooks import notebook_page  # noqa: E402
from docs_hooks.pages import OUTPUT, difference, page_with_frames, page_with_text  # noqa: E402
from docs_hooks.questions import page_with_questions  # noqa: E402
from docs_hooks.running import AT_ONCE, code_as_it_is  # noqa: E402

PAGES_OF_THE_ROOT = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
SHORT_CODE = re.compile(r"<code>(?=[^<\n]{1,28}</code>)")
NAMES = re.compile(r"<code>[^<\n]*</code>")
OF_THE_ROOT = re.compile(r"\]\(\.\./(CONTRIBUTING|CHANGELOG)\.md")
PLACEHOLDERS = "Each `:::` line stands for the docstring of that name, as `help()` prints it.\n\n"
"""Note of reference pages for readers of the Markdown files."""
NOTEBOOK = re.compile(r"(\]\([^)\s]*)\.ipynb(?=[#)])")
"""Links that lead to files on a code host, and to pages made of these files on the site."""
END_OF_PART = re.compile(r"(?<=\w)[_.](?=[A-Za-z])")
log = get_plugin_logger("docs_hooks")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Register the fence for literal HTML, which also works inside lists and tabs."""
    superfences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    superfences["custom_fences"] = [{"name": "output", "class": "", "format": _as_it_is}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of root files, findings and notebooks, and run the blocks of all pages.

    A page whose stored output differs from the printed output, or that is generated and stored otherwise, is
    logged as an error, at which a strict build fails.

    Raises:
        PluginError: If a block is invalid or fails; the message has its page, line, code and error.
    """
    generated = {
        path: (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
        for path, source in PAGES_OF_THE_ROOT.items()
    }
    if files.get_file_from_path("findings/index.md"):
        generated |= finding_pages()
    notebooks = [file.src_uri for file in files if file.src_uri.endswith(".ipynb")]
    generated |= {f"{path.removesuffix('.ipynb')}.md": "" for path in notebooks}
    for path, content in generated.items():
        files.append(File.generated(config, path, content=content))
    for path, text in generated_pages().items():
        stored = files.get_file_from_path(path)
        if stored is not None and (found := difference(stored.content_string, text)):
            log.error("docs/%s:%s", path, found)
    pages = files.documentation_pages()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        contents = pool.map(partial(_content, Path(config.docs_dir), code_as_it_is()), pages)
        for page, content in zip(pages, contents, strict=True):
            page.content_string = content
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Keep short code on one line, and let longer names break after ``_`` and ``.``.

    Raises:
        PluginError: If the page still contains the text of a fence, which Markdown did not parse.
    """
    if OUTPUT in html:
        raise PluginError(f"docs/{page.file.src_uri}: Markdown does not parse the fence of a block")
    html = SHORT_CODE.sub('<code class="short">', html)
    return NAMES.sub(lambda code: END_OF_PART.sub(r"\g<0><wbr>", code[0]), html)


def _content(docs: Path, code: object, file: File) -> str:
    """Return the content of a page, with the output of its code."""
    notebook = (docs / file.src_uri).with_suffix(".ipynb")
    try:
        if notebook.exists():
            return notebook_page(notebook, code)
        source = file.content_string
        if found := difference(source, page_with_text(page_with_questions(source), code)):
            log.error("docs/%s:%s", file.src_uri, found)
        return _links_of_the_site(page_with_frames(source, code))
    except PageError as error:
        raise PluginError(f"docs/{file.src_uri}:{error}") from None


def _links_of_the_site(page: str) -> str:
    """Return a page whose links lead to the pages made of files, without the notes for readers of files."""
    page = page.replace(PLACEHOLDERS, "", 1)
    page = OF_THE_ROOT.sub(lambda link: f"]({link[1].lower()}.md", page)
    page = TO_FILE.sub(r"](\1findings/", page)
    return NOTEBOOK.sub(r"\1.md", page)


def _as_it_is(source: str, *args: Any, **kwargs: Any) -> str:
    return source
