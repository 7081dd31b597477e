"""The command ``jai-cli``: the functions of ``jax_array_info`` in a shell."""

from __future__ import annotations

import sys


def main() -> None:
    """Run ``jai-cli``. Without click, print the install command and exit with 1."""
    try:
        import click  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sys.exit("jai-cli needs click: pip install 'jax-array-info[cli]'")
    from .commands import jai_cli
    from .standard_streams import secure_standard_streams, written_or_refused

    secure_standard_streams()
    with written_or_refused():
        jai_cli(prog_name="jai-cli")
