"""A test for each private part of JAX that this project uses, which fails when a new version moves it.

Without such a part, the user's program still runs, but reports lack facts or cost more.
"""

import jax
import pytest

from tests.core.compat.parts_of_calls import CALLS, DEVICES, STOPS
from tests.core.compat.parts_of_lowering import LOWERING, watching
from tests.core.compat.private_parts import problem

pytestmark = pytest.mark.once_per_version

NEEDED = {**LOWERING, **CALLS, **DEVICES}
if jax.__version_info__ >= (0, 6):  # advise needs JAX 0.6
    NEEDED |= STOPS


@pytest.fixture(scope="module", autouse=True)
def events():
    """Pass each of JAX's events to the probe."""

    def listen(event, duration, **_):
        for probe in watching:
            probe.watch(event)

    jax.monitoring.register_event_duration_secs_listener(listen)


each_part = pytest.mark.parametrize(
    ("part", "used_by", "consequence"),
    [pytest.param(part, *need, id=part.name) for need, parts in NEEDED.items() for part in parts],
)


@each_part
def test_this_jax_has(part, used_by, consequence):
    assert problem(part, used_by, consequence) is None


@each_part
def test_a_missing_part_is_named(part, used_by, consequence, monkeypatch):
    part.hide(monkeypatch)
    assert problem(part, used_by, consequence) == (
        f"jax {jax.__version__} has moved or removed {part.name}, which {used_by} needs: without it, {consequence}"
    )
