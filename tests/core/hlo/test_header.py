import pytest

from jax_array_info_core.hlo.module import Alias
from jax_array_info_core.hlo.read import read_header

pytestmark = pytest.mark.oldest_and_newest


def test_a_header_has_the_name_the_devices_and_the_donations():
    header = read_header(
        "HloModule jit_step, is_scheduled=true, input_output_alias={ {0}: (2, {}, may-alias), {3}: (1, {}) },"
        " buffer_donor={ (4, {}), (0, {}) }, entry_computation_layout={(f32[8]{0:T(8,128)})->(f32[8]{0})},"
        ' replica_count=2, num_partitions=8, frontend_attributes={a="x, num_partitions=3"}'
    )
    assert header.name == "jit_step"
    assert header.aliases == (Alias(0, 2), Alias(3, 1))
    assert header.buffer_donors == (4, 0)
    assert header.device_count == 16
    assert header.is_understood


def test_a_single_output_is_output_0():
    header = read_header("HloModule jit_f, input_output_alias={ {}: (0, {}, must-alias) }")
    assert header.aliases == (Alias(0, 0),)
    assert (header.device_count, header.is_understood) == (1, True)


def test_of_arguments_in_one_tuple_the_place_in_the_tuple_counts():
    header = read_header(
        "HloModule m, input_output_alias={ {7}: (0, {5}, may-alias) }, buffer_donor={ (0, {6}) }"
    )
    assert header.aliases == (Alias(7, 5),)
    assert header.buffer_donors == (6,)


@pytest.mark.parametrize(
    "rest",
    [
        "input_output_alias={ {0}: nonsense }",
        "input_output_alias={ {0}: (0, {}, may-alias), x }",
        "input_output_alias={ {0, 1}: (0, {}, may-alias) }",
        "input_output_alias={ {0}: (1, {2}, may-alias) }",
        "buffer_donor={ (a, {}) }",
        "num_partitions=many",
        "num_partitions=0",
        "num_partitions=9999, replica_count=9999",
        "num_partitions={",
    ],
)
def test_what_is_not_understood_is_marked_and_does_not_count(rest):
    header = read_header(f"HloModule m, {rest}")
    assert not header.is_understood
    assert header.name == "m"
    assert header.device_count == 1
    assert len(header.aliases) <= 1


@pytest.mark.parametrize("line", ["", "HloModule", "HloModuleX, a=b", "ENTRY %main () -> f32[] {"])
def test_other_lines_are_no_header(line):
    assert read_header(line) is None
