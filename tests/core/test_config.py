"""Settings that make no sense are refused where they are made."""

import subprocess
import sys

import numpy as np
import pytest

from jax_array_info_core import ArrayInfoError, Config, ConfigError, compat

pytestmark = pytest.mark.oldest_and_newest


@pytest.mark.parametrize("value", ["all", 0, 7])
def test_a_process_that_prints_is_all_or_an_index(value):
    config = Config()
    config.process = value
    assert config.process == value
    assert Config(process=value) == config


@pytest.mark.parametrize("value", [-1, "1", "ALL", "", True, False, 2.5, None, (0,), np.zeros(2)])
def test_what_is_no_process_is_refused_and_the_setting_stays(value):
    config = Config(process=3)
    with pytest.raises(
        ConfigError, match=r"config\.process must be 'all' or the index of a process, got"
    ) as caught:
        config.process = value
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, ArrayInfoError)
    assert config.process == 3
    with pytest.raises(ConfigError):
        Config(process=value)


def test_hidden_modules_are_names():
    config = Config()
    config.hidden_modules = ["mine", "mine.too"]
    assert config.hidden_modules == ("mine", "mine.too")
    for wrong in ("mine", None, 3, [b"mine"], [np]):
        with pytest.raises(ConfigError, match=r"config\.hidden_modules must be a tuple of module names, got"):
            config.hidden_modules = wrong
    assert config.hidden_modules == ("mine", "mine.too")


def test_asking_for_the_process_neither_imports_jax_nor_starts_a_backend():
    code = """
import sys
from jax_array_info_core import compat
assert compat.process_index() == 0
assert "jax" not in sys.modules
import jax
from jax._src import distributed, xla_bridge
distributed.global_state.process_id = 3
assert compat.process_index() == 3, "what jax.distributed was told"
assert not xla_bridge.backends_are_initialized()
jax.devices()
assert compat.process_index() == jax.process_index()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_where_jax_has_moved_its_private_parts_it_is_asked(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax._src.distributed", None)
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", None)
    assert compat.process_index() == 0
