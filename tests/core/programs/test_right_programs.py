"""Programs that divide their work as well as they can have no finding about repeated values."""

import pytest

from jax_array_info_core import program_report
from tests.right_programs import PROGRAMS, compiled_for


@pytest.mark.oldest_and_newest
@pytest.mark.needs_devices(8)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_that_divides_its_work_repeats_nothing(name):
    f, arguments = compiled_for(name)
    found = program_report(f, *arguments).findings
    assert [str(one) for one in found if one.code == "JAI212"] == []
