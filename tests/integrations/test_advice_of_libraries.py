"""Advice on programs of Flax NNX and Equinox, whose bytes are counted by hand."""

from pathlib import Path

import pytest

from tests.cli.advised import advice_on
from tests.cli.test_advise import EQUINOX, assert_an_argument_changes

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]
ROWS, RANK, IN, OUT = 4096 // 4, 16, 256, 512
"""Sizes of a group of devices with one part of the batch."""


@pytest.fixture(autouse=True)
def devices(monkeypatch):
    """The devices of the tests stand for those of the command."""
    monkeypatch.setattr("jax_array_info_cli.user_code.compiling._prepare_jax", lambda count: None)


def test_an_argument_beside_a_module_of_equinox_changes(tmp_path):
    assert_an_argument_changes(EQUINOX, tmp_path)


def test_the_rank_of_adapters_is_not_sharded():
    file = Path(__file__).parent / "advised_lora.py"
    report = advice_on(file, "step", {"data": 4, "model": 2})
    # Over two devices, a sum sends all bytes of a value, and a gather half of them; over four, a sum 3/2.
    gathered, gradient = ROWS * RANK * 4 // 2, IN * RANK * 4 * 3 // 2
    summed = ROWS * OUT * 4 + ROWS * OUT * 4 // 2
    assert report.base.sent_nbytes == summed + gathered + gradient + gradient // 2
    best = report.remedies[0]
    assert (best.place.line, best.code) == (9, '"lora_b": P(None, "model")')
    assert best.after.sent_nbytes == ROWS * RANK * 4 + gathered + 2 * gradient
    assert report.caveats == (
        "Outputs are not changed: those of the program are not what the function returns.",
    )
