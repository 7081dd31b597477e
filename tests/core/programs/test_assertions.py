import pytest

from jax_array_info_core import (
    CheckError,
    assert_donated,
    assert_no_collective,
    assert_program_sharding,
    assert_sent,
    assert_tree,
    assert_work_divided,
)
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.layouts import MeshAxes, Spec
from jax_array_info_core.reports import (
    Collective,
    Donation,
    Origin,
    OutOfMemory,
    ProgramReport,
    ProgramValue,
    ShardingDescription,
    WorkLine,
    WorkShare,
)

pytestmark = pytest.mark.newest

MESH = MeshAxes(("fsdp", "tensor", "one"), (4, 2, 1))
MIB = 1 << 20


def sharded(*axes):
    return ShardingDescription(type="NamedSharding", spec=Spec(axes), mesh=MESH)


def value(path, *axes, **options):
    return ProgramValue(path=path, shape=(8, 8), dtype="float32", nbytes=64, got=sharded(*axes), **options)


def gather(**options):
    return Collective(
        **{
            "kind": "all-gather",
            "axes": ("fsdp",),
            "group_size": 4,
            "dtype": "float32",
            "shape": (8, 8),
            "sent_nbytes": MIB,
            "origin": Origin(file="/home/user/step.py", line=12, function="loss"),
            "path": "params/wi",
            **options,
        }
    )


def report(*collectives, **options):
    return ProgramReport(name="step", platform="cpu", mesh=MESH, collectives=collectives, **options)


def message(error):
    return str(error.value)


def test_a_collective_is_named_with_its_axes_bytes_path_and_line():
    found = report(gather(count=3))
    with pytest.raises(CheckError) as error:
        assert_no_collective(found, "all-gather", mesh_axis="fsdp")
    assert message(error) == (
        "all-gather over mesh axis 'fsdp' in step:\n"
        "- all-gather over fsdp: 3.0 MiB of params/wi, step.py:12 loss"
    )
    assert error.value.report is found


def test_other_kinds_and_other_axes_do_not_count():
    assert_no_collective(report(gather()), "all-reduce")
    assert_no_collective(report(gather()), "all-gather", mesh_axis="tensor")


def test_few_bytes_count_unless_there_is_a_minimum():
    small = report(gather(sent_nbytes=1))
    assert_no_collective(small, "all-gather", min_nbytes=2)
    for minimum in ({}, {"min_nbytes": 1}):
        with pytest.raises(CheckError):
            assert_no_collective(small, "all-gather", **minimum)


def test_the_message_has_the_number_of_small_collectives():
    mixed = report(gather(), gather(sent_nbytes=1024), gather(sent_nbytes=512, times=None, at_most=2))
    with pytest.raises(CheckError) as error:
        assert_no_collective(mixed, "all-gather", min_nbytes="2KiB")
    assert (
        message(error).splitlines()[-1]
        == "- not counted, below 2,048 bytes each: 2 collectives, at most 2.0 KiB"
    )


def test_an_unread_line_counts_only_if_it_may_send():
    local, kernel = "%a = f99[8] add(%b)", "%k = f99[8] custom-call(%b)"
    assert_no_collective(report(unread=(local,), unread_local=(local,)), "all-gather")
    assert_sent(report(unread=(local,), unread_local=(local,)), at_most=0)
    with pytest.raises(CheckError, match="custom-call") as error:
        assert_sent(report(unread=(local, kernel), unread_local=(local,)), at_most=0)
    assert "add" not in message(error)


def test_a_part_of_an_axis_is_over_the_axis():
    with pytest.raises(CheckError):
        assert_no_collective(report(gather(axes=("fsdp:(2)2",))), "all-gather", mesh_axis="fsdp")


@pytest.mark.parametrize(
    ("unknown", "words"),
    [
        (report(gather(times=None, sent_nbytes=1)), "1.0 B × an unknown number of times"),
        (report(gather(axes=None)), "all-gather over unknown mesh axes"),
        (report(unread=("%nonsense",)), "a line that could not be read: %nonsense"),
        (report(out_of_memory=OutOfMemory(message="36 GiB exceed 16 GiB")), "36 GiB exceed 16 GiB"),
    ],
    ids=["times", "axes", "unread", "out of memory"],
)
def test_what_is_unknown_fails_an_assertion_with_the_reason(unknown, words):
    with pytest.raises(CheckError, match=words):
        assert_no_collective(unknown, "all-gather", mesh_axis="fsdp")
    with pytest.raises(CheckError, match=words):
        assert_sent(unknown, 10 * MIB, mesh_axis="fsdp")


def test_a_known_bound_below_the_limit_is_no_collective():
    bounded = report(gather(times=None, at_most=2, sent_nbytes=MIB // 4))
    assert_no_collective(bounded, "all-gather", min_nbytes=MIB)
    with pytest.raises(CheckError, match="an unknown number of times, at most 2 times"):
        assert_sent(bounded, MIB)


def test_bytes_that_depend_on_data_are_a_bound():
    ragged = gather(kind="ragged-all-to-all", times=None, at_most=2, depends_on_data=True, path=None)
    assert (ragged.total_nbytes, ragged.bound_nbytes) == (None, 2 * MIB)
    assert_no_collective(report(ragged), "ragged-all-to-all", min_nbytes=2 * MIB + 1)
    with pytest.raises(CheckError) as error:
        assert_sent(report(ragged), 2 * MIB)
    assert message(error).endswith(
        "- ragged-all-to-all over fsdp: at most 2.0 MiB, depending on data, step.py:12 loss"
    )


def test_more_bytes_than_accepted_are_listed_by_line():
    found = report(gather(times=4), gather(kind="all-reduce", axes=("tensor",), path=None, origin=None))
    assert_sent(found, 5 * MIB)
    assert_sent(found, MIB, kind="all-reduce")
    assert_sent(found, MIB, mesh_axis="tensor")
    with pytest.raises(CheckError) as error:
        assert_sent(found, 5 * MIB - 1)
    assert message(error) == (
        "step sends 5.0 MiB (5,242,880 bytes) per device, more than 5,242,879 bytes:\n"
        "- all-gather over fsdp: 4.0 MiB of params/wi, step.py:12 loss\n"
        "- all-reduce over tensor: 1.0 MiB"
    )


def test_a_path_means_all_below_it():
    arguments = (value("state/a", ("fsdp",)), value("state/b", ("fsdp",)), value("statement", ()))
    donations = (
        Donation(path="state/a", nbytes=64, output="outputs/a"),
        Donation(path="state/b", nbytes=64, reason="no output has the dtype float32"),
    )
    found = report(arguments=arguments, donations=donations)
    assert_donated(found, "state/a")
    with pytest.raises(CheckError) as error:
        assert_donated(found, "state")
    assert message(error) == (
        "arguments of step whose memory is not reused:\n- state/b (64.0 B): no output has the dtype float32"
    )
    with pytest.raises(CheckError, match=r"statement .*: not in donate_argnums or donate_argnames"):
        assert_donated(found, "statement")
    assert_program_sharding(found, "state", (("fsdp",),))


def test_equivalent_specs_are_equal():
    found = report(outputs=(value("outputs/0/w", ("fsdp", "one"), ()),))
    assert_program_sharding(found, "outputs/0/w", ("fsdp",))
    assert_program_sharding(found, "outputs", Spec((("fsdp",), ())))
    with pytest.raises(CheckError) as error:
        assert_program_sharding(found, "outputs/0/w", ("tensor", "fsdp"))
    assert message(error) == (
        "shardings of step that differ:\n- outputs/0/w: P(('fsdp', 'one'), None), not P('tensor', 'fsdp')"
    )


def test_a_path_or_an_axis_that_does_not_exist_is_no_finding():
    found = report(gather(), arguments=(value("params/wi", ()),))
    with pytest.raises(
        UnsupportedValueError, match="no argument or output 'params/wo': did you mean params/wi"
    ):
        assert_program_sharding(found, "params/wo", ())
    with pytest.raises(
        UnsupportedValueError, match="'fdsp' is not a mesh axis: the mesh has 'fsdp', 'tensor'"
    ):
        assert_no_collective(found, "all-gather", mesh_axis="fdsp")
    with pytest.raises(UnsupportedValueError, match="'x' is not a mesh axis"):
        assert_program_sharding(found, "params/wi", ("x",))
    with pytest.raises(UnsupportedValueError, match="no argument or output"):
        assert_donated(found, "state")


def test_an_unknown_or_pruned_sharding_fails():
    pruned = ProgramValue(path="s", shape=(8,), dtype="int8", nbytes=8, is_pruned=True)
    with pytest.raises(CheckError, match="s: its sharding is pruned, not P"):
        assert_program_sharding(report(arguments=(pruned,)), "s", ())


@pytest.mark.parametrize("kind", ["all_gather", "AllGather", "all-gather-start", "", "gather"])
def test_a_misspelled_collective_is_an_error_and_no_success(kind):
    with pytest.raises(UnsupportedValueError, match="is not a collective"):
        assert_no_collective(report(gather()), kind)
    with pytest.raises(UnsupportedValueError, match="is not a collective"):
        assert_sent(report(gather()), 0, kind=kind)


def test_work_that_is_repeated_is_named_with_its_axes_and_line():
    scores = WorkLine(
        origin=Origin(file="/home/user/step.py", line=12, function="loss"),
        op="dot_general",
        phases=("forward", "backward"),
        flops=8000,
        repeated_flops=6000,
        share=4.0,
        mesh_axes=("fsdp",),
    )
    sort, even = WorkLine(op="sort", flops=9, repeated_flops=5), WorkLine(op="dot_general", flops=7)
    found = report(work=WorkShare(share=1.2, lines=(scores, sort, even)))
    with pytest.raises(CheckError) as error:
        assert_work_divided(found)
    assert message(error) == (
        "share of the work of step that each device does: 1.200 times, more than 1.05:\n"
        "- 4.00 times over fsdp, repeats 6,000 FLOPs, step.py:12 loss (forward and backward)\n"
        "- unknown share, repeats 5 FLOPs, line unknown"
    )
    assert_work_divided(found, at_most=1.2)
    assert_work_divided(report(work=WorkShare(share=1.05)))
    for at_most in (1.1999, float("nan")):
        with pytest.raises(CheckError):
            assert_work_divided(found, at_most=at_most)
    with pytest.raises(CheckError, match="in lines that are not known"):
        assert_work_divided(report(work=WorkShare(share=2.0)))


def test_a_share_of_work_that_is_unknown_fails():
    with pytest.raises(CheckError, match=r"each device does: unknown \(there is one device\)"):
        assert_work_divided(report(work=WorkShare(reason="there is one device")), at_most=8)
    with pytest.raises(CheckError, match="each device does: unknown"):
        assert_work_divided(report())


def test_bytes_are_integers():
    with pytest.raises(UnsupportedValueError, match=r"at_most must be a number of bytes, .* got nan"):
        assert_sent(report(gather()), float("nan"))
    with pytest.raises(UnsupportedValueError, match="min_nbytes must be a number of bytes"):
        assert_no_collective(report(gather()), "all-gather", min_nbytes=None)


def test_bytes_may_be_a_size():
    assert_sent(report(gather()), "1 MiB")
    assert_no_collective(report(gather()), "all-gather", min_nbytes="2MiB")
    with pytest.raises(CheckError):
        assert_sent(report(gather()), "1MB")


def test_an_unconstrained_axis_is_no_expectation():
    found = report(outputs=(value("outputs", ("fsdp",)),))
    with pytest.raises(UnsupportedValueError, match="leaves axes open"):
        assert_program_sharding(found, "outputs", Spec(((),), (0,)))


@pytest.mark.parametrize(
    "check",
    [
        lambda found: assert_no_collective(found, "all-gather"),
        lambda found: assert_sent(found, 0),
        lambda found: assert_work_divided(found),
        lambda found: assert_donated(found, "params"),
        lambda found: assert_program_sharding(found, "params", Spec((("fsdp",),))),
        lambda found: assert_tree({}),
    ],
    ids=["no_collective", "sent", "work_divided", "donated", "program_sharding", "tree"],
)
def test_pytest_shows_the_line_of_the_test_and_none_of_the_package(check):
    donation = Donation(path="params", nbytes=64, reason="no output has the shape")
    found = report(gather(), arguments=(value("params"),), donations=(donation,))
    with pytest.raises(CheckError) as error:
        check(found)
    shown = {str(entry.path) for entry in error.traceback.filter(error)}
    assert shown == {__file__}
