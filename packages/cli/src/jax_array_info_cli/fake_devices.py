"""Environment variables that make JAX start on fake CPU devices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_COUNT_FLAG = "--xla_force_host_platform_device_count"


def fake_device_environment(environment: Mapping[str, str], devices: int) -> dict[str, str]:
    """Return an environment in which JAX starts on so many CPU devices.

    The platform becomes ``cpu`` whatever was chosen before. Of ``XLA_FLAGS`` only the device count is
    replaced; where it names a file of flags, as XLA allows, they are taken from there.
    ``JAX_NUM_CPU_DEVICES``, which would contradict it, goes.
    """
    flags = environment.get("XLA_FLAGS", "")
    if flags.strip() and not flags.lstrip().startswith("-"):
        flags = Path(flags.strip()).read_text()
    others = re.sub(rf"{_COUNT_FLAG}(=\S*)?(\s|$)", " ", flags).split()
    changed = {
        **environment,
        "XLA_FLAGS": " ".join([*others, f"{_COUNT_FLAG}={devices}"]),
        "JAX_PLATFORMS": "cpu",
    }
    for contradicting in ("JAX_NUM_CPU_DEVICES", "JAX_PLATFORM_NAME"):
        changed.pop(contradicting, None)
    return changed
