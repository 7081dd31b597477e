"""Links between devices and their bandwidths, as users write them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import UnsupportedValueError
from ..quantities import parse_bandwidth
from ..text import plain_text
from .links import LINKS, Link


def as_link(name: Any) -> Link:
    """Return a link between devices by its name.

    Raises:
        UnsupportedValueError: (a ValueError) If there is no such link.
    """
    found = next((link for link in LINKS if link == name), None)
    if found is None:
        known = ", ".join(map(repr, reversed(LINKS)))
        shown = plain_text(name, repr)
        raise UnsupportedValueError(f"{shown} is not a link between devices: there are {known}")
    return found


def as_bandwidths(value: Mapping[str, int | str] | None) -> dict[Link, int]:
    """Return the bytes per second of links that are given as integers or as text such as ``"6.25GB/s"``.

    Args:
        value: The bandwidth of each link by its name, such as ``{"dcn": "6.25GB/s"}``. None for none.

    Raises:
        UnsupportedValueError: (a ValueError) If a link or a bandwidth is not one.
    """
    found: dict[Link, int] = {}
    for name, given in (value or {}).items():
        link = as_link(name)
        try:
            found[link] = parse_bandwidth(given) if isinstance(given, str) else _whole(given)
        except ValueError as error:
            raise UnsupportedValueError(f"the bandwidth of {link} {error}") from error
    return found


def parse_bandwidths(texts: Sequence[str]) -> dict[str, str]:
    """Return the bandwidth of each link, such as ``dcn=6.25GB/s``.

    Raises:
        ValueError: If a text is not one, or a link has two bandwidths.
    """
    found: dict[str, str] = {}
    for text in texts:
        link, sign, bandwidth = text.partition("=")
        if not sign or link in found:
            problem = "has two bandwidths" if link in found else "has no bandwidth"
            raise ValueError(f"{link} {problem}: write each link once, such as dcn=6.25GB/s")
        found[link] = bandwidth
    as_bandwidths(found)
    return found


def _whole(value: Any) -> int:
    """Return a number of bytes per second that is not a text.

    Raises:
        ValueError: If it is not a positive integer.
    """
    try:
        number = 0 if isinstance(value, bool) else int(operator.index(value))
    except TypeError:
        number = 0
    if number < 1:
        shown = plain_text(value, repr)
        raise ValueError(f'must be bytes per second, an integer or a text such as "6.25GB/s", got {shown}')
    return number
