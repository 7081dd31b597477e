"""Programs for several TPU slices, and what they send from slice to slice.

XLA compiles one program for each slice, in which replica groups have devices of that slice only. What crosses
slices is a ``send`` and a ``recv`` of megascale, the runtime of the data center network. Both have the kind
of the collective and the device ids of its groups. Seen in libtpu 0.0.50.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..layouts.layout import MAX_DEVICES
from .module import Instruction
from .replica_groups import NO_DEVICE, filled, read_lists

_HANDLER = "_xla_host_transfer_handler_name", "xla_megascale_runtime"
_ONE_TO_ONE = "one-to-one"
_FIRST_DEVICE = 100_000
"""Device ids of a slice begin with its number times this."""
_NAME = re.compile(r"[a-z]+([-_][a-z]+)*")
_PRODUCT = re.compile(r"\{([\d,:]+)\}x\{([\d,:]+)\}")
"""Numbers of slices, and of the devices in each."""


@dataclass(frozen=True, slots=True, eq=False)
class ProgramSlices:
    """The devices of a program for several slices, each as a position in ``mesh.devices.flat``."""

    members: NDArray[np.int64]
    """Devices of each slice, of shape ``(slices, devices of a slice)``, in the order of the mesh."""

    by_id: dict[int, int]
    """Devices by JAX's id."""

    @classmethod
    def of(cls, ids: NDArray[np.int64], slices: NDArray[np.int64]) -> ProgramSlices:
        """Return the slices of devices.

        Args:
            ids: JAX's id of each device, in the order of the mesh.
            slices: Slice of each device.

        Raises:
            ValueError: If the slices have different numbers of devices.
        """
        members = [np.flatnonzero(slices == number) for number in np.unique(slices)]
        return cls(np.stack(members), dict(zip(ids.tolist(), itertools.count())))

    @property
    def device_count(self) -> int:
        """Number of devices in all slices."""
        return self.members.size

    def everywhere(self, groups: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return groups or pairs of devices of one slice as those of all slices.

        Args:
            groups: Places in a slice, of shape ``(groups, size)``; -1 where a group is smaller.
        """
        found = np.where(groups == NO_DEVICE, NO_DEVICE, self.members[:, groups])
        return found.reshape(-1, groups.shape[1])

    def positions(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the devices with some ids; -1 remains.

        Raises:
            ValueError: If there is no device with such an id.
        """
        try:
            found = [NO_DEVICE if one == NO_DEVICE else self.by_id[one] for one in ids.ravel().tolist()]
        except KeyError as error:
            raise ValueError(f"no device has the id {error}") from error
        return np.array(found, np.int64).reshape(ids.shape)


def is_between_slices(instruction: Instruction) -> bool:
    """Return whether a send or a recv, or its end, is a transfer between slices."""
    name, handler = _HANDLER
    is_end = instruction.opcode.startswith(("send", "recv"))
    return is_end and instruction.frontend_attributes.get(name) == handler


def rendezvous(instruction: Instruction) -> str | None:
    """Return the name that a send and a recv have in common; None for others."""
    if not is_between_slices(instruction):
        return None
    return instruction.frontend_attributes.get("_xla_host_transfer_rendezvous")


def kind_between_slices(send: Instruction) -> str:
    """Return the collective that a send between slices starts, such as ``all-reduce``.

    It is known from the type of the transfer, or else from the name of the rendezvous, which has that of the
    operation in XLA or in JAX: ``all-reduce.1_0``.
    """
    fields = send.frontend_attributes
    text = fields.get("_xla_megascale_transfer_type") or rendezvous(send) or ""
    name = _NAME.match(text.lower())
    kind = name[0].replace("_", "-") if name else ""
    return "collective-permute" if kind == _ONE_TO_ONE else kind


def target_ids(send: Instruction) -> NDArray[np.int64]:
    """Return the ids of the devices of each group of a send between slices, or of each of its pairs.

    Returns:
        Device ids of shape ``(groups, size)``. Smaller groups end with -1.

    Raises:
        ValueError: If the text is not a notation of groups.
    """
    text = send.frontend_attributes.get("_xla_megascale_target", "").replace("->", ",")
    if (product := _PRODUCT.fullmatch(text)) is None:
        lists = read_lists(text)
    else:
        slices, within = map(_numbers, product.groups())
        if len(slices) * len(within) > MAX_DEVICES:
            raise ValueError(f"more than {MAX_DEVICES} devices in {text!r}")
        lists = [[number * _FIRST_DEVICE + one for number in slices] for one in within]
    if not lists or not all(lists):
        raise ValueError(f"no devices in {text!r}")
    return filled(lists)


def _numbers(text: str) -> list[int]:
    """Return numbers such as ``1,2`` or ``0:3``, a range with its end."""
    ends = [[int(end) for end in part.split(":")] for part in text.split(",")]
    return [number for first, *last in ends for number in range(first, max(last, default=first) + 1)]
