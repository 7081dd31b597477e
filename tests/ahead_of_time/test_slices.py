"""Programs for several TPU slices that are not here. The session ahead-of-time installs their compiler."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    CheckError,
    assert_no_collective,
    assert_no_regression,
    assert_sent,
    assert_work_divided,
    from_json,
    program_report,
    to_json,
    topology_mesh,
)
from jax_array_info_core.compat.topologies import topology_devices, topology_of
from jax_array_info_core.compat.topology_names import NAMED_SLICES, TPUS, parse_topology
from jax_array_info_core.errors import TopologyError
from tests.ahead_of_time import needs_tpu_compiler
from tests.programs import abstract

pytestmark = [pytest.mark.needs_devices(8), needs_tpu_compiler]


@pytest.mark.parametrize("chip", TPUS)
def test_libtpu_has_the_slices_that_have_names(chip):
    """Also of several slices. Larger ones than 2,048 devices are left out: they take seconds."""
    for name in (name for name, (kind, _) in NAMED_SLICES.items() if kind == chip):
        topology = parse_topology(name)
        if topology.device_count <= 2048:
            assert topology_of(topology_devices(topology)[0]) == topology
    for slices in ("", "2*"):
        topology = parse_topology(f"{slices}{chip}:2x2")
        devices = topology_devices(topology)
        assert (len(devices), topology_of(devices[-1])) == (topology.device_count, topology)


WIDTH, ROWS, LENGTH = 512, 256, 1024


def gradient(w, x):
    return jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w)


def sent_over(report):
    return {one.link: one.nbytes for one in report.sent.by_link}


def gradient_on(mesh, batch_axes, **options):
    w = abstract(mesh, P("ici"), (WIDTH, ROWS))
    x = abstract(mesh, P(batch_axes), (LENGTH, WIDTH))
    return program_report(jax.jit(gradient, out_shardings=w.sharding), w, x, **options)


@pytest.mark.parametrize("slices", [2, 4])
def test_a_gradient_is_reduced_over_slices_by_dcn_and_inside_them_as_on_one_slice(slices):
    """Each device has a quarter of the gradient in float32, which is reduced over the slices.

    A device sends 2 (n - 1) / n times its bytes, n the number of slices, by DCN. Inside the slice, it sends as
    much as on one slice: three quarters of the gathered weights in bfloat16, and of the gradient in float32.
    """
    sizes = {"dcn": slices, "ici": 4}
    mesh = topology_mesh(f"{slices}*v5p:2x2x1", sizes, dcn={"dcn": slices})
    report = gradient_on(mesh, ("dcn", "ici"))
    assert (report.topology, report.device_count, report.unread) == (f"{slices}*v5p:2x2x1", 4 * slices, ())
    over_dcn = 2 * (WIDTH * ROWS * 4 // 4) * (slices - 1) // slices
    inside = WIDTH * ROWS * (2 + 4) * 3 // 4
    assert sent_over(report) == {"dcn": over_dcn, "ici": inside}
    assert {(one.kind, one.axes, one.link): one.sent_nbytes for one in report.collectives} == {
        ("all-reduce", ("dcn",), "dcn"): over_dcn,
        ("all-gather", ("ici",), "ici"): WIDTH * ROWS * 2 * 3 // 4,
        ("reduce-scatter", ("ici",), "ici"): WIDTH * ROWS * 4 * 3 // 4,
    }
    lines = {one.origin.line for one in report.collectives}
    assert lines == {gradient.__code__.co_firstlineno + 1}
    one_slice = gradient_on(topology_mesh("v5p:2x2x1", {"ici": 4}), "ici")
    assert sent_over(one_slice) == {"ici": inside}
    assert_no_collective(report, "all-gather", link="dcn")
    assert_sent(report, over_dcn, link="dcn")
    with pytest.raises(CheckError, match="by DCN"):
        assert_sent(report, over_dcn - 1, link="dcn")
    compiled = jax.jit(gradient, out_shardings=NamedSharding(mesh, P("ici")))
    arguments = abstract(mesh, P("ici"), (WIDTH, ROWS)), abstract(mesh, P(("dcn", "ici")), (LENGTH, WIDTH))
    of_compiled = program_report(compiled.lower(*arguments).compile())
    assert of_compiled.sent.by_link == report.sent.by_link
    assert from_json(to_json(report)) == report


def test_a_mesh_that_is_here_is_placed_on_slices():
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("dcn", "ici"))
    bandwidths = {"dcn": "6.25GB/s", "ici": "90GB/s"}
    report = gradient_on(mesh, ("dcn", "ici"), topology="2*v5p-8", dcn={"dcn": 2}, bandwidths=bandwidths)
    assert sent_over(report) == {"dcn": 131_072, "ici": 589_824}
    assert [one.least_seconds for one in report.sent.by_link] == [131_072 / 6.25e9, 589_824 / 90e9]
    assert report.answer.startswith(
        "DCN 128.0 KiB (at least 20.9 µs), ICI 576.0 KiB (at least 6.5 µs) per call; fits: needs "
    )
    with pytest.raises(
        TopologyError, match=r"several axes of the mesh dcn=2,ici=4 can span all of them: name the axes"
    ):
        gradient_on(mesh, ("dcn", "ici"), topology="2*v5p:2x2x1")


SPLIT = {"data": 4, "model": 2}


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        (("model",), {("all-reduce", ("model",), "ici")}),
        (
            ("data",),
            {
                ("reduce-scatter", ("data:(2)2",), "ici"),
                ("all-reduce", ("data:(1)2",), "dcn"),
                ("all-gather", ("data:(2)2",), "ici"),
            },
        ),
    ],
)
def test_an_axis_that_spans_slices_in_part_is_reduced_in_a_slice_first(axes, expected):
    mesh = topology_mesh("2*v5p:2x2x1", SPLIT, dcn={"data": 2})
    summed = jax.shard_map(
        lambda x: lax.psum(x, axes), mesh=mesh, in_specs=P(("data", "model")), out_specs=P(), check_vma=False
    )
    report = program_report(jax.jit(summed), abstract(mesh, P(("data", "model")), (LENGTH, ROWS)))
    assert {(one.kind, one.axes, one.link) for one in report.collectives} == expected


def test_a_loop_repeats_what_it_sends_between_slices():
    """The gradients of four layers are a quarter of the weights on each device, and reduced once."""
    mesh = topology_mesh("2*v5p:2x2x1", {"dcn": 2, "ici": 4}, dcn={"dcn": 2})
    weights = abstract(mesh, P(None, "ici"), (4, 512, 512))

    def loss(w, x):
        return jnp.mean(lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0] ** 2)

    step = jax.jit(jax.grad(loss), out_shardings=weights.sharding)
    report = program_report(step, weights, abstract(mesh, P(("dcn", "ici")), (64, 512)))
    assert sent_over(report)["dcn"] == 4 * 512 * 512 * 4 // 4
    assert {one.kind for one in report.collectives if one.link == "dcn"} == {"all-reduce"}


def test_work_that_is_repeated_over_slices_names_their_axis_and_breaks_the_gate():
    mesh = topology_mesh("2*v5e:2x2", {"slices": 2, "chips": 4}, dcn={"slices": 2})
    x, w = abstract(mesh, P(("slices", "chips")), (LENGTH, WIDTH)), abstract(mesh, P(), (WIDTH, WIDTH))
    whole = NamedSharding(mesh, P("chips"))
    even = program_report(jax.jit(lambda x, w: x @ w), x, w)
    repeated = program_report(jax.jit(lambda x, w: lax.with_sharding_constraint(x, whole) @ w), x, w)
    assert_work_divided(even)
    with pytest.raises(CheckError, match=r"2.00 times over slices"):
        assert_work_divided(repeated)
    with pytest.raises(CheckError, match=r"share of work 1.000 times to 2.000 times"):
        assert_no_regression(even, repeated, "work")
