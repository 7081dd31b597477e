"""Values that XLA gathers whole only for each device to take its own part, and programs in processes of their own."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import log_report, program_report
from jax_array_info_core.geometry.layouts.steps import spec_between
from tests.programs import abstract, cube
from tests.resharded import AFTER, BEFORE, CALLBACK, REPLICATED, RIGHT, array, grid, layers, moment, to

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]

ROOT = str(Path(__file__).parents[3])
PROGRAMS = """
import os
from jax_array_info_core import program_report
from tests.resharded import CALLBACK, REPLICATED, RIGHT
for name, program in {**REPLICATED, **RIGHT, **CALLBACK}.items():
    os.write(2, f"@{name}\\n".encode())
    function, *arguments = program()
    report = program_report(function, *arguments, min_nbytes=0)
    print(name, sum(one.count for one in report.rematerializations), sep="=")
"""


def run(code, *prefix, **settings):
    """Return what a program prints on 8 devices, and what it and XLA print to standard error."""
    settings = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")]),
        **settings,
    }
    command = [*prefix, sys.executable, "-c", code]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def compared():
    """Return the number of values that each program replicates: those found, and those that XLA warns of."""
    printed, errors = run(PROGRAMS, TF_CPP_MIN_LOG_LEVEL="1")
    found = {name: int(count) for name, _, count in (line.partition("=") for line in printed.splitlines())}
    warned, name = Counter(), ""
    for line in errors.splitlines():
        if line.startswith("@"):
            name = line[1:]
        elif "nvoluntary full rematerialization" in line and "%fake_parameter" not in line:
            warned[name] += 1
    return found, warned


@pytest.mark.own_process
@pytest.mark.parametrize("name", REPLICATED)
def test_all_values_are_found_of_which_xla_warns(compared, name):
    found, warned = compared
    assert found[name] == warned[name] > 0


@pytest.mark.own_process
@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_found_in_programs_that_are_right(compared, name):
    found, warned = compared
    assert (found[name], warned[name]) == (0, 0)


@pytest.mark.own_process
def test_the_value_of_a_callback_is_not_one(compared):
    found, _ = compared
    assert {found[name] for name in CALLBACK} == {0}


FINDINGS = """
import json
from jax_array_info_core import program_report, to_json
from tests.resharded import REPLICATED
for name in ("scanned layers", "choice"):
    function, *arguments = REPLICATED[name]()
    print(json.dumps(json.loads(to_json(program_report(function, *arguments)))["findings"]))
"""


@pytest.mark.own_process
def test_the_findings_depend_neither_on_logs_nor_on_standard_error_nor_on_caches(tmp_path):
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    found, _ = run(FINDINGS)
    assert found.count('"code": "JAI208"') == 2
    assert run(FINDINGS, TF_CPP_MIN_LOG_LEVEL="3", **cache)[0] == found
    written = set(tmp_path.iterdir())
    assert written
    assert run(FINDINGS, "sh", "-c", 'exec "$@" 2>&-', "sh", **cache)[0] == found
    assert {path for path in tmp_path.iterdir() if path.name.endswith("-cache")} <= written


LARGE = """
import json, jax, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
from jax_array_info_core import program_report
from tests.programs import abstract, loss

mesh = Mesh(np.array(jax.devices()).reshape(8, 32, 2), ("data", "fsdp", "tensor"))
params = {
    "wi": abstract(mesh, P("fsdp", "tensor"), (8192, 28672), "bfloat16"),
    "wo": abstract(mesh, P("tensor", "fsdp"), (28672, 8192), "bfloat16"),
}
x = abstract(mesh, P(("data", "fsdp")), (512, 2048, 8192), "bfloat16")
report = program_report(jax.grad(loss), params, x)
print(json.dumps({
    "sent": [[one.kind, one.axes, one.nbytes] for one in report.sent.by_kind_and_axes],
    "gathered": sorted({one.path for one in report.collectives if one.kind == "all-gather"}),
    "outputs": [[str(value.got.spec), value.lost_axes] for value in report.outputs],
    "caveats": report.caveats,
    "unread": report.unread,
}))
"""


@pytest.mark.own_process
def test_a_gradient_on_512_devices_gathers_its_parameters_and_reduces_over_data_and_fsdp():
    found = json.loads(run(LARGE, XLA_FLAGS="--xla_force_host_platform_device_count=512")[0])
    assert sorted(found["sent"]) == [
        ["all-gather", ["fsdp"], 1_365_245_952],
        ["all-reduce", ["data", "fsdp"], 1_871_708_160],
        ["all-reduce", ["tensor"], 134_217_728],
    ]
    assert found["gathered"] == ["params/wi", "params/wo"]
    assert found["outputs"] == [["P(None, 'tensor')", ["fsdp"]], ["P('tensor',)", ["fsdp"]]]
    assert any("bfloat16" in caveat and "float32" in caveat for caveat in found["caveats"])
    assert found["unread"] == []


def test_a_compiled_program_has_the_same_values_without_its_lowered_one():
    function, *arguments = REPLICATED["choice"]()
    compiled = jax.jit(function).lower(*arguments).compile()
    [found] = program_report(compiled).rematerializations
    assert (found.before.axes, found.after.axes) == ((("y",), (), ("x",)), ((), ("x", "y")))


def test_a_value_has_its_shard_its_whole_its_specs_and_the_bytes_that_a_device_sends():
    function, *arguments = REPLICATED["moment of a transposed gradient"]()
    report = program_report(function, *arguments)
    [found] = report.rematerializations
    assert (found.shape, found.whole_shape, found.dtype) == ((8, 16, 4), (16, 16, 16), "float32")
    assert (found.before.axes, found.after.axes) == ((("y",), (), ("x",)), ((), ("x", "y")))
    assert found.axes == ("x", "y")
    assert (found.nbytes, found.sent_nbytes) == (16**3 * 4, (16**3 - 8 * 16 * 4) * 4)
    assert found.origin.line == moment.__code__.co_firstlineno + 1
    [finding] = [one for one in report.findings if one.code == "JAI208"]
    assert finding.nbytes == found.nbytes
    assert "holds the whole array for a while, and sends 14.0 KiB per call." in finding.problem
    [leaf] = finding.leaves
    assert leaf.shape == (16, 16, 16)
    assert leaf.change == (
        "the whole of shards float32[8,16,4], from P('y', None, 'x') to P(None, ('x', 'y'))"
    )


def test_an_argument_that_is_only_resharded_has_its_name():
    function = jax.jit(lambda x: x, out_shardings=NamedSharding(grid(), AFTER))
    [found] = program_report(function, array(BEFORE, 16, 16, 16)).rematerializations
    assert found.op == "x"


def test_the_bytes_of_values_in_a_loop_are_sent_in_each_turn_and_the_largest_is_held():
    function, *arguments = REPLICATED["scanned layers"]()
    report = program_report(function, *arguments)
    each = (16**3 - 8 * 16 * 4) * 4
    assert sorted(one.sent_nbytes for one in report.rematerializations) == [3 * each, 3 * each]
    [finding] = [one for one in report.findings if one.code == "JAI208"]
    assert finding.nbytes == 16**3 * 4
    assert "(the largest takes 16.0 KiB), and sends 84.0 KiB per call." in finding.problem
    assert {one.origin.line for one in report.rematerializations} <= {
        *range(to.__code__.co_firstlineno, to.__code__.co_firstlineno + 3),
        *range(layers.__code__.co_firstlineno, layers.__code__.co_firstlineno + 6),
    }


def test_the_bytes_of_a_value_in_a_loop_of_unknown_length_are_unknown():
    def until(x):
        def turn(x):
            return to(to(jnp.sin(x), *BEFORE) * 2, *AFTER)

        return jax.lax.while_loop(lambda x: x.sum() > 1, turn, x)

    report = program_report(until, array(AFTER, 16, 16, 16))
    inside = [one.sent_nbytes for one in report.rematerializations if "while" in str(one.op)]
    assert inside
    assert set(inside) == {None}
    known = [one.sent_nbytes for one in report.rematerializations if one.sent_nbytes is not None]
    [finding] = [one for one in report.findings if one.code == "JAI208"]
    # Some versions of XLA also replicate the argument, before the loop.
    assert known == [14 * 2**10] * len(known)
    assert ("sends at least 14.0 KiB per call" in finding.problem) == (len(known) == 1)


def test_specs_are_unknown_where_further_mesh_axes_may_shard_the_value():
    mesh = cube()
    data, fsdp, tensor = mesh.axis_names

    def on(x, *spec):
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))

    def turned(x):
        return on(on(jnp.sin(x), fsdp, None, data, tensor) * 2, None, (data, fsdp), None, tensor) + 1

    report = program_report(turned, abstract(mesh, P(fsdp, None, data, tensor), (8, 8, 8, 8)))
    [found] = report.rematerializations
    assert (found.before, found.after, found.axes) == (None, None, (data, fsdp))
    [finding] = [one for one in report.findings if one.code == "JAI208"]
    assert finding.leaves[0].change.endswith("gathered over data, fsdp")


SHARDINGS = (
    "{devices=[4,1,1,2]<=[8] last_tile_dim_replicate} to {devices=[1,1,4,2]<=[8] last_tile_dim_replicate}"
)
LINE = (
    f"[SPMD] Involuntary full rematerialization. The compiler cannot go from sharding {SHARDINGS} efficiently "
    "for HLO operation %{0} = f32[{1},64,256]{2,1,0} add(%a, %b)."
)


def warning(name, rows):
    return LINE.replace("{0}", name).replace("{1}", str(rows))


def test_the_total_of_warnings_is_the_largest_value_and_what_a_device_sends_for_all():
    report = log_report([*[warning("sum", 8)] * 3, warning("product", 2)], mesh={"fsdp": 4, "tensor": 2})
    assert [(one.shape, one.whole_shape, one.count) for one in report.rematerializations] == [
        ((8, 64, 256), (32, 64, 256), 3),
        ((2, 64, 256), (8, 64, 256), 1),
    ]
    [finding] = report.findings
    assert finding.nbytes == 2 * 2**20
    # Three quarters of three values of 2 MiB and one of 512 KiB.
    assert "(the largest takes 2.0 MiB), and sends 4.9 MiB if each runs once." in finding.problem


@pytest.mark.parametrize("names", [("x",), ("y",), ("x", "y")])
def test_what_the_program_asks_for_in_a_loop_is_not_one(names):
    """XLA keeps the carry in shards, and each device takes its own one back."""

    def summed(b):
        turn = lambda t, acc: to(acc + to(b[t], names))  # noqa: E731
        return jax.lax.fori_loop(0, 5, turn, to(jnp.zeros(b.shape[1:])))

    assert program_report(summed, array(P(None, names), 5, 16, 32), min_nbytes=0).rematerializations == ()


@pytest.mark.parametrize(
    ("before", "after"),
    [(BEFORE, AFTER), (P(("y", "x")), P(None, None, "y")), (P(None, "y", "x"), P(("y", "x")))],
)
def test_two_steps_send_what_is_printed(before, after):
    (found,) = program_report(lambda x: to(jnp.sin(x), *after), array(before, 16, 16, 16)).rematerializations
    sizes = grid().shape
    between = spec_between(found.before, found.after, found.whole_shape, sizes)
    report = program_report(
        lambda x: to(to(to(jnp.sin(x), *before), *between.spec.axes), *after),
        array(before, 16, 16, 16),
        min_nbytes=0,
    )
    assert report.rematerializations == ()
    assert report.sent.nbytes == 4 * between.elements < found.sent_nbytes
