"""Attributes and quoted strings in XLA's text: ``, dimensions={0}, metadata={op_name="jit(f)/dot"}``."""

from __future__ import annotations

import re

STRING = r'"(?:[^"\\]++|\\(?s:.))*+"'
"""Pattern of a quoted string."""

# A part of the groups of a collective looks like an attribute: mesh['x'=8], device_ids=([8]) {'x'}.
_TOKEN = re.compile(rf'{STRING}|\{{(?:[^{{}}"]++|{STRING})*+\}}|[{{}}"]|, (?!device_ids=)([\w-]++)=')
_FIELD = re.compile(rf"\b(\w++)=(?:({STRING})|(\S+))(?:\s|$)")

_ESCAPES = re.compile(r"(?:\\(?:[0-7]{3}|x[0-9a-fA-F]{2}|.))+")
_ESCAPE = re.compile(r"\\(?:([0-7]{3})|x([0-9a-fA-F]{2})|(.))")
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}


def read_attributes(text: str) -> tuple[dict[str, str], bool]:
    """Return the attributes by name, each with its text, and whether all of the text was read.

    An attribute ends where its quotes and braces end. The time is linear in the length of the text.
    """
    found: dict[str, str] = {}
    name, start, depth = "", 0, 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark == "{":
            depth += 1
        elif mark == "}":
            depth -= 1
        elif not depth and mark[0] == ",":
            if name:
                found[name] = text[start : token.start()]
            elif token.start():
                break
            name, start = token[1], token.end()
        if mark == '"' or depth < 0 or not name:
            return found, False
    is_whole = not depth and bool(name or not text)
    if is_whole and name:
        found[name] = text[start:]
    return found, is_whole


def read_fields(text: str) -> dict[str, str]:
    """Return the fields of ``{file_name_id=1 line=97}``, or of metadata, by name, strings without quotes."""
    fields = _FIELD.findall(text.strip("{}"))
    return {name: unescaped(string[1:-1]) if string else bare for name, string, bare in fields}


def unescaped(text: str) -> str:
    r"""Return the text of a string with its escapes resolved: ``params[\'wi\']`` is ``params['wi']``."""
    return _ESCAPES.sub(_resolve, text) if "\\" in text else text


def _resolve(escapes: re.Match[str]) -> str:
    """Return the text of adjacent escapes. XLA escapes each byte of a character that is not ASCII."""
    found = bytearray()
    for octal, hexadecimal, character in _ESCAPE.findall(escapes[0]):
        if character:
            found += _CONTROL.get(character, character).encode("utf-8", "surrogatepass")
        else:
            found.append(int(octal, 8) & 255 if octal else int(hexadecimal, 16))
    return found.decode("utf-8", "replace")
