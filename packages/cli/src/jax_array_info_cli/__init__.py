"""The command ``jai-cli``: words of a shell for what ``jax_array_info`` knows."""

from __future__ import annotations

import sys


def main() -> None:
    """Run ``jai-cli``; where click is missing, say what installs it and exit with 1."""
    try:
        import click  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit("jai-cli needs click: pip install 'jax-array-info[cli]'")
    from .commands import jai_cli
    from .stdout import written_or_refused

    with written_or_refused():
        jai_cli(prog_name="jai-cli")
