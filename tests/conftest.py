"""Test settings: JAX starts on ``JAI_TEST_DEVICES`` simulated CPU devices, 8 by default."""

import os
import re
import sys

FEWER_CELLS = {"own_process", "newest", "once_per_version"}
DEVICE_COUNT = int(os.environ.get("JAI_TEST_DEVICES", "8"))
# Without LLVM's optimizations, programs compile in half the time, to the same HLO and the same sizes.
os.environ["XLA_FLAGS"] = (
    f"--xla_backend_optimization_level=0 --xla_force_host_platform_device_count={DEVICE_COUNT}"
)
os.environ["JAX_PLATFORMS"] = "cpu"
for variable in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "JAX_NUM_CPU_DEVICES", "JAX_ENABLE_X64"):
    os.environ.pop(variable, None)

import gc

import pytest
from hypothesis import settings

# CI runs the same cases each time, other machines new ones. No deadlines: busy machines are slow.
settings.register_profile("untimed", deadline=None)
settings.register_profile("reproducible", deadline=None, derandomize=True)
settings.load_profile("reproducible" if os.environ.get("CI") else "untimed")

MARKS_OF_THE_MODULE = re.compile(r"^pytestmark = (\[[^\]]*\]|.*)", re.MULTILINE)


def pytest_ignore_collect(collection_path, config):
    """Leave out modules whose marks say that none of their tests is selected: importing them takes seconds."""
    selected = config.option.markexpr
    if not collection_path.match("test_*.py") or " or " in selected:
        return None
    source = collection_path.read_text(encoding="utf-8")
    excluding = FEWER_CELLS if selected == "everywhere" else set(re.findall(r"\bnot (\w+)", selected))
    found = MARKS_OF_THE_MODULE.search(source)
    if found and not excluding.isdisjoint(re.findall(r"mark\.(\w+)", found[1])):
        return True
    return True if selected.startswith("own_process") and "own_process" not in source else None


def pytest_collection_modifyitems(items):
    """Mark tests that run in each cell, and skip those that need more devices than this run has."""
    for item in items:
        if FEWER_CELLS.isdisjoint(mark.name for mark in item.iter_markers()):
            item.add_marker(pytest.mark.everywhere)
        marker = item.get_closest_marker("needs_devices")
        if marker and marker.args[0] > DEVICE_COUNT:
            reason = f"needs {marker.args[0]} devices, this run has {DEVICE_COUNT}"
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish():
    """Write no more compiled files: a test that writes a file twice in a second would run the first one twice.

    The programs that tests start read those of JAX, which the collection wrote, and those of the packages, which
    nox wrote.
    """
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


@pytest.fixture
def no_arrays():
    """Make sure that no arrays of earlier tests are alive."""
    import jax

    gc.collect()
    assert jax.live_arrays() == [], "an earlier test left arrays behind"
