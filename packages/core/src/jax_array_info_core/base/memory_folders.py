"""Folders in memory, which are removed also after a signal has ended the process that made them."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_ROOT = "/dev/shm"  # noqa: S108
"""The folder of files in memory, on Linux."""
_PREFIX = "jax-array-info-{}-"


@contextlib.contextmanager
def memory_folder() -> Iterator[Path | None]:
    """Return a context with a new folder in memory, which ends with it; with None where there is none."""
    if not os.access(_ROOT, os.W_OK):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix=_PREFIX.format(os.getsid(0)), dir=_ROOT) as folder:
        yield Path(folder)


def remove_memory_folders(session: int) -> None:
    """Remove the folders of the processes of a session that have ended.

    Args:
        session: The number of the session.
    """
    with contextlib.suppress(OSError):
        for folder in Path(_ROOT).glob(f"{_PREFIX.format(session)}*"):
            shutil.rmtree(folder, ignore_errors=True)
