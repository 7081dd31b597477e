"""Where blocks run: the variables that every process of a page has, and what its results depend on."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

HOOKS = Path(__file__).parent
ROOT = HOOKS.parent
PACKAGES = ("jax_array_info_core", "jax_array_info", "jax_array_info_cli")
VERSIONS = ("jax", "jaxlib", "rich", "click", "numpy")
NOT_INHERITED = (
    "NO_COLOR",
    "LINES",
    "JAX_NUM_CPU_DEVICES",
    "JAX_ENABLE_X64",
    "XLA_FLAGS",
    "PYTHONSTARTUP",
    "PYTHONDONTWRITEBYTECODE",  # hundreds of processes import jax, which takes four times as long without
)


def environment(devices: int, width: int) -> dict[str, str]:
    """Return the variables of a process with so many fake CPU devices, in a terminal of so many columns."""
    inherited = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    fake = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"} if devices else {}
    return (
        inherited
        | fake
        | {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "JAX_PLATFORMS": "cpu",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "COLUMNS": str(width),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "FORCE_COLOR": "1",
            "LANG": "C.UTF-8",
            "PYTHONUTF8": "1",
            "PYTHONHASHSEED": "0",
        }
    )


@cache
def fingerprint() -> str:
    """Return a hash of everything but the blocks that decides what they print."""
    digest = hashlib.sha256(platform.python_version().encode())
    for package in VERSIONS:
        digest.update(f"{package} {version(package)}\n".encode())
    for folder in [HOOKS, *map(_folder, PACKAGES)]:
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            f"the site needs {package}: install the project with its extras cli and docs"
        )
    return Path(spec.origin).parent
