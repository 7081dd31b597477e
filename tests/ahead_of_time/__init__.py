"""Programs for accelerators that are not here. The session ahead-of-time installs their compilers."""

import importlib.util

import pytest

needs_tpu_compiler = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed"
)
