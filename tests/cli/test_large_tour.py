"""The tour on the most devices that it admits."""

import pytest

from tests.cli.test_cli import run


@pytest.mark.own_process
@pytest.mark.newest
def test_the_largest_tour_is_legible():
    done = run("demo", "--devices", "512")
    assert done.returncode == 0, done.stderr
    assert "showing 10 of 512 columns" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
