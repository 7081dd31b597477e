"""What keeps the programs of pages alive: when the build ends, or stops running blocks, they end too."""

from __future__ import annotations

import os
import sys
import threading
from types import TracebackType

from .environment import HOOKS

_uncut: set[Lifeline] = set()
_lock = threading.Lock()
_is_stopped = False


class StoppedError(Exception):
    """No program is started any more."""


class Lifeline:
    """What a program is started with: it ends when this does, and all that it has started with it.

    Attributes:
        words: They stand before those of the program.
        descriptors: They are passed to it.
    """

    def __init__(self) -> None:
        """Hold it, from now on until it is cut or this process ends.

        Raises:
            StoppedError: ``stop`` was called.
        """
        ours, self._held = os.pipe()
        self.words = [sys.executable, "-P", str(HOOKS / "guard.py"), str(ours)]
        self.descriptors = (ours,)
        with _lock:
            _uncut.add(self)
        if _is_stopped:
            self.cut()
            raise StoppedError

    def __enter__(self) -> Lifeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()

    def cut(self) -> None:
        """End the program, unless it has ended."""
        with _lock:
            if self in _uncut:
                _uncut.remove(self)
                for descriptor in (self._held, *self.descriptors):
                    os.close(descriptor)


def stop() -> None:
    """End all programs, and start none until ``begin`` is called."""
    global _is_stopped
    _is_stopped = True
    for line in tuple(_uncut):
        line.cut()


def begin() -> None:
    """Let programs start."""
    global _is_stopped
    _is_stopped = False
