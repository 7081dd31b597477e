"""Advice for TPUs that are not here: what is printed is measured there."""

from pathlib import Path

import pytest

from jax_array_info_core import program_report
from jax_array_info_core.programs.advice.judging import Scale, figures_of
from tests.ahead_of_time import needs_tpu_compiler
from tests.cli.advised import advice_on, called

pytestmark = [pytest.mark.needs_devices(8), needs_tpu_compiler]
WRONG = Path(__file__).parents[1] / "data" / "advise" / "wrong.py"


@pytest.mark.parametrize(
    ("topology", "sizes"), [("v5p:2x2x2", {"data": 4, "model": 2}), ("v5e:2x2", {"data": 2, "model": 2})]
)
@pytest.mark.parametrize("name", ["logits_xent", "carry_reshard"])
def test_a_change_is_measured_on_the_topology(name, topology, sizes, monkeypatch):
    monkeypatch.setattr("jax_array_info_cli.user_code.compiling._prepare_jax", lambda count: None)
    report = advice_on(WRONG, name, sizes, topology=topology)
    assert report.topology == topology
    changes = [*report.remedies, *report.trades]
    assert report.tried >= 5

    def figures(remedy=None):
        step, arguments = called(WRONG, name, sizes, remedy)
        return figures_of(program_report(step, *arguments, topology=topology, explain=False))

    assert figures() == report.base
    for remedy in changes:
        assert figures(remedy) == remedy.after
        assert Scale.of(topology).verdict(remedy.before, remedy.after) == (
            "better" if remedy in report.remedies else "trade"
        )
