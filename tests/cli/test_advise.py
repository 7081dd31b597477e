"""``jai-cli advise``: the changes that it prints are true, and nothing is left of those that it tries."""

import os
from pathlib import Path

import pytest

from tests.cli.advised import advice_on, assert_true, random_program

IS_LONG = "JAI_FUZZ" in os.environ
only_long = pytest.mark.skipif(not IS_LONG, reason="compiles for minutes: nox -s fuzz runs it")

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]

WRONG = Path(__file__).parents[1] / "data" / "advise" / "wrong.py"
SIZES = {"data": 4, "model": 2}
MIB = 2**20

# What is sent with the best of 24 changes, in MiB; None where the memory or the FLOPs are better.
BEST = {
    "logits_xent": 2.15,
    "scatter_mass": 0.22,
}
BEST_OF_OTHERS = {
    "mlp_forgotten": None,
    "fsdp_contracted": None,
    "heads_uneven": 0.422,
    "embed_vocab": 3.52,
    "moe_dispatch": None,
    "kv_cache": None,
    "fft_pencil": 0.313,
    "moments_mismatch": 1.51,
    "out_replicated": 0.751,
    "carry_reshard": 0.657,
    "backward_gather": 2.26,
    "stencil": 0.008,
}


@pytest.fixture(autouse=True)
def devices(monkeypatch):
    """The devices of the tests stand for those of the command."""
    monkeypatch.setattr("jax_array_info_cli.user_code.compiling._prepare_jax", lambda count: None)


def sizes_of(name):
    return {"data": 2, "model": 4} if name == "heads_uneven" else SIZES


@pytest.mark.parametrize("name", [*BEST, *(pytest.param(name, marks=only_long) for name in BEST_OF_OTHERS)])
def test_each_change_does_in_the_source_what_is_said(name):
    report = advice_on(WRONG, name, sizes_of(name))
    assert report.remedies or report.trades
    assert report.tried + report.failed >= 20
    best = {**BEST, **BEST_OF_OTHERS}[name]
    if best is not None:
        assert min(one.after.sent_nbytes for one in report.remedies) <= best * MIB
    assert_true(WRONG, name, sizes_of(name), report)


@pytest.mark.parametrize("name", ["right_mlp", "right_dp"])
def test_nothing_helps_a_program_that_is_right(name):
    report = advice_on(WRONG, name, SIZES)
    assert (report.remedies, report.trades) == ((), ())
    assert report.tried >= 5
    assert report.answer == f"{report.tried} changes tried, none helps"


@pytest.mark.parametrize("seed", range(300 if IS_LONG else 10))
def test_changes_of_random_programs_are_true(seed, tmp_path):
    text, sizes = random_program(seed)
    path = tmp_path / "step.py"
    path.write_text(text, encoding="utf-8")
    assert_true(path, "step", sizes, advice_on(path, "step", sizes, most=8))
