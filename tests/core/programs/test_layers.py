"""Rows of parameters and scopes: what folds, where each share goes, and that all figures add up."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import layers_report, program_report, to_json
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.facts.reports.collectives import SentTotals
from jax_array_info_core.facts.reports.program_memory import ProgramMemory, SavedForBackward
from jax_array_info_core.reports import CostShare, Parameter, ProgramReport, ProgramValue

PATHS = (*(f"params/{layer}/{name}" for layer in (0, 1, 2) for name in ("up", "down")), "params/head")
COSTS = [name for name in CostShare.__dataclass_fields__ if name not in ("parameters", "scope")]
made_by_hand = pytest.mark.newest


def argument(path, shape=(4, 8), **facts):
    return ProgramValue(path=path, shape=shape, dtype="float32", **{"nbytes": 128, **facts})


def program(costs=(), **facts):
    """Return the report of a step with seven parameters, one moment each, and a batch."""
    moments = [argument(path.replace("params", "mu")) for path in PATHS]
    sums = {name: sum(getattr(share, name) for share in costs) for name in COSTS}
    saved = SavedForBackward(nbytes=sums["saved_nbytes"])
    sent = sum(number for name, number in sums.items() if name.endswith(("sent_nbytes", "reduced_nbytes")))
    usual = {
        "arguments": (*map(argument, PATHS), *moments, argument("batch", (2,), nbytes=8)),
        "parameters": tuple(Parameter(path=path, moments=(path.replace("params", "mu"),)) for path in PATHS),
        "costs": tuple(costs),
        "sent": SentTotals(nbytes=sent, unknown_count=sums["unknown_count"]),
        "known_dot_flops": sum(number for name, number in sums.items() if name.endswith("flops")),
        "memory": ProgramMemory(argument_nbytes=14 * 128 + 8, saved=saved),
    }
    return ProgramReport(name="step", platform="cpu", **{**usual, **facts})


shares = st.builds(
    CostShare,
    parameters=st.lists(st.sampled_from(PATHS), max_size=3, unique=True).map(tuple),
    scope=st.sampled_from(["", "net/0/attn", "net/1/attn", "net/0/mlp", "head"]),
    **{name: st.integers(0, 2**40) for name in COSTS},
)


@made_by_hand
@pytest.mark.parametrize("by", ["parameter", "scope"])
@given(costs=st.lists(shares, max_size=12))
def test_rows_add_up_to_the_figures_of_the_program(by, costs):
    """Each share of a figure, and each parameter, is in exactly one row."""
    report = program(costs)
    total = layers_report(report, by=by).total
    assert (total.sent_nbytes, total.flops) == (report.sent.nbytes, report.known_dot_flops)
    assert (total.saved_nbytes, total.unknown_count) == (
        report.memory.saved.nbytes,
        report.sent.unknown_count,
    )
    assert (total.parameter_count, total.moment_nbytes) == (7 * 32, 7 * 128)
    assert total.held_nbytes == report.memory.argument_nbytes


@made_by_hand
def test_layers_that_agree_share_a_row_and_their_shares():
    """``up`` of layer 2 has another shape: it has its own row, and a line of all three belongs to the rest."""
    costs = [
        CostShare(parameters=("params/0/up",), forward_flops=3),
        CostShare(parameters=("params/1/up",), forward_flops=5),
        CostShare(parameters=("params/0/up", "params/1/up"), saved_nbytes=7),
        CostShare(parameters=("params/0/up", "params/2/up"), saved_nbytes=11),
        CostShare(forward_sent_nbytes=13),
    ]
    report = program(costs)
    arguments = [
        argument(one.path, (2, 16)) if one.path == "params/2/up" else one for one in report.arguments
    ]
    found = layers_report(replace(report, arguments=tuple(arguments)))
    assert [(row.name, len(row.paths)) for row in found.rows] == [
        ("params/0-1/up", 2),
        ("params/0-2/down", 3),
        ("params/2/up", 1),
        ("params/head", 1),
    ]
    first = found.rows[0]
    assert (first.shape, first.parameter_count, first.held_nbytes) == ((4, 8), 64, 4 * 128)
    assert (first.flops, first.saved_nbytes) == (8, 7)
    assert (found.rest.saved_nbytes, found.rest.sent_nbytes) == (11, 13)


@made_by_hand
def test_a_parameter_is_in_the_scope_of_its_products():
    """Its gathers can be elsewhere. With products in two scopes, as a tied embedding has, it is in none."""
    costs = [
        CostShare(parameters=("params/0/up",), scope="net/0", forward_sent_nbytes=1),
        CostShare(parameters=("params/0/up",), scope="net/0/mlp", forward_flops=1),
        CostShare(parameters=("params/1/up",), scope="net/1/mlp", forward_flops=1),
        CostShare(parameters=("params/0/down",), scope="net/0", reduced_nbytes=1),
        *(CostShare(parameters=("params/head",), scope=name, forward_flops=1) for name in ("net", "head")),
    ]
    found = layers_report(program(costs), by="scope")
    assert [(row.name, row.paths) for row in found.rows] == [
        ("net/0", ("params/0/down",)),
        ("net/0-1/mlp", ("params/0/up", "params/1/up")),
        ("net", ()),
        ("head", ()),
    ]
    assert "params/head" in found.rest.paths


@made_by_hand
def test_bytes_of_no_parameter_are_those_of_the_other_arguments_without_padding():
    """XLA's arguments take 1 KiB more than their shards have: a caveat has the difference, not a row."""
    words = "without 1.0 KiB by which XLA pads the arguments"
    plain = layers_report(program())
    assert plain.rest.parameter_nbytes == 8
    assert not any("pads" in caveat for caveat in plain.caveats)
    padded = program(memory=ProgramMemory(argument_nbytes=14 * 128 + 8 + 1024))
    assert layers_report(padded).rest.parameter_nbytes == 8
    assert words in layers_report(padded).caveats
    on_tpu = layers_report(replace(padded, platform="tpu"))
    assert f"{words}: TPU stores arrays in tiles" in on_tpu.caveats
    [*others, batch] = padded.arguments
    unsized = replace(padded, arguments=(*others, replace(batch, nbytes=None)))
    assert layers_report(unsized).rest.parameter_nbytes == 8 + 1024
    unknown = layers_report(program(memory=None))
    assert (unknown.rest.parameter_nbytes, unknown.total.saved_nbytes) == (8, None)
    on_host = replace(argument("params/head"), is_in_host_memory=True)
    arguments = [on_host if one.path == on_host.path else one for one in program().arguments]
    [*_, head] = layers_report(program(arguments=tuple(arguments))).rows
    assert (head.parameter_count, head.parameter_nbytes) == (32, 0)


@made_by_hand
def test_a_report_of_an_older_version_has_the_bytes_of_its_arguments_alone():
    """What is sent, computed and saved is then unknown, not zero."""
    found = layers_report(replace(program(), parameters=None, costs=None))
    assert found.rows == ()
    assert (found.rest.sent_nbytes, found.rest.flops, found.rest.saved_nbytes) == (None, None, None)
    assert found.total.held_nbytes == 14 * 128 + 8
    assert any("older version" in words for words in found.caveats)


def is_said(report, words, **options):
    return any(caveat.startswith(words) for caveat in layers_report(report, **options).caveats)


@made_by_hand
def test_gradients_without_an_output_of_the_keys_of_a_parameter_are_named():
    """A forward function has none to find. An output of another shape is neither gradient nor update."""
    backward = [CostShare(backward_flops=4)]
    words = "Gradients are not of a parameter here"
    assert is_said(program(backward), words)
    assert not is_said(program(backward), words, by="scope")
    assert not is_said(program([CostShare(forward_flops=4)]), words)
    assert is_said(program([CostShare(saved_nbytes=4)]), words)
    assert is_said(program(backward, outputs=(argument("outputs/0/up", (2, 4)),)), words)
    trained = tuple(replace(one, is_trained=True) for one in program().parameters[:1])
    for path in ("outputs/0/up", "outputs/1/0/up"):
        assert not is_said(program(backward, outputs=(argument(path),), parameters=trained), words)


@made_by_hand
def test_a_program_without_parameters_has_the_way_to_name_them():
    words = "No parameter was found: pass the weights"
    assert is_said(program(parameters=()), words)
    assert not is_said(program(parameters=()), words, by="scope")
    assert not is_said(program(parameters=(), arguments=()), words)
    assert not is_said(program(), words)


@made_by_hand
def test_what_is_no_program_is_refused(tmp_path):
    report = program()
    with pytest.raises(UnsupportedValueError, match="has its arguments"):
        layers_report(report, 1)
    with pytest.raises(UnsupportedValueError, match="has its arguments"):
        layers_report(report, topology="v5e:2x4")
    with pytest.raises(UnsupportedValueError, match="by must be 'parameter' or 'scope', got 'layer'"):
        layers_report(report, by="layer")
    path = tmp_path / "layers.json"
    path.write_text(to_json(layers_report(report)))
    with pytest.raises(UnsupportedValueError, match="expected the report of a program in"):
        layers_report(path)
    path.write_text(to_json(report))
    assert layers_report(path) == layers_report(str(path)) == layers_report(report)
    path.write_text(json.dumps({**json.loads(to_json(report)), "arguments": []}))
    assert layers_report(path).rows == ()


def step(params, x):
    def loss(params):
        h = x
        for layer in params["layers"]:
            h = jnp.tanh(h @ layer["up"]) @ layer["down"]
        return jnp.mean((h @ params["head"]) ** 2)

    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))


@pytest.mark.once_per_version
@pytest.mark.needs_devices(8)
def test_rows_of_a_step_add_up_to_its_program_report():
    """On each version of JAX, all figures of the report that are known are divided, without a remainder."""
    mesh = Mesh(np.reshape(jax.devices(), (4, 2)), ("fsdp", "tensor"))

    def struct(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    layers = [
        {"up": struct((16, 64), "fsdp", "tensor"), "down": struct((64, 16), "tensor", "fsdp")}
        for _ in range(3)
    ]
    params = {"layers": layers, "head": struct((16, 32), "fsdp")}
    report = program_report(step, params, struct((8, 16), "fsdp"))
    found = layers_report(report)
    assert [(row.name, row.parameter_count) for row in found.rows] == [
        ("params/head", 16 * 32),
        ("params/layers/0-2/down", 3 * 64 * 16),
        ("params/layers/0-2/up", 3 * 16 * 64),
    ]
    assert found.total.sent_nbytes == report.sent.nbytes
    assert found.total.flops == report.known_dot_flops
    assert found.total.held_nbytes == report.memory.argument_nbytes
    assert found.total.saved_nbytes == report.memory.saved.nbytes
    assert layers_report(step, params, struct((8, 16), "fsdp")) == found
