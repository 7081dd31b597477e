"""Programs beyond the first of each family, of which the gate tries some."""

import pytest

from tests.core.programs.raised.test_explicit import ALL, assert_edits_are_right, name_of
from tests.fuzz.test_inputs import IS_LONG
from tests.planted import PLANTED, checked
from tests.right_programs import VARIANTS, repetitions_of

EVERY = 1 if IS_LONG else 5
"""One of so many programs is tried."""


@pytest.mark.parametrize("name", VARIANTS[::EVERY])
def test_a_variant_that_divides_its_work_repeats_nothing(name):
    assert repetitions_of(name) == []


@pytest.mark.parametrize("program", ALL[::EVERY], ids=name_of)
def test_each_edit_runs_and_equals_numpy(program):
    assert_edits_are_right(program)


@pytest.mark.parametrize("name", PLANTED if IS_LONG else [*PLANTED][1::EVERY])
def test_each_mistake_of_a_simulation_is_named_with_its_line(name):
    checked(PLANTED[name])
