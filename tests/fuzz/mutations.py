"""Changes of files that a random number generator chooses, within the layers of their formats."""

import gzip
import io
import json
import re
import struct
import zipfile
import zlib

NUMBERS = (b"0", b"-1", b"1", b"255", b"65536", b"2147483648", b"9223372036854775808", b"1" + b"0" * 30)
NUMBERS += (b"-9223372036854775809", b"NaN", b"Infinity", b"1e308", b"0.5", b"9" * 400, b"9" * 5000, b"True")
TOKENS = (*rb"""[ ] { } ( ) ' " \ / , * ? % <= = :""".split(), b"", b" ", b"\n", b"\0", b"x" * 3000)
TOKENS += (b"\x1b[31m", b"\xff\xfe", b"\xe2\x80\xae", b"\xed\xa0\x80", b"\xc3")
WORDS = ("", "\x1b[31m", "a\nb", "\u202e", "\ud800", "[b]x[/b]", "<script>", "x" * 3000, "a/b", "'", "\\")
WORDS += ("0", "`", "unknown", "NamedSharding", "float32", "int4", "ä" * 100, "*" * 20, "None")
VALUES = (None, True, False, 0, 1, -1, 2**20, 2**29, 2**31, 2**63, 10**30, 0.5, 1e300)
VALUES += ([], {}, [0], [[]], [None])
RAW = ("[" * 1000 + "]" * 1000, '{"a":' * 1000 + "1" + "}" * 1000, "[" * 10**5, "9" * 5000, "NaN", "1e999")
RAW += (
    "-Infinity",
    "[" + "0," * 3000 + "0]",
    '"' + "x" * 50_000 + '"',
    "[" + "[1]," * 999 + "[1]]",
    "\\u0000",
)
_WORD = rb"[<>|%]?[A-Za-z_][\w.]*"
_HOLE = "\0hole\0"
_LARGEST = 1 << 17
"""Bytes from which on nothing is repeated."""


def mutated(files, random, others):
    """Return the files of an input, by name, with a few changes in one of them.

    Args:
        files: Content of each file; the first one, or its folder, is read.
        random: The generator.
        others: Contents of which parts may be taken.
    """
    files = dict(files)
    name = random.choice(list(files))
    if name != next(iter(files)) and random.random() < 0.1:
        if random.random() < 0.5:
            del files[name]
        else:
            files[name] = files[random.choice(list(files))]
        return files
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        files[name] = _changed(files[name], random, others)
    return files


def _changed(data, random, others):
    for layer in (_gzip, _zip, _npy, _safetensors):
        found = layer(data, random) if random.random() < 0.8 else None
        if found is not None:
            inner, wrapped = found
            return wrapped(_changed(inner, random, others))
    if data[:1] in b"{[" and random.random() < 0.7:
        try:
            return _changed_json(json.loads(data), random)
        except (ValueError, RecursionError):
            pass
    return random.choice(_BYTES)(data, random, others)


def _gzip(data, random):
    try:
        return gzip.decompress(data), lambda inner: gzip.compress(inner, mtime=0)
    except (OSError, EOFError, zlib.error):
        return None


def _zip(data, random):
    if not data.startswith(b"PK\3\4"):
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    except Exception:
        return None  # an earlier change damaged it
    if not members:
        return None
    chosen = random.choice(list(members))
    how = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))

    def wrapped(inner):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", how) as archive:
            for name, content in members.items():
                archive.writestr(zipfile.ZipInfo(name), inner if name == chosen else content, how)
        return file.getvalue()

    return members[chosen], wrapped


def _npy(data, random):
    """Divide an array of NumPy into its header and the rest; the length then agrees with the header."""
    if not data.startswith(b"\x93NUMPY") or len(data) < 10:
        return None
    end = 10 + struct.unpack("<H", data[8:10])[0]
    return data[10:end], lambda inner: data[:8] + struct.pack("<H", len(inner) & 65535) + inner + data[end:]


def _safetensors(data, random):
    if data[8:9] != b"{" or (length := struct.unpack("<Q", data[:8])[0]) > len(data) - 8:
        return None
    return data[8 : 8 + length], lambda inner: struct.pack("<Q", len(inner)) + inner + data[8 + length :]


def _changed_json(value, random):
    """Return JSON with another value, key or length at a random place."""
    place, at = [value], 0
    while isinstance(place[at], dict | list) and place[at] and random.random() < 0.9:
        place = place[at]
        at = random.choice(list(place)) if isinstance(place, dict) else random.randrange(len(place))
    old = place[at]
    raw = random.choice(RAW)
    match random.randrange(9):
        case 0:
            place[at] = random.choice(VALUES)
        case 1:
            place[at] = random.choice(WORDS)
        case 2:
            place[at] = _HOLE
        case 3:
            place[at] = random.choice(list(place.values()) if isinstance(place, dict) else place)
        case 4:
            place[at] = [old] * random.choice((1, 2, 3, 100))
        case 5 if isinstance(place, dict):
            place[random.choice((*WORDS, *map(str, place)))] = place.pop(at) if random.random() < 0.5 else old
        case 5 | 6 if len(place) > 1:
            del place[at]
        case 7 if isinstance(old, int):
            place[at] = random.choice((old + 1, old - 1, -old, old * 2, old * 2**20, float(old)))
        case 7 if isinstance(old, str):
            place[at] = old + random.choice(WORDS) if random.random() < 0.5 else old[1:]
        case _ if isinstance(place, list):
            place.insert(at, old)
    return json.dumps(value).replace(json.dumps(_HOLE), raw).encode()


def _span(data, random):
    start = random.randrange(len(data) + 1)
    return start, min(len(data), start + random.choice((1, 4, 30, 300, 5000)))


def _flip(data, random, others):
    data = bytearray(data)
    for _ in range(random.choice((1, 1, 8)) if data else 0):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data)


def _number(data, random, others):
    """Replace a number with an extreme or a near one."""

    def other(old):
        return random.choice((*NUMBERS, b"%d" % (int(old[:20]) + 1), b"%d" % (int(old[:20]) - 1), old * 2))

    return _replaced(data, rb"-?\d+", other, random)


def _word(data, random, others):
    """Replace a word with one of another input."""
    words = re.findall(_WORD, random.choice(others)[:_LARGEST]) or [b""]
    return _replaced(data, _WORD, lambda _: random.choice(words), random)


def _replaced(data, pattern, other, random):
    found = list(re.finditer(pattern, data[:_LARGEST]))
    if not found:
        return _flip(data, random, None)
    chosen = random.choice(found)
    return data[: chosen.start()] + other(chosen[0]) + data[chosen.end() :]


def _cut(data, random, others):
    return data[: random.randrange(len(data) + 1)]


def _delete(data, random, others):
    start, end = _span(data, random)
    return data[:start] + data[end:]


def _repeat(data, random, others):
    start, end = _span(data, random)
    count = min(random.choice((2, 3, 30, 1000, 30_000)), _LARGEST // (end - start + 1))
    return data[:start] + data[start:end] * count + data[end:]


def _insert(data, random, others):
    start, end = _span(data, random)
    return (
        data[:start]
        + random.choice(TOKENS) * random.choice((1, 1, 2, 20))
        + data[random.choice((start, end)) :]
    )


def _nest(data, random, others):
    start, end = _span(data, random)
    left, right = random.choice((b"()", b"[]", b"{}", b"''", b'""', b"  ", b"**", b"\n\n", b"\\n")), b""
    left, right = left[:1], left[1:]
    count = random.choice((1, 2, 100, 20_000))
    return data[:start] + left * count + data[start:end] + right * count + data[end:]


def _splice(data, random, others):
    other = random.choice(others)
    start, end = _span(other, random)
    at, until = _span(data, random)
    return data[:at] + other[start:end] + data[random.choice((at, until)) :]


def _overwrite(data, random, others):
    """Replace bytes with a length or an offset of another size."""
    if len(data) < 9:
        return _flip(data, random, others)
    at = random.randrange(len(data) - 8)
    width, number = random.choice((1, 2, 4, 8)), random.choice((0, 1, 127, 255, 2**31, 2**63, 2**64 - 1))
    return data[:at] + (number % 2 ** (8 * width)).to_bytes(width, "little") + data[at + width :]


_BYTES = (_flip, _number, _number, _word, _word, _cut, _delete, _repeat, _insert, _nest, _splice, _overwrite)
