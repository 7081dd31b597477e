"""Attributes and quoted strings in XLA's text: ``, dimensions={0}, metadata={op_name="jit(f)/dot"}``."""

from __future__ import annotations

import re

STRING = r'"(?:[^"\\]++|\\.)*+"'
"""Pattern of a quoted string."""

# XLA nests braces at most three deep outside of a backend_config.
_DEPTH = 6


def _braces() -> str:
    """Return a pattern of a brace to its closing one, in linear time: nothing is matched twice."""
    content = plain = rf'[^{{}}"]++|{STRING}'
    for _ in range(_DEPTH):
        content = rf"{plain}|\{{(?:{content})*+\}}"
    return rf"\{{(?:{content})*+\}}"


# A part of the groups of a collective looks like an attribute: mesh['x'=8], device_ids=([8]) {'x'}.
_VALUE = rf'(?:[^{{}}",]++|{STRING}|{_braces()}|,(?! [\w-]+=)|,(?= device_ids=))*+'

# The backend_config comes last, and has braces at any depth.
_ATTRIBUTE = re.compile(rf", (?:backend_config=(.*)|([\w-]+)=({_VALUE})(?=, |$))")
_FIELD = re.compile(rf"\b(\w++)=(?:({STRING})|(\S+))(?: |$)")

_ESCAPES = re.compile(r"(?:\\(?:[0-7]{3}|x[0-9a-fA-F]{2}|.))+")
_ESCAPE = re.compile(r"\\(?:([0-7]{3})|x([0-9a-fA-F]{2})|(.))")
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}


def read_attributes(text: str) -> tuple[dict[str, str], bool]:
    """Return the attributes by name, each with its text, and whether all of the text was read."""
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _ATTRIBUTE.match(text, position)
        if match is None:
            return found, False
        if match[2] is None:
            found["backend_config"] = match[1]
        else:
            found[match[2]] = match[3]
        position = match.end()
    return found, True


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
