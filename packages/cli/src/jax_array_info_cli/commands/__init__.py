"""The commands, one file each. Loading them imports click alone: what they do, they import when run."""

from __future__ import annotations

import click

from .demo import demo
from .devices import devices
from .explain import explain
from .help import Group, help_width
from .profile import profile
from .run import run
from .show import show

_EPILOG = """
\b
Examples:
  $ jai-cli demo --devices 8
  $ jai-cli show 16384,16384 --mesh data=4,model=2 --spec data,model
  $ jai-cli explain '{devices=[4,1,2]<=[8] last_tile_dim_replicate}'
  $ jai-cli run --devices 4 --processes 2 train.py
  $ jai-cli devices --devices 4
  $ jai-cli profile memory.prof

Environment: NO_COLOR takes colours away, and leaves bold; FORCE_COLOR brings them to pipes and files;
COLUMNS is how wide lines may be, where it is not as wide as the terminal. TERM=dumb has no colours, and
an encoding without box characters has boxes of ASCII. The processes of run and demo heed the same.

Exit codes: 0 when all went well, 1 when something failed, 2 when the words of the command are wrong. run
ends with the exit code of the program, 124 after --timeout, and 128 + n after signal n.

\b
Completion of words, in the shell's own start file:
  bash   eval "$(_JAI_CLI_COMPLETE=bash_source jai-cli)"
  zsh    eval "$(_JAI_CLI_COMPLETE=zsh_source jai-cli)"
  fish   _JAI_CLI_COMPLETE=fish_source jai-cli | source
"""


@click.group(
    cls=Group,
    commands=(show, explain, run, devices, profile, demo),
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "terminal_width": help_width()},
)
@click.version_option(package_name="jax-array-info")
def jai_cli() -> None:
    """Where are my bytes?

    Which device holds which slice of a JAX array, how many bytes that takes, what else is alive. Each
    command below answers a question; jai-cli COMMAND --help has its options, and examples.
    """
