import jax.numpy as jnp
import pytest

from jax_array_info_core import CheckError, assert_no_conflict, propagation_report
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.reports import PropagationReport
from tests.core.propagation.programs import needs_shardy, struct

pytestmark = needs_shardy


def layer(x, wi):
    return x @ wi


def report(*specs, function=layer):
    """Return a report on a program of two arguments with these specs."""
    return propagation_report(function, struct((32, 64), *specs[0]), struct((64, 64), *specs[1]))


FSDP = (("data",), ("data", "model"))


def test_a_conflict_is_listed_with_its_bytes_and_its_line():
    with pytest.raises(CheckError) as error:
        assert_no_conflict(report(*FSDP))
    line = layer.__code__.co_firstlineno + 1
    assert str(error.value) == (
        "conflicts in layer:\n- data: dot_general ik,kj->ij: 2.0 KiB: x P('data', None) (i: argument x),"
        f" wi P('data', 'model') (k: argument wi), test_assertions.py:{line} layer"
    )
    with pytest.raises(CheckError, match="conflicts over mesh axis 'data' in layer"):
        assert_no_conflict(report(*FSDP), mesh_axis="data")


def test_a_program_without_conflicts_passes():
    assert_no_conflict(report(("data",), (None, "model")))
    assert_no_conflict(report(*FSDP), mesh_axis="model")
    assert_no_conflict(propagation_report(jnp.sin, jnp.ones(8)), mesh_axis="data")


def test_two_axes_of_one_dimension_are_a_conflict_over_each():
    found = propagation_report(lambda x, y: x + y, struct((32, 64), "data"), struct((32, 64), "model"))
    [conflict] = found.conflicts
    assert [str(one.axis_origin) for one in conflict.operands] == ["argument x", "argument y"]
    assert {(one.mesh_axis, one.reason) for one in found.lost} == {
        ("data", "conflict"),
        ("model", "conflict"),
    }
    for axis in ("data", "model"):
        with pytest.raises(CheckError, match="add ij,ij->ij"):
            assert_no_conflict(found, mesh_axis=axis)


def test_small_conflicts_pass_and_are_named_if_another_one_fails():
    def two(x, wi):
        return x[:4, :4] @ wi[:4, :4], x @ wi

    found = report(*FSDP, function=two)
    assert sorted(one.nbytes for one in found.conflicts) == [8, 2048]
    assert_no_conflict(found, min_nbytes="1MiB")
    with pytest.raises(CheckError) as error:
        assert_no_conflict(found, min_nbytes=1024)
    assert str(error.value).splitlines()[2:] == ["- not counted, below 1,024 bytes each: 1 conflict, 8.0 B"]


def test_what_is_unknown_fails():
    with pytest.raises(CheckError, match="unknown: Shardy gave no answer: it was killed"):
        assert_no_conflict(PropagationReport(name="f", platform="tpu", reason="it was killed"))
    with pytest.raises(CheckError, match="not understood: an operation"):
        assert_no_conflict(PropagationReport(name="f", platform="tpu", unread=("an operation",)))


def test_bad_arguments_are_refused():
    with pytest.raises(UnsupportedValueError, match="'dat' is not a mesh axis: the mesh has 'data', 'model'"):
        assert_no_conflict(report(*FSDP), mesh_axis="dat")
    with pytest.raises(UnsupportedValueError, match="min_nbytes"):
        assert_no_conflict(report(*FSDP), min_nbytes="many")
    with pytest.raises(UnsupportedValueError, match="propagation_report returns one"):
        assert_no_conflict(3)
