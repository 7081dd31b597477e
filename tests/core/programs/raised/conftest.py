"""Time for the helper process of explanations, also on a machine that does other work."""

import pytest

from jax_array_info_core.programs.raised import explain


@pytest.fixture(autouse=True)
def time_to_compile(monkeypatch):
    monkeypatch.setattr(explain, "SECONDS", 300.0)
