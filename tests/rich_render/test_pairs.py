"""Each function that prints takes what the function of its report takes, or the report."""

import jax
import jax.numpy as jnp
import pytest

import jax_array_info as jai
from jax_array_info_core.facts.pages import REPORTS
from tests.goldens import one_of_each

pytestmark = pytest.mark.once_per_version


def double(x):
    return 2 * x


TREE = {"w": jax.ShapeDtypeStruct((8, 4), jnp.float32)}
PLANNED = jai.tree_report(TREE, mesh={"d": 2}, specs={"w": jax.sharding.PartitionSpec("d")})
WARNING = "[SPMD] Involuntary full rematerialization. The compiler cannot go from sharding {replicated}"


def compiled():
    return (jax.jit(double).lower(jnp.zeros(3)).compile(),)


def two_programs():
    report = jai.program_report(double, jnp.zeros(3))
    return report, report


PAIRS = {
    "caches": (jai.print_compile_caches, jai.compile_caches_report, tuple),
    "check": (jai.print_check, jai.check_report, lambda: (PLANNED,)),
    "hosts": (jai.print_hosts, jai.hosts_report, lambda: (jai.devices_report(),)),
    "layers": (jai.print_layers, jai.layers_report, compiled),
    "live": (jai.print_array_stats, jai.live_array_report, tuple),
    "log": (jai.print_log, jai.log_report, lambda: ([WARNING],)),
    "memory": (jai.pretty_memory_stats, jai.memory_report, lambda: (jax.devices()[0],)),
    "devices": (jai.print_memory_stats, jai.devices_report, lambda: (jax.devices(),)),
    "mesh": (jai.print_mesh, jai.planned_mesh_report, lambda: ({"a": 4},)),
    "profile": (jai.print_memory_profile, jai.memory_profile_report, tuple),
    "program": (jai.print_program, jai.program_report, compiled),
    "program diff": (jai.print_program_diff, jai.program_diff_report, two_programs),
    "program timeline": (jai.print_program_timeline, jai.program_timeline_report, compiled),
    "propagation": (jai.print_propagation, jai.propagation_report, lambda: (double, jnp.zeros(3))),
    "reshard": (jai.print_reshard, jai.reshard_report, lambda: (PLANNED, jax.sharding.PartitionSpec())),
    "tree": (jai.print_tree, jai.tree_report, lambda: (TREE,)),
    "tree diff": (jai.print_tree_diff, jai.tree_diff_report, lambda: (PLANNED, TREE)),
}


NEEDS_SHARDY = pytest.mark.skipif(
    jax.__version_info__ < (0, 10, 1), reason="Shardy tells origins from JAX 0.10.1 on"
)


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=NEEDS_SHARDY if one == "propagation" else ()) for one in PAIRS]
)
def test_a_function_that_prints_takes_the_arguments_or_the_report(name, capsys):
    show, make, arguments = PAIRS[name]
    given = arguments()
    with jai.collect_reports() as reports:
        show(*given)
    (report,) = reports
    assert type(report) is type(make(*given))
    show(report)
    printed = capsys.readouterr().out
    jai.print_report(report)
    assert capsys.readouterr().out == printed
    if name not in ("caches", "devices", "live", "profile"):  # these change between two calls
        show(*given)
        assert capsys.readouterr().out == printed


# sharding_vis adds the indices of rows and columns.
@pytest.mark.parametrize("name", sorted(one_of_each().keys() - {"ShardingLayout"}))
def test_the_function_of_a_report_prints_it_as_print_report_does(name, capsys):
    report = one_of_each()[name]
    getattr(jai, REPORTS[name].verb)(report)
    printed = capsys.readouterr().out
    jai.print_report(report)
    assert capsys.readouterr().out == printed


def test_print_report_takes_no_other_value():
    with pytest.raises(TypeError, match="expected a report"):
        jai.print_report(3)
    with pytest.raises(ValueError, match="got <class 'str'>: live_array_report returns one"):
        jai.print_array_stats("cpu")


def test_the_first_argument_of_the_original_still_hides_small_arrays(capsys):
    small = [jnp.zeros(size) for size in range(3, 9)]
    jai.print_array_stats(True)
    assert "small arrays" in capsys.readouterr().out
    del small


@pytest.mark.parametrize("name", ["program diff", "reshard", "tree diff"])
def test_a_missing_second_argument_is_an_error(name):
    """An explicit None is a missing argument."""
    show, _, arguments = PAIRS[name]
    with pytest.raises(TypeError, match=r"two arguments.* and None"):
        show(arguments()[0])
    with pytest.raises(TypeError, match=r"two arguments.* and None"):
        show(arguments()[0], None)


ARRAYS = jai.live_array_report()


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (
            lambda: jai.print_check(jai.check_report(PLANNED), hbm_nbytes=1),
            "a CheckReport .* remove hbm_nbytes=",
        ),
        (lambda: jai.print_log(jai.log_report([]), mesh={"a": 1}), "a LogReport .* remove mesh="),
        (
            lambda: jai.print_tree_diff(jai.tree_diff_report(TREE, TREE), TREE),
            "a TreeDiff .* the second argument",
        ),
        (lambda: jai.print_array_stats(ARRAYS, origins=True), "a LiveArrayReport .* remove origins="),
        (
            lambda: jai.pretty_memory_stats(jai.memory_report(jax.devices()[0]), {"num_allocs": 1}),
            "a MemoryReport .* remove override=",
        ),
        (
            lambda: jai.print_compile_caches(jai.compile_caches_report(), clear="double"),
            "a CompileCachesReport .* remove clear=",
        ),
        (lambda: jai.print_log([], max_rows=1.5), "max_rows must be an integer, None or 'fit', got 1.5"),
        (lambda: jai.print_array_stats(max_rows="3"), "max_rows must be an integer, None or 'fit', got '3'"),
    ],
)
def test_what_would_be_ignored_is_an_error(call, problem):
    with pytest.raises(TypeError, match=problem):
        call()


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: jai.print_array_stats(ARRAYS, by="origin"), "the report has no allocation sites"),
        (lambda: jai.print_compilations(3), "expected a watch from watch_compiles"),
        (lambda: jai.print_program_diff(3, 4), "got <class 'int'>: program_report returns one"),
        (lambda: jai.print_compile_caches(len), "got <class .*>: compile_caches_report returns one"),
        (lambda: jai.assert_donated(None, "x"), "expected a ProgramReport, got <class 'NoneType'>"),
        (lambda: jai.shard_report(jnp.zeros(3), 0), "expected an ArrayReport"),
        (lambda: jai.to_json(3), "expected a report, got <class 'int'>"),
        (
            lambda: jai.from_json(None),
            "expected the JSON of a report .*to_json returns, got <class 'NoneType'>",
        ),
        (lambda: jai.log_report(jai.log_report([])), "expected the path of a log, .* got .*LogReport"),
        (lambda: jai.print_log(3), "expected the path of a log, an open file or lines, got <class 'int'>"),
        (lambda: jai.array_picture(len), "expected a layout or the report of an array, .* array_report"),
        (lambda: jai.assert_no_regression(PLANNED, PLANNED, 3), "expected rules as text, such as fail_on="),
        (lambda: jai.live_array_report(3), 'expected the name of a platform, such as "cpu", got <class'),
        (lambda: jai.track_arrays(len), 'expected the name of a platform, such as "cpu", got <class'),
        (
            lambda: jai.planned_report(3, {}, ()),
            r"a shape is a sequence of integers, such as \(8, 4\), got 3",
        ),
        (lambda: jai.sharding_layout("x", None), "a shape is a sequence of integers, .* got 'x'"),
        (lambda: jai.shard_report(jai.planned_report((2,), {}, ()), 1.0), "expected the id of a device"),
        (lambda: jai.xla_report(3), "expected an XLA sharding as text, such as .* got <class 'int'>"),
        (lambda: jai.xla_report("{devices=[8]<=[8]}", {}), "the mesh without axes has 1 device, but"),
    ],
)
def test_what_is_no_report_or_of_another_type_is_named(call, problem):
    with pytest.raises(ValueError, match=problem):
        call()


def test_a_report_of_an_array_or_a_tree_is_no_tree(capsys):
    for report in (jai.array_report(jnp.zeros(3)), PLANNED):
        jai.print_report(report)
        printed = capsys.readouterr().out
        jai.sharding_info(report)
        assert capsys.readouterr().out == printed
