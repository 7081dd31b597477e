"""The page of the command: what click knows of each command, as Markdown."""

from __future__ import annotations

import html
import inspect
from collections.abc import Iterator

import click


def command_page(group: click.Group, name: str) -> str:
    """Return a page with a section for each command of a group: usage, help, arguments and options."""
    context = click.Context(group, info_name=name, **group.context_settings)
    return "\n".join([f"# The command `{name}`", "", *_described(context), *_sections(group, context)]) + "\n"


def _sections(group: click.Group, parent: click.Context) -> Iterator[str]:
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        if command is None or command.hidden:
            continue
        context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
        yield from [f"## {context.command_path}", "", *_described(context)]
        if isinstance(command, click.Group):
            yield from _sections(command, context)


def _described(context: click.Context) -> Iterator[str]:
    """Yield what is said of one command, without its commands."""
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield from ["```text", usage, "```", ""]
    yield from _paragraphs(command.help or "")
    options = [parameter for parameter in command.get_params(context) if isinstance(parameter, click.Option)]
    records = [record for option in options if (record := option.get_help_record(context))]
    if records:
        yield from ["| option | |", "|---|---|"]
        yield from (f"| `{names}` | {_cell(text)} |" for names, text in records)
        yield ""
    yield from _paragraphs(command.epilog or "")


def _paragraphs(text: str) -> Iterator[str]:
    """Yield a help text: what click is told not to wrap is shown as it stands."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        literal = first.strip() == "\b"
        yield from (
            ["```text", inspect.cleandoc(rest), "```", ""]
            if literal
            else [html.escape(paragraph.replace("\f", ""), quote=False), ""]
        )


def _cell(text: str) -> str:
    return html.escape(text, quote=False).replace("|", "\\|").replace("\n", " ")
