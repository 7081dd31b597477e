"""The tour on more devices than a terminal has columns."""

import pytest

from tests.cli.test_cli import run


@pytest.mark.own_process
@pytest.mark.newest
def test_a_large_tour_is_legible():
    done = run("demo", "--devices", "128")
    assert done.returncode == 0, done.stderr
    assert "│0│1│2│3│4│5│6│7│8│9│10│11│12│⋯│116│117│118│119│120│121│122│123│124│125│126│127│" in done.stdout
    assert "showing 25 of 128 columns" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
