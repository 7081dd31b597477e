"""``jai-cli devices`` and ``jai-cli profile``."""

import functools
import gzip
import json

import jax
import jax.numpy as jnp
import pytest

from jax_array_info import from_json, memory_profile_report, to_text
from jax_array_info_core.origins import profiles
from tests.cli.test_cli import run

# Without a timestamp, which would change the names of tests.
packed = functools.partial(gzip.compress, mtime=0)


@pytest.mark.own_process
def test_devices_are_the_devices_of_jax():
    done = run("devices", COLUMNS="100")
    assert done.returncode == 0, done.stderr
    row = "│ cpu:0-7 │ cpu         │"
    assert row in done.stdout
    assert "not reported by this backend" in done.stdout


@pytest.mark.own_process
def test_simulated_devices_as_json_are_one_report():
    done = run("devices", "--devices", "3", "--format", "json")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    report = from_json(line)
    assert [device.name for device in report.devices] == ["cpu:0", "cpu:1", "cpu:2"]
    assert json.loads(line)["devices"][2]["array_nbytes"] == 0


@pytest.mark.own_process
def test_an_unknown_platform_is_a_one_line_error():
    done = run("devices", JAX_PLATFORMS="nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: Unable to initialize backend 'nowhere'")


@pytest.fixture
def saved(tmp_path, no_arrays):
    """A profile written by JAX."""
    array = jnp.zeros(256)
    path = tmp_path / "memory.prof"
    jax.profiler.save_device_memory_profile(str(path))
    assert array is not None
    return path


def test_a_profile_is_printed_from_its_file(saved, call):
    done = call("profile", str(saved))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == to_text(memory_profile_report(saved.read_bytes())) + "\n"
    assert "1.0 KiB │     1 │ cpu:0" in done.stdout
    assert "test_devices.py" in done.stdout


def test_a_profile_as_json_is_one_report(saved, call):
    done = call("profile", str(saved), "--format", "json")
    assert from_json(done.stdout) == memory_profile_report(saved.read_bytes())


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, ": No such file or directory"),
        (b"", "is empty"),
        (b"import jax\n", "is not a pprof profile"),
        (packed(b"x" * 1000)[:20], "is truncated or damaged"),
        (packed(bytes(2**20)), "is larger than 0 MiB"),
    ],
)
def test_a_file_that_is_not_a_profile_is_rejected_in_one_line(content, problem, tmp_path, call, monkeypatch):
    monkeypatch.setattr(profiles, "MAX_NBYTES", 1000)
    path = tmp_path / "a\x1b[31m"
    if content is not None:
        path.write_bytes(content)
    done = call("profile", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert problem in line
    assert r"a\x1b[31m" in line
