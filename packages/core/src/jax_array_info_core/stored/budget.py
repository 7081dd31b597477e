"""The budget of a file: what reading it may take, whatever it claims to contain."""

from __future__ import annotations

from typing import Literal

from ..errors import FileFormatError

Unit = Literal["bytes", "values", "axes", "arrays", "devices"]

LIMITS: dict[Unit, int] = {
    "bytes": 10**8,
    "values": 7 * 10**6,
    "axes": 2**16,
    "arrays": 2**18,
    "devices": 2**22,
}
"""Maximum number of bytes that are read, in all files of a checkpoint together, of values that Python makes
of them, of axes of different arrays and their meshes, of arrays, and of devices in all meshes together. They
take at most 1 GiB of memory and 20 s."""


class Budget:
    """What the files of one tree may take. Readers spend from it before they read or build something."""

    def __init__(self, nbytes: int = LIMITS["bytes"]) -> None:
        """Start to read.

        Args:
            nbytes: Maximum number of bytes.
        """
        self._limits = {**LIMITS, "bytes": nbytes}
        self._spent = dict.fromkeys(LIMITS, 0)

    def spend(self, unit: Unit, amount: int) -> None:
        """Take more of something.

        Raises:
            FileFormatError: If it is more than the limit, together with what was taken before.
        """
        self._spent[unit] += amount
        if self._spent[unit] > self._limits[unit]:
            raise FileFormatError(f"{self._spent[unit]:,} {unit} exceed the limit of {self._limits[unit]:,}")
