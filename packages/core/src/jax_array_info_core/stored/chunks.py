"""Programs that read Orbax checkpoints with TensorStore, and the elements of arrays that they return."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FileFormatError
from ..text import printable
from . import ocdbt
from .array_files import element_dtype
from .elements import Box, Order, TooLargeError, blocks, lengths_of

_SECONDS = 60
"""Longest time in which a box is read."""
_MAX_REASON = 300
"""Maximum number of characters of an error of TensorStore that are shown."""


def _reason_of(error: str) -> str:
    """Return the first line of an error of TensorStore, without places in its source code."""
    return printable(error.partition("\n")[0].partition(" [source locations=")[0][:_MAX_REASON])


def require_tensorstore() -> None:
    """Raise FileFormatError if TensorStore is not installed."""
    if importlib.util.find_spec("tensorstore") is None:
        install = "pip install 'jax-array-info[checkpoint]'"
        raise FileFormatError(f"reading it needs tensorstore, which is not installed: {install}")


class Checkpoint:
    """An Orbax item. A program reads it, which may crash and can be killed."""

    def __init__(self, directory: Path, is_database: bool) -> None:
        """Start no program yet.

        Args:
            directory: Directory of the item.
            is_database: Whether the arrays are in a database.
        """
        # -P: the folder of the program has modules with names of libraries.
        self._command = [sys.executable, "-P", ocdbt.__file__, os.path.abspath(directory), str(is_database)]
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, seconds: float, what: str, **arguments: Any) -> tuple[bytes, str]:
        """Return bytes that the program reads, with their dtype.

        Args:
            seconds: Longest time to wait for them.
            what: Method of ``ocdbt.Item``.
            **arguments: Its arguments.

        Raises:
            TooLargeError: If they exceed a limit.
            FileFormatError: If the program cannot read them.
        """
        if self._process is None:
            require_tensorstore()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        is_late = threading.Event()
        process = self._process

        def kill() -> None:
            is_late.set()
            process.kill()

        timer = threading.Timer(seconds, kill)
        timer.start()
        try:
            answer, data = self._answer(process, {"read": what, **arguments})
        finally:
            timer.cancel()
        if is_late.is_set():
            raise FileFormatError(f"reading it takes longer than {seconds} seconds")
        if "limit" in answer:
            raise TooLargeError(answer["limit"])
        if "error" in answer:
            raise FileFormatError(f"tensorstore cannot read it: {_reason_of(answer['error'])}")
        return data, answer["dtype"]

    @staticmethod
    def _answer(process: subprocess.Popen[bytes], request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Return the answer of the program, with the bytes that follow it."""
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            answer: dict[str, Any] = json.loads(process.stdout.readline() or "{}")
            data = process.stdout.read(answer.get("nbytes", 0))
            if answer and len(data) == answer.get("nbytes", 0):
                return answer, data
        return {"error": "it crashed"}, b""

    def close(self) -> None:
        """End the program."""
        if self._process is not None:
            self._process.kill()
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate()
            self._process = None


class Chunked:
    """The elements of an array in chunks."""

    def __init__(
        self, checkpoint: Checkpoint, *, key: str, driver: str, shape: tuple[int, ...], dtype_name: str
    ) -> None:
        """Read from a checkpoint.

        Args:
            checkpoint: The checkpoint.
            key: Path of the array in it.
            driver: Its version of Zarr, as TensorStore names it.
            shape: Shape of the array.
            dtype_name: Name of the dtype.
        """
        self.dtype = element_dtype(dtype_name)
        self._checkpoint, self._shape = checkpoint, shape
        self._array = {"key": key, "driver": driver, "shape": shape}

    def order(self) -> Order:
        """Return boxes within chunks."""
        chunk = self._read(np.dtype(np.int64), None)
        return 1, blocks(self._shape, [max(int(size), 1) for size in chunk])

    def read(self, box: Box) -> np.ndarray[Any, Any]:
        """Return the elements in a box."""
        bounds = [[part.start, part.stop] for part in box]
        return self._read(self.dtype, bounds).reshape(lengths_of(box))

    def _read(self, dtype: np.dtype[Any], box: list[list[int]] | None) -> np.ndarray[Any, Any]:
        data, found = self._checkpoint.read(_SECONDS, "elements", box=box, **self._array)
        if found != str(dtype):
            raise FileFormatError(printable(f"the dtype was {dtype}, and is now {found}"))
        return np.frombuffer(data, dtype)

    def close(self) -> None:
        """Close nothing: the arrays share a program."""
