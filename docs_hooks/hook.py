"""Calls of mkdocs while it builds the site.

``mkdocs serve`` runs blocks with the packages as they are at each save, but shows the page of the command and
that of the contexts as they were when it began.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # mkdocs loads this file by its path, and takes it away again

from tests import contexts  # noqa: E402

from docs_hooks.blocks import PageError  # noqa: E402
from docs_hooks.command_page import command_page  # noqa: E402
from docs_hooks.context_page import context_page  # noqa: E402
from docs_hooks.notebooks import notebook_page  # noqa: E402
from docs_hooks.pages import OUTPUT, page_with_outputs  # noqa: E402
from docs_hooks.running import code_as_it_is  # noqa: E402
from jax_array_info_cli.commands import jai_cli  # noqa: E402

PAGES_OF_THE_ROOT = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
AT_ONCE = min(os.cpu_count() or 1, 4)
"""Pages that run at the same time."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let HTML stand on pages as it is, however deep in lists and tabs."""
    superfences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    superfences["custom_fences"] = [{"name": "output", "class": "", "format": _as_it_is}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made: of the command, the tests' table, files of the root, notebooks.

    Run the blocks of all pages.

    Raises:
        PluginError: A block is wrong or fails: the build stops, with its page, line, code and error.
    """
    made = {
        "reference/cli.md": command_page(jai_cli, "jai-cli"),
        "reference/contexts.md": context_page(contexts, ROOT / "noxfile.py"),
    }
    for path, source in PAGES_OF_THE_ROOT.items():
        made[path] = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
    notebooks = [file.src_uri for file in files if file.src_uri.endswith(".ipynb")]
    made |= {f"{path.removesuffix('.ipynb')}.md": "" for path in notebooks}
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    pages = files.documentation_pages()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        contents = pool.map(partial(_content, Path(config.docs_dir), code_as_it_is()), pages)
        for page, content in zip(pages, contents, strict=True):
            page.content_string = content
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    """Stop the build where Markdown does not see a fence.

    Raises:
        PluginError: There is one.
    """
    if OUTPUT in html:
        raise PluginError(f"docs/{page.file.src_uri}: Markdown does not see the fence of a block")


def _content(docs: Path, code: object, file: File) -> str:
    """Return the page of a file, with what its code shows."""
    notebook = (docs / file.src_uri).with_suffix(".ipynb")
    try:
        if notebook.exists():
            return notebook_page(notebook, code)
        return page_with_outputs(file.content_string, code)
    except PageError as error:
        raise PluginError(f"docs/{file.src_uri}:{error}") from None


def _as_it_is(source: str, *args: Any, **kwargs: Any) -> str:
    return source
