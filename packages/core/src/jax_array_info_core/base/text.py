"""Sanitizers of untrusted text and numbers for reports and terminals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from .quantities import LARGEST, format_number

UNKNOWN = "unknown"
"""What is printed of a fact that is not known."""
MAX_TEXT = 2000
"""Maximum length of names, labels, paths and lines of errors; longer ones are clipped."""
ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]")
"""Colors in a log."""
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U(00(?:0[0-9a-f]|10)[0-9a-f]{4})|(.))", re.DOTALL)
"""A character that ``repr`` escapes."""
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}


def plain_text(value: object, convert: Callable[[Any], str] = str) -> str:
    """Return the text of any value as a plain str, or ``?`` if the conversion raises.

    All user-supplied text enters reports through this function. A subclass of str can override its methods,
    so its characters are copied.

    Args:
        value: Value to convert.
        convert: Conversion to text, such as ``repr``.
    """
    if convert is str and issubclass(type(value), str):
        return str.__str__(value)
    try:
        return str.__str__(convert(value))
    except Exception:
        return "?"


def plain_length(length: Any) -> int | str:
    """Return the length of an axis as a plain int; as text if it is a symbol or more than 2^63 - 1."""
    if issubclass(type(length), int):
        length = int.__int__(length)
    else:
        import numpy as np  # reading a log imports this module, and needs no NumPy

        if not issubclass(type(length), np.integer):
            return plain_text(length)
    return int(length) if abs(length) <= LARGEST else format_number(length)


def plain_shape(shape: Iterable[Any]) -> tuple[int | str, ...]:
    """Return a shape as plain ints, with text for symbolic axes."""
    return tuple(map(plain_length, shape))


def shape_text(shape: Iterable[int | str]) -> str:
    """Return a shape as a tuple prints, with symbols unquoted: ``(8,)``."""
    lengths = list(map(str, shape))
    return f"({', '.join(lengths)}{',' if len(lengths) == 1 else ''})"


def that_apply(*facts: tuple[object, str]) -> list[str]:
    """Return the words of the facts whose condition is true."""
    return [words for applies, words in facts if applies]


def printable(text: str, encoding: str = "utf-8") -> str:
    r"""Return untrusted text with backslash escapes for all characters that are unsafe in a terminal.

    Escaped are characters that are not printable (control characters, terminal escapes, line breaks,
    directional marks, lone surrogates) and characters that the encoding lacks. The result is valid in XML.

    >>> printable("params[0]\x1b[31m"), printable("größe", "ascii")
    ('params[0]\\x1b[31m', 'gr\\xf6\\xdfe')
    """
    text = str.__str__(text)  # a subclass of str can override its methods
    if not text.isprintable():
        text = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return text.encode(encoding, "backslashreplace").decode(encoding)


def clipped(text: str, most: int = MAX_TEXT) -> str:
    """Return a text without its middle if it is longer than 2,000 characters, or another number.

    Call this before measuring a text: rich takes seconds for one of 10 MB.
    """
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 4 :]}"


def cut(text: str, most: int) -> str:
    """Return a text, or its beginning and an ellipsis if it is longer than a number of characters."""
    return text if len(text) <= most else f"{text[:most]}…"


def printable_lines(text: str, encoding: str = "utf-8") -> str:
    """Return the message of an error with each line printable and clipped."""
    if len(text) <= MAX_TEXT and text.isascii() and text.isprintable():
        return text
    return "\n".join(clipped(printable(clipped(line), encoding)) for line in text.split("\n"))


def unquoted(text: str) -> str:
    r"""Return the text whose ``repr`` this is, without evaluating it. Other escapes stay as they are.

    >>> unquoted(r"'a\'b\x41\d'")
    "a'bA\\d"
    """
    return _ESCAPE.sub(_escaped, text[1:-1])


def _escaped(match: re.Match[str]) -> str:
    *codes, char = match.groups()
    code = next(filter(None, codes), None)
    return _ESCAPED.get(char, match[0]) if code is None else chr(int(code, 16))
