"""Reference page of the command line, generated from click."""

from __future__ import annotations

import inspect
from html import escape

import click


def command_page(command: click.Command, name: str, parent: click.Context | None = None) -> str:
    """Return the section of a command with its usage, help and options, and sections for its subcommands."""
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    options = [option for option in command.get_params(context) if isinstance(option, click.Option)]
    records = [record for option in options if (record := option.get_help_record(context))]
    rows = [f"| `{names}` | {_cell(text)} |" for names, text in records]
    commands = command.commands if isinstance(command, click.Group) else {}
    return "\n\n".join(
        [
            f"## {context.command_path}" if parent else f"# `{name}`: all commands and options",
            _text(command.help or ""),
            f"```text\n{usage}\n```",
            "\n".join(["| option | description |", "|---|---|", *rows]),
            _text(command.epilog or ""),
            *(command_page(part, part_name, context) for part_name, part in commands.items()),
        ]
    )


def _text(text: str) -> str:
    """Return a help text as Markdown; paragraphs that click does not wrap become literal blocks."""
    paragraphs = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        literal = f"```text\n{inspect.cleandoc(rest)}\n```"
        wrapped = escape(paragraph.replace("\f", ""), quote=False)
        paragraphs.append(literal if first == "\b" else wrapped)
    return "\n\n".join(paragraphs)


def _cell(text: str) -> str:
    return escape(text, quote=False).replace("|", "\\|").replace("\n", " ")
