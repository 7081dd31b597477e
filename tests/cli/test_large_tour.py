"""The tour on its maximum number of devices."""

import pytest

from tests.cli.test_cli import run


@pytest.mark.own_process
@pytest.mark.newest
def test_the_largest_tour_is_legible():
    done = run("demo", "--devices", "512")
    assert done.returncode == 0, done.stderr
    assert "│0│1│2│3│4│5│6│7│8│9│10│11│12│⋯│500│501│502│503│504│505│506│507│508│509│510│511│" in done.stdout
    assert "showing 25 of 512 columns" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
