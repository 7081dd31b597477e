"""Text forms of bytes, numbers and device ids."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from time import localtime, strftime
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    Size: TypeAlias = int
    """Bytes, elements or another number of things: 0 to 2^63 - 1."""

    Count: TypeAlias = int
    """A number of things, at least one: 1 to 2^63 - 1."""

    Difference: TypeAlias = int
    """Difference of two sizes: -2^63 to 2^63 - 1."""

    Time: TypeAlias = float
    """Seconds since 1970-01-01 UTC, up to about the year 5100."""

    Total: TypeAlias = int
    """Sum of sizes, or product of a size and a number of runs: 0 or larger."""

_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB")
_DECIMAL_UNITS = ("", "k", "M", "G", "T", "P")
LARGEST = 2**63 - 1
"""Largest size or count in a report."""
_LATEST = 10**11
_READABLE = 10**18
"""Upper bound (exclusive) of the numbers that are written in full."""
_PREFIXES = tuple("kKmMgGtTpPeEzZyY")
_UNITS = {"": 1, "b": 1} | {
    f"{prefix}{ending}": base**power
    for ending, base in (("b", 1000), ("ib", 1024), ("i", 1024))
    for power, prefix in enumerate("kmgtpezy", 1)
}
_SIZE = re.compile(
    r"(?P<whole>[0-9]{1,300})(\.(?P<fraction>[0-9]{0,300}))?([eE]\+?(?P<exponent>[0-9]{1,3}))?"
    r"\s*(?P<unit>[a-zA-Z]*)"
)


def __getattr__(name: str) -> Any:
    """Return the type of a number in a report, with the bounds that are checked when a report is read.

    Annotations of reports name it, and are evaluated then: msgspec is slow to import.
    """
    least = {"Size": 0, "Count": 1, "Difference": -LARGEST - 1, "Total": 0}
    if name not in (*least, "Time"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from typing import Annotated

    import msgspec

    if name == "Time":
        return Annotated[float, msgspec.Meta(ge=0, le=_LATEST)]
    return Annotated[int, msgspec.Meta(ge=least[name], le=None if name == "Total" else LARGEST)]


def decimal_words(number: float, whole: int = 1, *, decimals: int = 1) -> str:
    """Return a number as a part of another one, with some decimals. Halves are rounded up, away from 0.

    The computation is exact. Python's formats round 4.25 to 4.2.

    >>> decimal_words(17, 4), decimal_words(-1, 8, decimals=2), decimal_words(2.5, decimals=0)
    ('4.3', '-0.13', '3')
    """
    steps = _rounded(number, whole, decimals)
    digits = f"{abs(steps):0{decimals + 1}}"
    sign = "-" if steps < 0 else ""
    return f"{sign}{digits[:-decimals]}.{digits[-decimals:]}" if decimals else f"{sign}{digits}"


def percent_words(number: float, whole: int = 1, *, decimals: int = 1) -> str:
    """Return a number as a share of another one in percent, rounded like ``decimal_words``.

    >>> percent_words(1, 8), percent_words(1, 8, decimals=0), percent_words(0.125)
    ('12.5%', '13%', '12.5%')
    """
    above, below = number.as_integer_ratio()
    return f"{decimal_words(100 * above, below * whole, decimals=decimals)}%"


def _rounded(number: float, whole: int, decimals: int) -> int:
    """Return a part of a whole as a number of its last decimals: 43 for 17 of 4, with one decimal."""
    above, below = number.as_integer_ratio()
    rounded: int = (2 * abs(above) * 10**decimals + below * whole) // (2 * below * whole)
    return -rounded if above < 0 else rounded


def format_bytes(nbytes: float) -> str:
    """Return a number of bytes with one decimal, in the smallest binary unit that keeps it below 1024.

    Halves are rounded up. The unit is chosen after rounding: 1,048,575 bytes are ``1.0 MiB``, not
    ``1024.0 KiB``.

    >>> format_bytes(8 * 2**20), format_bytes(2**20 - 1), format_bytes(0)
    ('8.0 MiB', '1.0 MiB', '0.0 B')
    """
    return _in_units(nbytes, 1)


def bytes_apart(nbytes: int, limit: int) -> tuple[str, str]:
    """Return a number of bytes and a limit with as many decimals as tell them apart, exactly if need be.

    >>> bytes_apart(17 * 2**30, 16 * 2**30), bytes_apart(16_997_000_000, 63 * 2**28)
    (('17.0 GiB', '16.0 GiB'), ('15.83 GiB', '15.75 GiB'))
    >>> bytes_apart(2**34 + 1, 2**34), bytes_apart(2**34, 2**34)
    (('17,179,869,185 B', '17,179,869,184 B'), ('16.0 GiB', '16.0 GiB'))
    """
    for decimals in (1, 2, 3):
        texts = _in_units(nbytes, decimals), _in_units(limit, decimals)
        if texts[0] != texts[1]:
            return texts
    if nbytes == limit:
        return format_bytes(nbytes), format_bytes(limit)
    return f"{nbytes:,} B", f"{limit:,} B"


def shares_apart(nbytes: int, whole: int, limit: float) -> tuple[str, str]:
    """Return a share and its limit in percent with as many decimals, from two to six, as tell them apart.

    >>> shares_apart(1, 2, 0.02), shares_apart(200_004, 10_000_000, 0.02)
    (('50.00%', '2.00%'), ('2.00004%', '2.00000%'))
    """
    for decimals in range(2, 7):
        texts = percent_words(nbytes, whole, decimals=decimals), percent_words(limit, decimals=decimals)
        if texts[0] != texts[1]:
            return texts
    return percent_words(nbytes, whole, decimals=2), percent_words(limit, decimals=2)


def _in_units(nbytes: float, decimals: int) -> str:
    """Return a number of bytes with some decimals, in the smallest unit that keeps it below 1024."""
    largest = 1024 ** (len(_BINARY_UNITS) - 1)
    if abs(nbytes) >= _READABLE * largest:
        return f"{format_number(int(nbytes // largest))} {_BINARY_UNITS[-1]}"
    size, *larger = _BINARY_UNITS
    whole = 1
    for unit in larger:
        if abs(_rounded(nbytes, whole, decimals)) < 1024 * 10**decimals:
            break
        size, whole = unit, 1024 * whole
    return f"{decimal_words(nbytes, whole, decimals=decimals)} {size}"


def known_sum(numbers: Iterable[int | None]) -> int | None:
    """Return the sum of numbers; None if one of them is unknown."""
    known = list(numbers)
    return None if None in known else sum(filter(None, known))


def grouped(number: int) -> str:
    """Return an integer with commas: ``68,976,648,192``; a very large one as a power of ten."""
    return f"{number:,}" if abs(number) < _READABLE else format_number(number)


def parse_bytes(text: str) -> int:
    """Parse a size such as ``95GiB``, ``16 GB``, ``1e9`` or ``1024`` and return its number of bytes.

    Units are binary (``KiB``, ``MiB``, …) or decimal (``kB``, ``MB``, …), in upper or lower case. Without a
    unit, the number counts bytes. The computation is exact, and a fraction of a byte is dropped.

    Raises:
        ValueError: If the text is not a size, or the size is more than 2^63 - 1 bytes.

    >>> parse_bytes("1.5 GiB"), parse_bytes("16GB"), parse_bytes("1e9")
    (1610612736, 16000000000, 1000000000)
    """
    match = _SIZE.fullmatch(text.strip())
    unit = match["unit"] if match else "?"
    if unit in _PREFIXES:
        letter = unit.upper()
        raise ValueError(f"cannot be read: write {letter}B or {letter}iB instead of {unit}, got {text!r}")
    if match is None or unit.lower() not in _UNITS:
        raise ValueError(f"cannot be read: expected a size such as 95GiB, 16GB or 1e9, got {text!r}")
    fraction = match["fraction"] or ""
    number = int(match["whole"] + fraction) * _UNITS[unit.lower()]
    nbytes: int = number * 10 ** int(match["exponent"] or 0) // 10 ** len(fraction)
    if nbytes > LARGEST:
        raise ValueError(f"cannot be read: {format_bytes(nbytes)} is more than 2^63 - 1 bytes")
    return nbytes


def parse_bandwidth(text: str) -> int:
    """Parse a bandwidth such as ``6.25GB/s``, ``90 GiB/s`` or ``50GBps`` and return its bytes per second.

    Raises:
        ValueError: If the text is not a bandwidth in bytes, or it is less than a byte per second.

    >>> parse_bandwidth("6.25GB/s"), parse_bandwidth("1 GiB/s")
    (6250000000, 1073741824)
    """
    written = text.strip()
    ending = next((ending for ending in ("/s", "ps") if written.endswith(ending)), "")
    size = written.removesuffix(ending).rstrip()
    if not ending or not size[-1:].isalpha():
        raise ValueError(f"cannot be read: expected bytes per second, such as 6.25GB/s, got {text!r}")
    if size.endswith(("b", "bit")):
        raise ValueError(f"is not in bytes: write B for bytes of 8 bits, such as 6.25GB/s, got {text!r}")
    nbytes = parse_bytes(size)
    if not nbytes:
        raise ValueError(f"is less than a byte per second, got {text!r}")
    return nbytes


_TIMES = ((1, "s"), (1000, "ms"), (1_000_000, "µs"))


def least_seconds_words(seconds: float) -> str:
    """Return a lower bound of a time: ``at least 16.1 ms``, rounded down to one decimal.

    >>> least_seconds_words(0.01616), least_seconds_words(2.0)
    ('at least 16.1 ms', 'at least 2.0 s')
    """
    factor, unit = next(((by, unit) for by, unit in _TIMES if seconds * by >= 1), _TIMES[-1])
    number = seconds * factor
    shown = f"{math.floor(number * 10) / 10:,.1f}" if abs(number) < _READABLE else f"{number:.1e}"
    return f"at least {shown} {unit}"


def format_number(number: int) -> str:
    """Return an integer as text; with 19 digits or more, in scientific notation.

    >>> format_number(65536), format_number(8 * 10**300)
    ('65536', '8.0e+300')
    """
    if abs(number) < _READABLE:
        return str(number)
    from decimal import Context, Decimal

    # str(int) fails above 4,300 digits by default, and float() above 308.
    return f"{Context(prec=2).plus(Decimal(number)):.1e}"


def format_count(number: int) -> str:
    """Return a number with one decimal in the largest decimal unit, rounded down: at least so many.

    >>> format_count(1_699_999_999), format_count(999)
    ('1.6 G', '999')
    """
    power = min((len(str(number)) - 1) // 3, len(_DECIMAL_UNITS) - 1) if number < _READABLE else 0
    if not power:
        return format_number(number)
    tenths = number // (1000**power // 10)
    return f"{tenths // 10}.{tenths % 10} {_DECIMAL_UNITS[power]}"


def counted(count: int, singular: str, plural: str) -> str:
    """Return a count with its noun: ``1 axis``, ``2 axes``."""
    return f"{count} {singular if count == 1 else plural}"


def format_device_ids(ids: Sequence[int]) -> str:
    """Return device ids in ascending order, with ranges abbreviated.

    Three or more consecutive ids become ``0-7``. Five or more ids with a common stride become ``0-62:2``.
    All others are listed.

    >>> format_device_ids([3, 2, 1, 0]), format_device_ids([0, 2, 4, 6]), format_device_ids(range(0, 64, 2))
    ('0-3', '0,2,4,6', '0-62:2')
    """
    if len(ids) == 1:  # as in most cells of a picture
        return str(ids[0])
    ordered = sorted(ids)
    pieces: list[str] = []
    start = 0
    while start < len(ordered):
        stop = _run_end(ordered, start)
        length = stop - start
        stride = ordered[start + 1] - ordered[start] if length > 1 else 0
        if stride == 1 and length >= 3:
            pieces.append(f"{ordered[start]}-{ordered[stop - 1]}")
        elif stride > 1 and length >= 5:
            pieces.append(f"{ordered[start]}-{ordered[stop - 1]}:{stride}")
        else:
            # Only the first id: the next one may start a longer range.
            stop = start + 1
            pieces.append(str(ordered[start]))
        start = stop
    return ",".join(pieces)


def _run_end(ordered: Sequence[int], start: int) -> int:
    """Return the end (exclusive) of the longest arithmetic progression from ``start``."""
    stop = start + 1
    while stop < len(ordered) and (
        stop == start + 1 or ordered[stop] - ordered[stop - 1] == ordered[start + 1] - ordered[start]
    ):
        stop += 1
    return stop


def format_devices(platform: str | None, ids: Sequence[int]) -> str:
    """Return devices as text: ``CPU 0-3``, or ``device 0-3`` if the platform is None.

    >>> format_devices("gpu", [0, 1, 2, 3]), format_devices(None, [0, 2])
    ('GPU 0-3', 'device 0,2')
    """
    return f"{platform.upper() if platform else 'device'} {format_device_ids(ids)}"


def time_words(time: float, *, has_date: bool = False) -> str:
    """Return a moment in the time zone of this machine: ``12:03:07``, or ``2026-11-26 12:03:07``.

    Args:
        time: Seconds since 1970-01-01 UTC.
        has_date: Whether to add the date.
    """
    return strftime("%Y-%m-%d %H:%M:%S" if has_date else "%H:%M:%S", localtime(time))


def duration_words(seconds: float) -> str:
    """Return a duration in its two largest units.

    >>> duration_words(33_161), duration_words(59.4), duration_words(3600)
    ('9 h 12 min', '59 s', '1 h')
    """
    whole = math.floor(seconds + 0.5)
    units = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    parts = []
    for size, unit in units:
        if whole >= size:
            parts.append(f"{whole // size} {unit}")
            whole %= size
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"


def seconds_words(seconds: float) -> str:
    """Return a short duration.

    >>> seconds_words(0.0123), seconds_words(3.44)
    ('12 ms', '3.4 s')
    """
    return f"{decimal_words(seconds * 1000, decimals=0)} ms" if seconds < 1 else f"{decimal_words(seconds)} s"


def ordinal_words(number: int) -> str:
    """Return an ordinal number.

    >>> [ordinal_words(number) for number in (1, 2, 3, 4, 11, 22, 113)]
    ['1st', '2nd', '3rd', '4th', '11th', '22nd', '113th']
    """
    suffixes = {} if number // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}
    return f"{grouped(number)}{suffixes.get(number % 10, 'th')}"


_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(s|min|h)?")
_SECONDS = {None: 1, "s": 1, "min": 60, "h": 3600}


def as_seconds(given: float | str) -> float:
    """Return a time in seconds: a number, or a text such as ``60s``, ``10min`` or ``1.5h``.

    Raises:
        ValueError: If it is neither, or not above 0.

    >>> as_seconds("10min"), as_seconds(90)
    (600.0, 90.0)
    """
    match = _DURATION.fullmatch(str(given).strip()) if not isinstance(given, bool) else None
    seconds = 0.0 if match is None else float(match[1]) * _SECONDS[match[2]]
    if not seconds:
        raise ValueError(f"must be a time such as 60s or 10min, got {given!r}")
    return seconds
