"""``jai-cli`` from a shell: help, usage errors, the tour and the environment."""

import jax
import pytest

from jax_array_info_cli.simulated_devices import simulated_device_environment
from jax_array_info_core.compat.lowering import OLDEST
from tests.cli.launching import MAIN, jai

pytestmark = pytest.mark.once_per_version


def test_without_click_one_line_gives_the_install_command():
    code = f"import sys; sys.modules['click'] = None; {MAIN}"
    done = jai("demo", code=code)
    assert done.returncode == 1
    assert done.stderr == "jai-cli needs click: pip install 'jax-array-info[cli]'\n"
    assert done.stdout == ""


@pytest.mark.parametrize(
    "args",
    [
        ["--nonsense"],
        ["nonsense"],
        ["demo", "--devices", "0"],
        ["demo", "--devices", "513"],
        ["demo", "--devices", "x"],
        ["demo", "more"],
    ],
)
def test_bad_options_are_usage_errors(call, args):
    done = call(*args)
    assert done.returncode == 2
    assert "Usage: jai-cli" in done.stderr
    assert "Error: " in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "devices",
    [
        *(pytest.param(devices, marks=pytest.mark.own_process) for devices in (1, 7, 128)),
        pytest.param(8, marks=pytest.mark.needs_devices(8)),
    ],
)
def test_the_tour_runs_on_any_number_of_devices(devices):
    done = jai("demo", "--devices", str(devices), JAX_PLATFORMS="nonsense", JAX_NUM_CPU_DEVICES="3")
    assert done.returncode == 0, done.stderr
    for shown in (
        "JAI108 tree-memory: 102.4 MiB per device",
        f"{devices} CPU device",
        "+1 array, +256.0 KiB",
        "batch: shape (32, 8) became (20,",
    ):
        assert shown in done.stdout
    has_reasons = devices > 1 and jax.__version_info__ >= OLDEST
    assert ("because 'i' (x)" in done.stdout) == has_reasons
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "…" not in done.stdout


@pytest.mark.needs_devices(8)
def test_each_screen_of_the_tour_fits_24_lines():
    done = jai("demo", "--devices", "8", COLUMNS="80")
    screens = f"\n{done.stdout}".split("\n\n── ")[1:]
    assert len(screens) == 5, done.stderr
    assert max(len(screen.strip().splitlines()) for screen in screens) <= 24
    assert len(done.stdout.splitlines()) <= 120


@pytest.mark.own_process
def test_the_tour_runs_on_a_narrow_ascii_terminal():
    done = jai("demo", "--devices", "2", COLUMNS="30", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()


def test_other_xla_flags_are_kept():
    environment = simulated_device_environment(
        {
            "XLA_FLAGS": "--xla_cpu_foo=false --xla_force_host_platform_device_count=3 --xla_dump_to=x",
            "JAX_PLATFORMS": "cuda",
            "JAX_PLATFORM_NAME": "gpu",
            "JAX_NUM_CPU_DEVICES": "5",
            "HOME": "here",
        },
        8,
    )
    assert environment == {
        "XLA_FLAGS": "--xla_cpu_foo=false --xla_dump_to=x --xla_force_host_platform_device_count=8",
        "JAX_PLATFORMS": "cpu",
        "HOME": "here",
    }
    assert simulated_device_environment({}, 2)["XLA_FLAGS"] == "--xla_force_host_platform_device_count=2"


def test_xla_flags_can_be_read_from_a_file(tmp_path):
    flags = tmp_path / "flags.txt"
    flags.write_text("--xla_cpu_foo=false\n--xla_force_host_platform_device_count=3\n")
    environment = simulated_device_environment({"XLA_FLAGS": str(flags)}, 4)
    assert environment["XLA_FLAGS"] == ("--xla_cpu_foo=false --xla_force_host_platform_device_count=4")
    missing = jai("demo", XLA_FLAGS=str(tmp_path / "missing.txt"))
    assert missing.returncode == 1
    assert "XLA_FLAGS names a file that cannot be read" in missing.stderr


def test_the_distribution_installs_the_command():
    from importlib.metadata import distribution

    scripts = {entry.name: entry.value for entry in distribution("jax-array-info").entry_points}
    assert scripts["jai-cli"] == "jax_array_info_cli:main"


def test_without_fork_one_line_names_the_systems_that_work():
    done = jai("run", __file__, code=f"import os; del os.fork; {MAIN}")
    assert done.returncode == 1
    assert done.stderr == "Error: os.fork is not available here: jai-cli run needs Linux or macOS\n"
