"""Output of commands: reports as text, JSON, SVG or HTML, progress, usage errors and refusals of input."""

from __future__ import annotations

import codecs
import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import click

from jax_array_info_core.base.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from jax_array_info_core.reports import Report

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])
_MOST = 20
"""Maximum number of problems that are printed: a tree may have many."""
_HEAD = 64


def with_options(*options: Callable[[Any], Any]) -> Callable[[_F], _F]:
    """Return a decorator that adds arguments and options to a command, in this order."""

    def added(function: _F) -> _F:
        for option in reversed(options):
            function = option(function)
        return function

    return added


class Problems:
    """Collects the problems in a command's arguments."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}

    def add(self, problems: Iterable[str]) -> None:
        """Add problems. Duplicates are reported once."""
        self._found |= dict.fromkeys(problems)

    def catch(self, argument: str, function: Callable[..., _T], *args: Any) -> _T | None:
        """Return the result of a function, or None if it rejects its input, or if the option is not given.

        Args:
            argument: Name of the argument or option, printed before the error message.
            function: Parser or check that raises ValueError for invalid input.
            *args: Arguments of the function; None for an option that is not given.
        """
        if args == (None,):
            return None
        from jax_array_info_core.errors import SpecError

        try:
            return function(*args)
        except SpecError as error:
            self.add(error.groups)
        except ValueError as error:
            self.add([f"{argument} {error}".strip()])
        return None

    def refuse(self) -> None:
        """Raise a usage error (exit code 2) if there are any problems."""
        if self._found:
            lines = list(self._found)
            more = [f"and {len(lines) - _MOST} more problems"] if len(lines) > _MOST else []
            raise click.UsageError("\n".join(lines[:_MOST] + more), click.get_current_context())


class Refusal(click.ClickException):
    """Invalid input: ends the command with a one-line error and exit code 2."""

    exit_code = 2


@contextlib.contextmanager
def refused(*kinds: type[Exception], prefix: str = "", is_invalid: bool = True) -> Iterator[None]:
    """End the command with one line if one of these exceptions is raised.

    Args:
        *kinds: The exceptions.
        prefix: The part of the message before theirs, such as ``--at: ``.
        is_invalid: Whether the input is invalid: exit code 2. Otherwise 1, as for a full disk.
    """
    try:
        yield
    except kinds as error:
        problem = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise (Refusal if is_invalid else click.ClickException)(f"{prefix}{problem}") from error


_TAKEN = {
    "TreeReport": "jai-cli tree, check and diff take it",
    "ProgramReport": "jai-cli diff and layers take it",
    "LiveArrayReport": "jai-cli hosts takes a folder with that of each process, written by save_report",
    "DevicesReport": "jai-cli hosts takes a folder with that of each process, written by save_report",
}
"""Commands that take a saved report, by its class."""


def refusal_of_report(path: str, report: Report, problem: str) -> Refusal:
    """Return the error for a saved report that a command does not take, with the command that does.

    Args:
        path: Path of the file.
        report: The report in it.
        problem: What the report is not, in words.
    """
    kind = type(report).__name__
    taken = _TAKEN.get(kind, "no command takes it, but load_report in Python does")
    return Refusal(f"{printable(path)}: the report is a {kind}, {problem}: {taken}")


def refuse_reports(path: str, problem: str) -> None:
    """End the command with one line if a file has a saved report, in any of its forms.

    Args:
        path: Path of anything.
        problem: What the report is not, in words.
    """
    from jax_array_info_core.base.files import open_regular

    try:
        with open_regular(Path(path)) as file:
            if not file.read(_HEAD).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
                return
        from jax_array_info_core import load_report  # of a file that may be a report alone

        report = load_report(path)
    except (OSError, ValueError):
        return  # the command says why it cannot read the path
    raise refusal_of_report(path, report, problem)


Format = Literal["text", "json", "svg", "html"]
_BY_SUFFIX: dict[str, Format] = {"": "text", ".txt": "text", ".json": "json", ".svg": "svg", ".html": "html"}


@dataclass(frozen=True, slots=True)
class Output:
    """Format and destination of a command's reports."""

    format: Format = "text"
    path: str | None = None
    """Path of the output file; None for standard output."""

    def show(self, columns: Sequence[Sequence[Report]], **options: Any) -> None:
        """Write reports.

        Args:
            columns: The reports. JSON has one line per report; other formats show the columns side by side.
            **options: Options of the pages, such as ``max_rows``.
        """
        if self.format == "text":
            from jax_array_info.engine.render import print_columns

            self.write_text(functools.partial(print_columns, columns=columns, **options))
        elif self.format == "json":
            from jax_array_info_core import to_json

            self.write("".join(f"{to_json(report)}\n" for column in columns for report in column))
        else:
            from jax_array_info.export.document import document_of

            self.write(document_of(columns, self.format, **options))

    def write_text(self, print_text: Callable[[Console], None]) -> None:
        """Write console output to the terminal, or to the file at the same width."""
        from io import StringIO

        from jax_array_info.style import terminal_console

        if self.path is None:
            print_text(terminal_console())
            return
        file = StringIO()
        print_text(terminal_console(file=file, plain=True))
        self.write(file.getvalue())

    def require_place(self) -> Output:
        """End the command if the file cannot be created there, before the program runs for hours.

        Returns:
            The output with an absolute path: the program may change the directory.
        """
        if self.path is None:
            return self
        from pathlib import Path

        from jax_array_info_core.base.files import require_place

        with _writing(self.path):
            require_place(Path(self.path))
        return replace(self, path=os.path.abspath(self.path))

    def of_rank(self, rank: int) -> Output:
        """Return the output of a rank: rank 3 writes to ``name-rank3.html`` in place of ``name.html``."""
        if self.path is None or not rank:
            return self
        stem, suffix = os.path.splitext(self.path)
        return replace(self, path=f"{stem}-rank{rank}{suffix}")

    def write(self, text: str) -> None:
        """Write the text, or end the command with a one-line error."""
        if self.path is None:
            click.echo(text.encode(), nl=False)  # UTF-8, whatever the encoding of the terminal
            return
        from pathlib import Path

        from jax_array_info_core.base.files import write_whole

        with _writing(self.path):
            write_whole(Path(self.path), text.encode())


def _writing(path: str) -> contextlib.AbstractContextManager[None]:
    """Return a context that ends the command with one line if a file cannot be written."""
    return refused(OSError, prefix=f"{printable(path)}: ", is_invalid=False)


def _format_of(path: str | None) -> Format:
    """Return the format that matches the suffix of a file name."""
    if path == "":
        raise click.UsageError("--output needs a file name")
    suffix = os.path.splitext(path or "")[1].lower()
    if suffix not in _BY_SUFFIX:
        known = ", ".join(filter(None, _BY_SUFFIX))
        png = "; for a PNG, call save_picture in Python" if suffix == ".png" else ""
        raise click.UsageError(f"unknown file suffix {suffix}: use {known}, or set --format{png}")
    return _BY_SUFFIX[suffix]


def output_options(function: Callable[..., _T]) -> Callable[..., _T]:
    """Add ``--format`` and ``--output`` to a command, passed to it as the argument ``output``."""

    @click.option(
        "--format",
        "written_as",
        type=click.Choice(get_args(Format)),
        help="Output format. Default: inferred from the suffix of the --output file, otherwise text.",
    )
    @click.option(
        "--output",
        "path",
        metavar="FILE",
        type=click.Path(allow_dash=True),
        help="Write to FILE instead of standard output.",
    )
    @functools.wraps(function)
    def command(*args: Any, written_as: Format | None, path: str | None, **kwargs: Any) -> _T:
        path = None if path == "-" else path
        return function(*args, output=Output(written_as or _format_of(path), path), **kwargs)

    return command


hbm_option = click.option(
    "--hbm", metavar="SIZE", help="Memory of a device, such as 95GiB or 16GB, or a chip, such as v5p."
)


def positive_bytes(text: str) -> int:
    """Parse a size of at least one byte."""
    from jax_array_info_core.base.quantities import parse_bytes

    nbytes = parse_bytes(text)
    if nbytes < 1:
        raise ValueError(f"must be at least 1 byte, got {text}")
    return nbytes


def device_nbytes(text: str) -> int:
    """Parse a size of at least one byte, or the name of a chip."""
    from jax_array_info_core.compat.topology_names import DEVICE_NBYTES

    name = text.strip().lower()
    if name[:1].isalpha() and name not in DEVICE_NBYTES:
        known = ", ".join(DEVICE_NBYTES)
        raise ValueError(f"cannot be read: expected a size such as 95GiB, or one of {known}, got {text!r}")
    return DEVICE_NBYTES[name] if name in DEVICE_NBYTES else positive_bytes(text)


def _min_nbytes(ctx: click.Context, param: click.Parameter, text: str) -> int:
    from jax_array_info_core.base.quantities import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise click.UsageError(f"--min-size: {error}", ctx) from error


min_size_option = click.option(
    "--min-size",
    "min_nbytes",
    metavar="SIZE",
    default="64KiB",
    show_default=True,
    callback=_min_nbytes,
    help="Bytes per device, such as 1MiB, below which bytes that are held or repeated without need are no"
    " finding. 0 accepts none.",
)


def _codes(ctx: click.Context, param: click.Parameter, codes: tuple[str, ...]) -> tuple[str, ...]:
    from jax_array_info_core.base.errors import UnsupportedValueError
    from jax_array_info_core.facts.reports.codes import known_codes

    try:
        known_codes(codes)
    except UnsupportedValueError as error:
        raise click.UsageError(f"--ignore-code: {error}", ctx) from error
    return codes


ignore_codes_option = click.option(
    "--ignore-code",
    "ignore_codes",
    metavar="CODE",
    multiple=True,
    callback=_codes,
    help="Leave out findings with this code, such as JAI101. Can be repeated.",
)


def _set(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Change the setting of an option until the command ends."""
    from jax_array_info_core import config

    name = str(param.name)
    ctx.call_on_close(functools.partial(setattr, config, name, getattr(config, name)))
    setattr(config, name, value)


line_options = with_options(
    click.option(
        "--callers",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        expose_value=False,
        callback=_set,
        help="Number of lines of your code to show for an operation: 2 adds the caller of the nearest.",
    ),
    click.option(
        "--show-frames",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        expose_value=False,
        callback=_set,
        help="Number of lines of installed packages to show below a line of your code.",
    ),
    click.option(
        "--user-package",
        "user_packages",
        metavar="NAME",
        multiple=True,
        expose_value=False,
        callback=_set,
        help="An installed package whose lines count as yours. Repeat the option for each package.",
    ),
)
"""Adds ``--callers``, ``--show-frames`` and ``--user-package`` to a command, which change the settings."""


@contextlib.contextmanager
def reading(path: str, problem: str | None = None) -> Iterator[Callable[[int, int], None] | None]:
    """Show the progress of reading a path. If it cannot be read, end the command with one line and code 2.

    Args:
        path: Path of a file or a folder, or ``-`` for standard input.
        problem: What a saved report at this path is not, if the command takes none.
    """
    from jax_array_info.engine.terminal import progress_bar
    from jax_array_info_core import ArrayInfoError

    name = "standard input" if path == "-" else printable(path)
    if not path:
        raise Refusal("expected the name of a file or a directory, got ''")
    if problem is not None:
        refuse_reports(path, problem)
    try:
        with progress_bar(f"reading {name}") as progress:
            yield progress
    except (OSError, ArrayInfoError, ValueError) as error:
        message = getattr(error, "strerror", None) or printable(str(error))
        raise Refusal(message if message.startswith(name) else f"{name}: {message}") from error
