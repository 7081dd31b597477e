"""The commands. The module of one is imported when it is called, and all for the list of them."""

from __future__ import annotations

import click

from .help import Commands, Group

_MODULES = {
    "show": "show",
    "explain": "show",
    "tree": "tree",
    "check": "check",
    "diff": "diff",
    "run": "run",
    "program": "program",
    "log": "recorded",
    "devices": "devices",
    "profile": "recorded",
    "demo": "demo",
}
"""The module of each command, in the order of the help."""
_EPILOG = """
\b
Examples:
  $ jai-cli show 16384,16384 --mesh data=4,model=2 --spec data,model
  $ jai-cli tree model.npz --mesh fsdp=8 --spec 'embed=fsdp' --spec '*=-'
  $ jai-cli check plan.json --hbm 95GiB --optimizer adam
  $ jai-cli run --devices 8 train.py
  $ jai-cli program step.py:step --mesh fsdp=8 --args-from step.py:abstract
  $ jai-cli demo

\b
Environment variables:
  NO_COLOR     Turn colors off.
  FORCE_COLOR  Use colors even when the output is redirected.
  COLUMNS      Output width. Default: the terminal's width, or 80.

\b
Exit codes:
  0  Success.
  1  Failure unrelated to the arguments, such as a full disk.
  2  Invalid argument or file.
  check and diff exit with 0 if nothing was found, with 1 for findings or
  differences, and with 2 if there is no answer.
  program exits with 1 if the function does not compile or does not fit the
  memory of its topology, and with 2 if there is no answer.
  run exits with the exit code of the program, or with 124 after --timeout.
  run exits with 128 + n if signal n ends the program.

\b
Shell completion, with one line in the shell's startup file:
  bash   eval "$(_JAI_CLI_COMPLETE=bash_source jai-cli)"
  zsh    eval "$(_JAI_CLI_COMPLETE=zsh_source jai-cli)"
  fish   _JAI_CLI_COMPLETE=fish_source jai-cli | source
"""


@click.group(
    cls=Group,
    commands=Commands(_MODULES),
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="jax-array-info")
def jai_cli() -> None:
    """See how JAX arrays are sharded and how much memory they take on each device.

    Each command answers one question. Run jai-cli COMMAND --help for its options and examples.
    """
