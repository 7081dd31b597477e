"""Files: what their names say, written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from pathlib import Path
from typing import BinaryIO

from jax_array_info_core import Report, UnsupportedValueError

from ..pictures.palette import ColorMap
from ..render import to_text
from ..svg.figure import paragraph, svg
from .document import figure_of, html_document, parts_html, parts_of, title_of

SUFFIXES = (".svg", ".html", ".png", ".txt")
_PNG_ZOOM = 2
_RANDOM_NBYTES = 8
"""In the name of a file that is being written."""


def save(report: Report, path: Path, *, width: int, scale: float, color_map: ColorMap | None) -> None:
    """Write a report to a file, as what the suffix of its name says."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UnsupportedValueError(
            f"{str(path)!r} does not say what to write: its name must end with {', '.join(SUFFIXES)}"
        )
    if suffix == ".txt":
        write_whole(path, f"{to_text(report, width=width)}\n".encode())
        return
    parts = parts_of(report, width=width, scale=scale, color_map=color_map, has_pointer=suffix != ".png")
    match suffix:
        case ".svg":
            data = svg(figure_of(parts, width), title=title_of(report)).encode()
        case ".html":
            data = html_document([parts_html(parts, width)], title_of(report)).encode()
        case _:
            data = png_of(svg(figure_of(parts, width), color="#000"))
    write_whole(path, data)


def png_of(document: str) -> bytes:
    """Return an SVG document as a PNG, in twice as many pixels, on white.

    Raises:
        UnsupportedValueError: (a ValueError) what draws it is not installed, or no font is.
    """
    try:
        import resvg_py
    except ImportError:
        raise UnsupportedValueError(
            "a PNG is made by resvg-py, which is not installed: pip install 'jax-array-info[png]',"
            " or save a .svg"
        ) from None

    def drawn(document: str) -> bytes:
        return bytes(resvg_py.svg_to_bytes(svg_string=document, zoom=_PNG_ZOOM, background="#ffffff"))

    # Without a font, text is left out and nothing says so.
    if drawn(svg(paragraph(["M"]))) == drawn(svg(paragraph([" "]))):
        raise UnsupportedValueError(
            "a PNG needs a font for its text, and none is installed here: install one, such as DejaVu Sans"
            " Mono (Debian: apt install fonts-dejavu-core), or save a .svg"
        )
    return drawn(document)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is whole, or what was there before: first beside it, then renamed.

    Links are followed. What is open already, such as ``/dev/stdout``, is written on, and what is no file is
    written to as it is.

    Raises:
        OSError: it cannot be written; its ``filename`` is this path.
    """
    try:
        descriptor = _descriptor_of(path)
        if descriptor is not None:
            with open(os.dup(descriptor), "wb") as file:
                file.write(data)
            return
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        _remove_abandoned(target.parent)
        part = _new_part(target.parent)
        unfinished = Path(part.name)
        try:
            with part:
                part.write(data)
                part.flush()
                if target.exists():
                    unfinished.chmod(target.stat().st_mode & 0o777)
                unfinished.replace(target)
        finally:
            with contextlib.suppress(OSError):
                unfinished.unlink()
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _new_part(folder: Path) -> BinaryIO:
    """Return a new file, locked as long as it is open, so that others know it is being written."""
    while True:
        file = open(folder / f".jai-{secrets.token_hex(_RANDOM_NBYTES)}.part", "xb")  # noqa: SIM115
        # Some file systems have no locks. There, others cannot lock it either, and leave it alone.
        with contextlib.suppress(ImportError, OSError):
            _lock(file)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # taken for abandoned before it was locked


def _remove_abandoned(folder: Path) -> None:
    """Remove the unfinished files of processes that were killed: those that are not locked."""
    for path in folder.glob(f".jai-{'[0-9a-f]' * 2 * _RANDOM_NBYTES}.part"):
        # It may be finished by now, or not ours to remove.
        with contextlib.suppress(ImportError, OSError), open(path, "r+b") as file:
            _lock(file, wait=False)
            path.unlink()


def _lock(file: BinaryIO, *, wait: bool = True) -> None:
    """Lock a file until it is closed; where a process has it locked, wait or raise BlockingIOError."""
    import fcntl

    fcntl.flock(file.fileno(), fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def require_place(path: Path) -> None:
    """Raise the OSError that ``write_whole`` would, as far as it is known before.

    Raises:
        OSError: the path is a folder, or its folder is missing or cannot be written to.
    """
    target = os.path.realpath(path)
    if os.path.isdir(target):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if _descriptor_of(path) is not None or (os.path.exists(target) and not os.path.isfile(target)):
        return  # written to as it is
    folder = os.path.dirname(target)
    code = None if os.access(folder, os.W_OK) else errno.EACCES if os.path.isdir(folder) else errno.ENOENT
    if code is not None:
        raise OSError(code, os.strerror(code), str(path))


def _descriptor_of(path: Path) -> int | None:
    """Return the number of the open file that a path names, such as 1 for ``/dev/stdout``; else None.

    It is no file to replace: a pipe has no name, and a file that a shell appends to goes on.
    """
    known = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
    name = os.path.abspath(path)
    for _ in range(40):  # as many links as Linux follows
        if name in known:
            return known[name]
        if found := re.fullmatch(rf"/(?:dev|proc/(?:self|thread-self|{os.getpid()}))/fd/(\d+)", name):
            return int(found[1])
        if not os.path.islink(name):
            return None
        name = os.path.normpath(os.path.join(os.path.dirname(name), os.readlink(name)))
    return None
