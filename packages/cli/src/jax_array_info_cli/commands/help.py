"""Help, errors and exit codes of all commands: help fits the terminal, errors escape control characters."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click

from ..standard_streams import written_or_refused
from ..usage import Refusal

MOST_WIDTH = 80
LEAST_WIDTH = 20


class _Formatter(click.HelpFormatter):
    """Fits the terminal, up to 80 columns, and keeps room for descriptions on narrow ones."""

    def __init__(self, **options: Any) -> None:
        import shutil

        # Click itself never goes below 50 characters.
        width = max(min(shutil.get_terminal_size().columns, MOST_WIDTH) - 2, LEAST_WIDTH)
        super().__init__(**{**options, "width": width})

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write terms with descriptions. On a narrow terminal, a long term gets a line of its own."""
        super().write_dl(list(rows), min(col_max, 2 * self.width // 5), col_spacing)


class _Context(click.Context):
    formatter_class = _Formatter


class Command(click.Command):
    """A command of ``jai-cli``, with the question that it answers and examples, which the tests run."""

    context_class = _Context

    def __init__(self, *, question: str, examples: Sequence[str], **kwargs: Any) -> None:
        lines = "\n".join(f"  $ {example}" for example in examples)
        super().__init__(short_help=question, epilog=f"\b\nExamples:\n{lines}", **kwargs)


class Commands(Mapping[str, click.Command]):
    """The commands by name. Each is imported from its module when it is looked up."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules

    def __getitem__(self, name: str) -> click.Command:
        module = importlib.import_module(f"{__package__}.{self._modules[name]}")
        command: click.Command = getattr(module, name)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


class Group(click.Group):
    """The group of all commands, in the order of their addition."""

    context_class = _Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, unsorted."""
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command. Errors are escaped for the terminal and its encoding."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise click.UsageError(shown_on_stderr(error.format_message()), error.ctx) from error
        except click.ClickException as error:
            error_class = Refusal if error.exit_code == Refusal.exit_code else click.ClickException
            raise error_class(shown_on_stderr(error.format_message())) from error


def shown_on_stderr(message: str) -> str:
    """Return a message with every character escaped that stderr cannot show or a terminal would obey."""
    from jax_array_info_core.text import printable_lines

    # Click writes UTF-8 even if the encoding of stderr is ASCII.
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    return printable_lines(message, encoding)


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
