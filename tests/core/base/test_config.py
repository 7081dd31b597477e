"""Invalid settings raise when they are assigned."""

import subprocess
import sys

import numpy as np
import pytest

from jax_array_info_core import ArrayInfoError, Config
from jax_array_info_core.compat import processes
from jax_array_info_core.errors import ConfigError

pytestmark = pytest.mark.newest


@pytest.mark.parametrize("value", ["all", 0, 7])
def test_process_is_all_or_an_index(value):
    config = Config()
    config.process = value
    assert config.process == value
    assert Config(process=value) == config


@pytest.mark.parametrize(
    ("setting", "good", "wrong", "problem"),
    [
        (
            "process",
            3,
            [-1, "1", "ALL", "", True, False, 2.5, None, (0,), np.zeros(2)],
            "'all' or the index of a process, got",
        ),
        (
            "hidden_modules",
            ("mine", "mine.too"),
            ["mine", None, 3, [b"mine"], [np]],
            "a tuple of module names, got",
        ),
        ("assign_labels_to_arrays", False, [3, None, "no"], "True or False, got"),
    ],
)
def test_an_invalid_setting_is_rejected_and_keeps_its_value(setting, good, wrong, problem):
    config = Config(**{setting: list(good) if isinstance(good, tuple) else good})
    for value in wrong:
        with pytest.raises(ConfigError, match=f"{setting} must be {problem}") as caught:
            setattr(config, setting, value)
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, ArrayInfoError)
        assert getattr(config, setting) == good
        with pytest.raises(ConfigError):
            Config(**{setting: value})


def test_the_process_index_is_read_without_importing_jax_or_starting_a_backend():
    code = """
import sys
from jax_array_info_core.compat import processes
assert processes.process_index() == 0
assert "jax" not in sys.modules
import jax
from jax._src import distributed, xla_bridge
distributed.global_state.process_id = 3
assert processes.process_index() == 3, "the index passed to jax.distributed"
assert not xla_bridge.backends_are_initialized()
jax.devices()
assert processes.process_index() == jax.process_index()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_process_index_comes_from_the_public_api_if_private_modules_are_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax._src.distributed", None)
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", None)
    assert processes.process_index() == 0
