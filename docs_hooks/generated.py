"""Pages that are generated from the source, and stored for readers of the Markdown files."""

from __future__ import annotations

from pathlib import Path

from tests import contexts

from jax_array_info_cli.commands import jai_cli

from .column_page import column_page
from .command_page import command_page
from .context_page import context_page
from .finding_pages import index_page
from .log_kind_page import log_kind_page
from .metric_page import metric_page

NOXFILE = Path(__file__).parent.parent / "noxfile.py"


def generated_pages() -> dict[str, str]:
    """Return the Markdown of each page by its path in ``docs/``."""
    return {
        "findings/index.md": index_page(),
        "reference/columns.md": column_page(),
        "reference/cli.md": f"{command_page(jai_cli, 'jai-cli').rstrip()}\n",
        "reference/contexts.md": context_page(contexts, NOXFILE),
        "reference/log-kinds.md": log_kind_page(),
        "reference/metrics.md": metric_page(),
    }
