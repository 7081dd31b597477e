"""The commands, one file each. Loading them imports click alone: what they do, they import when run."""

from __future__ import annotations

from typing import Any

import click

from ..writing import written_or_refused
from .demo import demo
from .devices import devices
from .explain import explain
from .profile import profile
from .run import run
from .show import show


class _Commands(click.Group):
    def main(self, *args: Any, **kwargs: Any) -> Any:
        with written_or_refused():
            return super().main(*args, **kwargs)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="jax-array-info")
def jai_cli() -> None:
    """Where are my bytes? Which device holds which slice of a JAX array, and what else is alive."""


for command in (demo, devices, explain, profile, run, show):
    jai_cli.add_command(command)
