"""Commands that print reports: their help, formats, files, rows and exit codes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from .output import Output, Refusal, output_options
from .standard_streams import written_or_refused

if TYPE_CHECKING:
    from jax_array_info_core.reports import Report

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


class Context(click.Context):
    """Shows help in this form."""

    formatter_class = _Formatter


class Command(click.Command):
    """A command of ``jai-cli``, with examples, which the tests run."""

    context_class = Context

    def __init__(self, *, examples: Sequence[str], **kwargs: Any) -> None:
        lines = "\n".join(f"  $ {example}" for example in examples)
        super().__init__(epilog=f"\b\nExamples:\n{lines}", **kwargs)


FOUND = 1


class VerdictCommand(Command):
    """A command with a function that returns whether it found something: exit code 1, otherwise 0.

    Without an answer, for example because its output cannot be written, it ends with exit code 2.
    """

    def invoke(self, ctx: click.Context) -> None:
        """Run the command and exit."""
        try:
            with written_or_refused(Refusal.exit_code):
                has_finding = super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Refusal("interrupted") from error
        except click.UsageError:
            raise
        except click.ClickException as error:
            raise Refusal(error.format_message()) from error
        ctx.exit(FOUND if has_finding else 0)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command prints."""

    report: Report | Sequence[Sequence[Report]]
    """The report; several are in columns side by side."""
    has_finding: bool = False
    """Whether a command with a verdict found something."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the pages."""
    refusal: str | None = None
    """Why the command has no answer; it then ends with this error."""


def _rows(ctx: click.Context, param: click.Parameter, text: str | None) -> dict[str, int | None]:
    """Return the option of the page; none if it is not given."""
    if text is None:
        return {}
    kind: Any = click.IntRange(min=0)
    return {"max_rows": None if text == "all" else kind.convert(text, param, ctx)}


_rows_option = click.option(
    "--max-rows",
    "page_options",
    metavar="COUNT|all",
    callback=_rows,
    help="Maximum number of rows of each table. One more row has the others.",
)


def report_command(
    *examples: str, has_verdict: bool = False, has_rows: bool = False
) -> Callable[[Callable[..., Answer]], click.Command]:
    """Return a decorator that makes a command of a function that returns an answer.

    The command writes the answer in each format, to standard output or a file. That the file can be created
    is checked first.

    Args:
        *examples: Examples for its help.
        has_verdict: Whether it exits with 1 if it found something.
        has_rows: Whether it has ``--max-rows``.
    """

    def made(function: Callable[..., Answer]) -> click.Command:
        @output_options
        @functools.wraps(function)
        def run(*, output: Output, page_options: Mapping[str, Any] | None = None, **arguments: Any) -> bool:
            place = output.require_place()
            entry = click.get_current_context().obj
            answer = function(**arguments)
            columns = answer.report if isinstance(answer.report, Sequence) else [[answer.report]]
            if entry and place == Output():
                click.echo(entry)
            if columns:
                place.show(columns, **answer.options, **(page_options or {}))
            if answer.refusal is not None:
                raise Refusal(answer.refusal)
            return answer.has_finding

        kind = VerdictCommand if has_verdict else Command
        options = _rows_option(run) if has_rows else run
        return click.command(cls=kind, examples=examples)(options)

    return made
