"""Commands that end with exit code 1 if they find something."""

from __future__ import annotations

import click

from ..standard_streams import written_or_refused
from ..usage import Refusal
from .help import Command

FOUND = 1


class VerdictCommand(Command):
    """A command with a function that returns whether it found something: exit code 1, otherwise 0.

    Without an answer, for example because its output cannot be written, it ends with exit code 2.
    """

    def invoke(self, ctx: click.Context) -> None:
        """Run the command and exit."""
        try:
            with written_or_refused(Refusal.exit_code):
                found = super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Refusal("interrupted") from error
        except click.UsageError:
            raise
        except click.ClickException as error:
            raise Refusal(error.format_message()) from error
        ctx.exit(FOUND if found else 0)
