"""The start of JAX on simulated CPU devices."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path

import click

MAX_DEVICES = 2048
_COUNT_FLAG = "--xla_force_host_platform_device_count"
_CONTRADICTING = ("JAX_NUM_CPU_DEVICES", "JAX_PLATFORM_NAME")
_SIMULATED = {("JAX_PLATFORMS", "cpu"), ("JAX_PLATFORM_NAME", "cpu")}


def simulated_device_environment(environment: Mapping[str, str], devices: int) -> dict[str, str]:
    """Return an environment in which JAX starts with this many CPU devices.

    The platform is always ``cpu``. Other flags in ``XLA_FLAGS`` are kept; if it names a file of flags, as
    XLA allows, they are read from that file, or the command ends with exit code 1. ``JAX_NUM_CPU_DEVICES``
    would contradict the flag and is removed.
    """
    flags = environment.get("XLA_FLAGS", "")
    if flags.strip() and not flags.lstrip().startswith("-"):
        try:
            flags = Path(flags.strip()).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise click.ClickException(f"XLA_FLAGS names a file that cannot be read: {error}") from error
    others = re.sub(rf"{_COUNT_FLAG}(=\S*)?(\s|$)", " ", flags).split()
    return {
        **{name: value for name, value in environment.items() if name not in _CONTRADICTING},
        "XLA_FLAGS": " ".join([*others, f"{_COUNT_FLAG}={devices}"]),
        "JAX_PLATFORMS": "cpu",
    }


def replaced_by_simulation(environment: Mapping[str, str]) -> list[str]:
    """Return the variables that choose other devices or other processes than the simulated ones."""
    from jax_array_info_core.compat.processes import LAUNCHER_VARIABLES

    names = ("JAX_PLATFORMS", "JAX_PLATFORM_NAME", *LAUNCHER_VARIABLES)
    variables = [(name, environment.get(name, "")) for name in names]
    return [f"{name}={value}" for name, value in variables if value and (name, value) not in _SIMULATED]


def require_jax() -> None:
    """End the command with one line if JAX is not installed."""
    with contextlib.suppress(ImportError):
        if importlib.util.find_spec("jax") and importlib.util.find_spec("jaxlib"):
            return
    raise click.ClickException("this command needs JAX, which is not installed: pip install jax")


def use_simulated_devices(devices: int) -> None:
    """Make JAX start with this many CPU devices in this process. Call it before JAX is imported."""
    require_jax()
    environment = simulated_device_environment(os.environ, devices)
    os.environ.clear()
    os.environ.update(environment)
