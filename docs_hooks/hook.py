"""What mkdocs calls while it builds the site.

``JAI_DOCS_ONLY=guides/inside-jit.md,index.md`` runs the blocks of these pages alone; no strict build does.
``mkdocs serve`` runs blocks with the packages as they are at each save, but shows the page of the command and
that of the contexts as they were when it began.
"""

from __future__ import annotations

import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from jinja2 import Environment
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # mkdocs loads this file by its path, and takes it away again

from tests import contexts  # noqa: E402

from docs_hooks import fences, lifelines, notebooks  # noqa: E402
from docs_hooks.blocks import Block, BlockError, Shown, names_of  # noqa: E402
from docs_hooks.cache import cached  # noqa: E402
from docs_hooks.command_page import command_page  # noqa: E402
from docs_hooks.context_page import context_page  # noqa: E402
from docs_hooks.environment import fingerprint  # noqa: E402
from docs_hooks.running import run_blocks  # noqa: E402
from docs_hooks.terminal import frame  # noqa: E402
from jax_array_info_cli.commands import jai_cli  # noqa: E402

PAGES_OF_THE_ROOT = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
AT_ONCE = min(os.cpu_count() or 1, 4)
"""Pages that run at the same time; each has a process or two."""

pages: dict[str, fences.Page] = {}
"""The pages with their blocks, by their paths in ``docs``."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the fences that run."""
    superfences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    superfences["custom_fences"] = [
        {"name": name, "class": name, "validator": fences.accepts, "format": fences.shows}
        for name in ("python", "console")
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made: of the command, the tests' table, files of the root, notebooks."""
    pages.clear()
    made = {
        "reference/cli.md": command_page(jai_cli, "jai-cli"),
        "reference/contexts.md": context_page(contexts, ROOT / "noxfile.py"),
    }
    for path, source in PAGES_OF_THE_ROOT.items():
        made[path] = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            made[file.src_uri.removesuffix(".ipynb") + ".md"] = notebooks.markdown_of(_source_of(file))
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    """Collect the blocks of the page that mkdocs reads next."""
    pages[page.file.src_uri] = fences.begin(page.file.src_uri, page.file.content_string)


def on_env(env: Environment, config: MkDocsConfig, files: Files) -> None:
    """Run the blocks of all pages, and put under each what it shows.

    Raises:
        PluginError: A block is wrong or fails: the build stops, with its page, line, code and error.
    """
    for page in pages.values():
        page.end()
    problems = [problem for page in pages.values() for problem in page.problems]
    if only := os.environ.get("JAI_DOCS_ONLY"):
        unknown = [path for path in only.split(",") if path not in pages]
        problems += [f"JAI_DOCS_ONLY: docs has no page {path}" for path in unknown]
        if config.strict:
            problems.append("JAI_DOCS_ONLY leaves out what a strict build must run: unset one of them")
    if problems:
        raise PluginError("\n".join(problems))
    surroundings = fingerprint()
    with_blocks = [file for file in files if file.src_uri in pages and pages[file.src_uri].blocks]
    lifelines.begin()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            for file, shown in zip(
                with_blocks,
                pool.map(partial(_run, Path(config.docs_dir), surroundings), with_blocks),
                strict=True,
            ):
                assert file.page is not None
                frames = [frame(pieces) for pieces in shown]
                file.page.content = _filled(file.page.content or "", pages[file.src_uri].blocks, frames)
        except BaseException:  # an interrupt too: what runs ends now, and the rest does not begin
            pool.shutdown(wait=False, cancel_futures=True)
            lifelines.stop()
            raise


def _filled(content: str, blocks: list[Block], frames: list[str]) -> str:
    """Put what each block shows under it, and its name above those that something shown speaks of."""
    text = re.sub("<[^>]*>", "", "".join(frames))
    names = [name if f"{name}:" in text else "" for name in names_of(blocks)]
    content = fences.UNNAMED.sub(lambda found: found[1] + _title(names[int(found[2])]), content)
    return fences.MARK.sub(lambda mark: frames[int(mark[1])], content)


def _title(name: str) -> str:
    return f'<span class="filename">{name}</span>' if name else ""


def _run(docs: Path, surroundings: str, file: File) -> list[tuple[Shown, ...]]:
    page = pages[file.src_uri]
    only = os.environ.get("JAI_DOCS_ONLY")
    if only and file.src_uri not in only.split(","):
        return [(Shown("not run: JAI_DOCS_ONLY names other pages"),) for _ in page.blocks]
    run, is_notebook = run_blocks, page.blocks[0].kind == "cell"
    if is_notebook:
        path = docs / Path(file.src_uri).with_suffix(".ipynb")
        run = partial(notebooks.run_notebook, path)
    try:
        return cached(page.blocks, run, surroundings)
    except BlockError as error:
        line = error.block.line
        place = f"{file.src_uri}:{line}" if not is_notebook else f"{file.src_uri}: cell of code {line}"
        code = error.block.source.rstrip("\n")
        raise PluginError(f"docs/{place}: a block fails:\n\n{code}\n\n{error.reason}") from None


def _source_of(file: File) -> Path:
    assert file.abs_src_path is not None
    return Path(file.abs_src_path)
