"""Where blocks run: the variables that every process of a page has, and what its results depend on."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

HOOKS = Path(__file__).parent
ROOT = HOOKS.parent
PACKAGES = ("jax_array_info_core", "jax_array_info", "jax_array_info_cli")
VERSIONS = ("jax", "jaxlib", "rich", "click", "numpy")
INHERITED = ("PATH", "HOME", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "LD_LIBRARY_PATH", "SSL_CERT_FILE")
"""What programs need to be found and to run: nothing else of the builder's own settings comes onto a page."""


def environment(devices: int, width: int) -> dict[str, str]:
    """Return the variables of a process with so many fake CPU devices, in a terminal of so many columns."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
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
            "LC_ALL": "C.UTF-8",
            "PYTHONUTF8": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONUNBUFFERED": "1",  # what a block that takes too long has printed is not lost
        }
    )


def _hash_of(folder: Path) -> bytes:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.digest()


HOOKS_WHEN_IMPORTED = _hash_of(HOOKS)
"""Of the code that runs blocks: a server that shows each change of a page goes on with what it imported."""


def fingerprint() -> str:
    """Return a hash of everything but the blocks that decides what they print, as the files are now."""
    digest = hashlib.sha256(platform.python_version().encode())
    for package in VERSIONS:
        digest.update(f"{package} {version(package)}\n".encode())
    digest.update(HOOKS_WHEN_IMPORTED)
    for folder in [HOOKS, *map(_folder, PACKAGES)]:
        digest.update(_hash_of(folder))
    return digest.hexdigest()


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            f"the site needs {package}: install the project with its extras cli and docs"
        )
    return Path(spec.origin).parent
