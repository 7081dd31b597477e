"""Arguments and outputs in host memory, where XLA's figures count them as device memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..reports.program import Donation, ProgramValue
from ..reports.program_memory import ProgramMemory


def with_host_apart(
    memory: ProgramMemory,
    arguments: Iterable[ProgramValue],
    outputs: Iterable[ProgramValue],
    donations: Iterable[Donation],
) -> ProgramMemory:
    """Return the memory of a program with the bytes of arguments and outputs in host memory apart.

    XLA tells them apart on TPU and GPU. On CPU, its figures of host memory are 0, and those of the device
    include them.

    Args:
        memory: XLA's figures.
        arguments: The arguments.
        outputs: The outputs.
        donations: The donated arguments.
    """
    kept = [value for value in arguments if value.is_in_host_memory and not value.is_pruned]
    paths = {value.path for value in kept}
    hosted = {
        "argument_nbytes": sum(value.nbytes or 0 for value in kept),
        "output_nbytes": sum(value.nbytes or 0 for value in outputs if value.is_in_host_memory),
        "alias_nbytes": sum(one.nbytes for one in donations if one.output is not None and one.path in paths),
    }
    moved: dict[str, Any] = {}
    for name, nbytes in hosted.items():
        on_device = getattr(memory, name)
        if nbytes and on_device is not None and not getattr(memory, f"host_{name}"):
            part = min(nbytes, on_device)
            moved |= {name: on_device - part, f"host_{name}": part}
    return replace(memory, **moved)
