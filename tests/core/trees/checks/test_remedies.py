"""The remedy of each code, applied to a case of its page: the finding is then gone."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    check_report,
    log_report,
    program_report,
)
from jax_array_info_core.compat.arrays import per_shard
from jax_array_info_core.facts.reports.codes import CODES
from tests.ahead_of_time.test_remedies import ON_ACCELERATORS
from tests.core.trees.checks import propagation_remedies  # noqa: F401, its cases
from tests.core.trees.checks.remedies import (
    FSDP,
    REMEDIES,
    kept,
    remedy_of,
    struct,
)
from tests.programs import abstract, line

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]

PAGE = Path(__file__).parents[4] / "docs" / "findings" / "index.md"


@remedy_of("JAI101")
def sharded_further():
    params = {"embed": struct(32000, 1024), "head": struct(1024, 32000)}
    specs = {"embed": P("fsdp"), "head": P()}
    yield check_report(params, mesh=FSDP, specs=specs)
    yield "Shard the leaves as listed, or pass replicated_over=('fsdp',)"
    yield check_report(params, mesh=FSDP, specs={**specs, "head": P(None, "fsdp")})
    yield check_report(params, mesh=FSDP, specs=specs, replicated_over=("fsdp",))


@remedy_of("JAI102")
def placed_on_the_mesh():
    mesh = line("fsdp")
    w = jax.device_put(jnp.zeros((1024, 1024)), NamedSharding(mesh, P("fsdp")))
    scale, sharding = jnp.ones((1024, 64)), NamedSharding(mesh, P("fsdp"))
    yield check_report({"w": w, "scale": scale})
    yield "Create the leaves inside jit with out_shardings, or use device_put"
    yield check_report({"w": w, "scale": jax.device_put(scale, sharding)})
    made = jax.jit(lambda: jnp.ones((1024, 64)), out_shardings=sharding)()
    yield check_report({"w": w, "scale": made})
    yield check_report({"w": w, "scale": scale}, devices=1)
    yield check_report({"w": w, "scale": scale}, ignore="scale")


@remedy_of("JAI112")
def put_on_one_mesh():
    first, other = jax.devices()[3], jax.devices()[5]
    tree = {"c": jax.device_put(jnp.ones(()), first), "d": jax.device_put(jnp.ones(()), other)}
    add = jax.jit(lambda tree: tree["c"] + tree["d"])
    yield check_report(tree)
    yield "Put all leaves on the devices of one mesh: jax.device_put(x, NamedSharding(mesh, P()))"
    with pytest.raises(ValueError, match="ncompatible devices"):
        add(tree)
    placed = jax.device_put(tree, NamedSharding(line(), P()))
    add(placed)
    yield check_report(placed)
    yield check_report(tree, devices=1)
    yield check_report(tree, ignore=("c", "d"))


@remedy_of("JAI112")
def put_on_the_mesh_of_the_others():
    mesh = line("fsdp")
    w = jax.device_put(jnp.zeros((1024, 64)), NamedSharding(mesh, P("fsdp")))
    scale = jax.device_put(jnp.ones((1024, 64)), jax.devices()[0])
    yield check_report({"w": w, "scale": scale})
    yield "Put all leaves on the devices of one mesh"
    with pytest.raises(ValueError, match="ncompatible devices"):
        jax.jit(lambda w, scale: w * scale)(w, scale)
    yield check_report({"w": w, "scale": jax.device_put(scale, NamedSharding(mesh, P()))})


@remedy_of("JAI111")
def sharded_like_the_others():
    tree, like = [struct(1024, 64)] * 4, [P("fsdp")] * 4
    odd = [*like[:3], P(None, "fsdp")]
    yield check_report(tree, mesh=FSDP, specs=odd)
    yield "Shard it like the others. If the difference is intended, list the path in ignore."
    yield check_report(tree, mesh=FSDP, specs=like)
    yield check_report(tree, mesh=FSDP, specs=odd, ignore="3")


@remedy_of("JAI103")
def divided():
    yield check_report({"w": struct(1001, 64)}, mesh=FSDP, specs=P("fsdp"))
    yield "Change the shape or the spec as listed."
    yield check_report({"w": struct(1008, 64)}, mesh=FSDP, specs=P("fsdp"))
    yield check_report({"w": struct(1001, 64)}, mesh=FSDP, specs=P(None, "fsdp"))


@remedy_of("JAI104")
def corrected_names():
    yield check_report({"w": struct(1024, 1024)}, mesh=FSDP, specs=P("fdsp"))
    yield "Correct the specs."
    yield check_report({"w": struct(1024, 1024)}, mesh=FSDP, specs=P("fsdp"))


@remedy_of("JAI105")
def used_axes():
    mesh = {"data": 2, "fsdp": 4}
    yield check_report({"w": struct(1024, 1024)}, mesh=mesh, specs=P("fsdp"))
    yield "Shard leaves over it, or pass replicated_over=('data',)"
    yield check_report({"w": struct(1024, 1024)}, mesh=mesh, specs=P("fsdp", "data"))
    yield check_report({"w": struct(1024, 1024)}, mesh=mesh, specs=P("fsdp"), replicated_over=("data",))


@remedy_of("JAI106")
def expected():
    tree, wanted = {"w": struct(1024, 1024)}, P(None, "fsdp")
    yield check_report(tree, mesh=FSDP, specs=P("fsdp"), expect=wanted)
    yield "Change their shardings, or correct expect."
    yield check_report(tree, mesh=FSDP, specs=wanted, expect=wanted)
    yield check_report(tree, mesh=FSDP, specs=P("fsdp"), expect=P("fsdp"))


@remedy_of("JAI107")
def moments_like_parameters():
    mesh = line("fsdp")
    w = jax.device_put(jnp.ones((8192, 64)), NamedSharding(mesh, P("fsdp")))
    replicated = jax.device_put(w, NamedSharding(mesh, P()))
    accepted = {"replicated_over": "fsdp"}
    yield check_report({"params": {"w": w}, "opt_state": {"mu": {"w": replicated}}}, **accepted)
    yield "Create the optimizer state inside jit with out_shardings, or with device_put."
    made = jax.jit(jnp.zeros_like, out_shardings=w.sharding)(w)
    yield check_report({"params": {"w": w}, "opt_state": {"mu": {"w": made}}}, **accepted)
    put = jax.device_put(replicated, w.sharding)
    yield check_report({"params": {"w": w}, "opt_state": {"mu": {"w": put}}}, **accepted)


@remedy_of("JAI108")
def more_devices():
    tree = {"w": jax.ShapeDtypeStruct((65536, 65536), jnp.bfloat16)}
    options = {"specs": P("fsdp"), "hbm_nbytes": "2GiB", "optimizer": "adam"}
    yield check_report(tree, mesh=FSDP, **options)
    yield "Use more devices: at least 12, if they divide the shapes evenly."
    yield check_report(tree, mesh={"fsdp": 16}, **options)


@remedy_of("JAI108")
def evenly_sharded():
    tree = {"w": struct(8192, 8192)}
    yield check_report(tree, mesh=FSDP, specs=P(), hbm_nbytes="64MiB")
    yield "Evenly sharded over 8 devices, it would take 32.0 MiB per device."
    yield check_report(tree, mesh=FSDP, specs=P("fsdp"), hbm_nbytes="64MiB")


@remedy_of("JAI109")
def arrays_passed():
    yield check_report({"step": 1})
    yield "Pass a tree of arrays, or allow_empty=True if no arrays are intended."
    yield check_report({"step": 1, "w": jnp.ones(3)})
    yield check_report({"step": 1}, allow_empty=True)


@remedy_of("JAI201", (0, 10, 1))
def requested_outputs():
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("fsdp", "tensor"))
    wi, wo = (
        abstract(mesh, P("fsdp", "tensor"), (256, 1024)),
        abstract(mesh, P("tensor", "fsdp"), (1024, 256)),
    )
    x = abstract(mesh, P("fsdp"), (32, 64, 256))
    gradients = jax.grad(lambda wi, wo, x: jnp.mean((jax.nn.gelu(x @ wi) @ wo) ** 2), argnums=(0, 1))

    def constrained(*args):
        first, second = gradients(*args)
        return kept(mesh, first, "fsdp", "tensor"), kept(mesh, second, "tensor", "fsdp")

    yield program_report(gradients, wi, wo, x)
    yield "with out_shardings of jax.jit, or with jax.lax.with_sharding_constraint"
    yield program_report(jax.jit(gradients, out_shardings=(wi.sharding, wo.sharding)), wi, wo, x)
    yield program_report(constrained, wi, wo, x)


@remedy_of("JAI203")
def shapes_that_divide():
    mesh = line("fsdp")

    def total(*spec):
        return lambda x: (kept(mesh, jnp.tanh(x), *spec) * 2).sum()

    yield program_report(total("fsdp"), abstract(mesh, P(), (17, 16)))
    yield "Use shapes that the mesh axes divide, or constrain another axis."
    yield program_report(total("fsdp"), abstract(mesh, P(), (24, 16)))
    yield program_report(total(None, "fsdp"), abstract(mesh, P(), (17, 16)))


@remedy_of("JAI205")
def returned_as_passed():
    mesh = line("fsdp")
    params, x = {"w": abstract(mesh, P("fsdp"), (1024, 1024))}, abstract(mesh, P(), (64, 1024))

    def step(params, x):
        gradients = jax.grad(lambda params: (jnp.tanh(x @ params["w"]) ** 2).sum())(params)
        return jax.tree.map(lambda w, g: w - 0.1 * g, params, gradients)

    whole = NamedSharding(mesh, P())
    yield program_report(jax.jit(step, out_shardings=whole), params, x)
    yield "Set out_shardings to the shardings of the arguments, or pass the arguments as they return."
    yield program_report(jax.jit(step, out_shardings={"w": params["w"].sharding}), params, x)
    returned = {"w": abstract(mesh, P(), (1024, 1024))}
    yield program_report(jax.jit(step, out_shardings=whole), returned, x)


@remedy_of("JAI206")
def not_donated():
    mesh = line("fsdp")
    w, batch = abstract(mesh, P("fsdp"), (1024, 1024)), abstract(mesh, P("fsdp"), (64, 1024))

    def scaled(w, batch):
        return 2 * w

    donated = ("w", "batch")
    yield program_report(jax.jit(scaled, donate_argnames=donated), w, batch)
    yield "Do not donate it, or return outputs of the same shape, dtype and sharding."
    yield program_report(jax.jit(scaled, donate_argnames="w"), w, batch)
    yield program_report(jax.jit(lambda w, batch: (2 * w, batch + 1), donate_argnames=donated), w, batch)


@remedy_of("JAI207")
def donated():
    mesh = line("fsdp")
    w, x = abstract(mesh, P("fsdp"), (4096, 1024)), abstract(mesh, P(), (64, 4096))

    def step(w, x):
        return w - 0.1 * jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).sum())(w)

    yield program_report(step, w, x)
    yield "Add the arguments to donate_argnames of jax.jit"
    yield program_report(jax.jit(step, donate_argnames="w"), w, x)


@remedy_of("JAI208")
def constrained_in_between():
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))
    before, after = ("y", None, "x"), (None, ("x", "y"))
    array = abstract(mesh, P(*before), (8, 16, 4))
    found = program_report(lambda a: kept(mesh, kept(mesh, jnp.sin(a), *before), *after), array)
    assert found.findings[0].leaves[0].remedy == "first to P('y', 'x'): the two steps send 320.0 B"
    yield found
    yield "Reshard it in steps that move one mesh axis each"
    steps = program_report(
        lambda a: kept(mesh, kept(mesh, kept(mesh, jnp.sin(a), *before), "y", "x"), *after), array
    )
    assert steps.sent.nbytes == 320
    yield steps


WARNING_OF_CALLBACK = (
    "[SPMD] Involuntary full rematerialization. The compiler cannot go from sharding {maximal device=0} to "
    "{devices=[8,1]<=[8]} efficiently for HLO operation %get-tuple-element = f32[1024,256]{1,0} "
    "get-tuple-element(%custom-call), index=0."
)


@remedy_of("JAI208")
def passed_as_an_argument():
    mesh, numbers = line("fsdp"), np.ones((1024, 256), np.float32)
    sharding = NamedSharding(mesh, P("fsdp"))

    def load():
        return jax.pure_callback(lambda: numbers, struct(*numbers.shape))

    scale = np.float32(0)
    yield log_report([WARNING_OF_CALLBACK])
    assert not program_report(jax.jit(lambda k: load() + k, out_shardings=sharding), scale).rematerializations
    yield "compute it before the call, and pass it as an argument with the sharding that is needed"
    weights = jax.device_put(load(), sharding)
    yield program_report(jax.jit(lambda w, k: w + k, out_shardings=sharding), weights, scale)


@remedy_of("JAI211")
def copied():
    weights = jnp.ones((512, 64))
    step = jax.jit(lambda params: jax.tree.map(lambda leaf: 2 * leaf, params), donate_argnums=0)
    yield program_report(step, {"embed": weights, "head": weights})
    yield "Pass jax.numpy.copy of all but one of the arguments that share it."
    apart = {"embed": weights, "head": jnp.copy(weights)}
    yield program_report(step, apart)
    step(apart)


@remedy_of("JAI212")
def transformed_in_shard_map():
    mesh = line("slab")
    field = abstract(mesh, P("slab"), (32, 32, 32), "complex64")

    def pencils(field):
        field = jnp.fft.fftn(field, axes=(1, 2))
        return jnp.fft.fft(jax.lax.all_to_all(field, "slab", 1, 0, tiled=True), axis=0)

    yield program_report(lambda field: kept(mesh, jnp.fft.fftn(field), "slab"), field)
    yield "In a shard_map, transform the axes that a device has whole, shard another one with all_to_all"
    yield program_report(per_shard(pencils, mesh, P("slab"), P(None, "slab")), field)


@remedy_of("JAI212")
def scattered_into_own_parts():
    mesh = line("slab")
    cells = jax.ShapeDtypeStruct((2**20, 3), jnp.int32, sharding=NamedSharding(mesh, P("slab")))

    def deposit(grid, cells):
        return grid.at[tuple(cells.T)].add(1.0, mode="drop")

    def own(cells):
        return deposit(jnp.zeros((8, 64, 64)), cells)

    yield program_report(lambda cells: kept(mesh, deposit(jnp.zeros((64,) * 3), cells), "slab"), cells)
    yield "In a shard_map, let each device scatter into its own part"
    yield program_report(per_shard(own, mesh, P("slab"), P("slab")), cells)


@remedy_of("JAI212")
def computed_along_another_axis():
    mesh = line("x")
    rows = abstract(mesh, P(None, "x"), (8, 128, 128))
    matrices = abstract(mesh, P("x"), (8, 128, 128))
    yield program_report(lambda x: kept(mesh, jnp.linalg.cholesky(x), None, "x"), rows)
    yield "Shard a dimension that the operation does not need whole, or compute it on shards in a shard_map."
    yield program_report(per_shard(jnp.linalg.cholesky, mesh, P("x"), P("x")), matrices)


ROWS, SQUARE = (4096, 512), (512, 512)


@remedy_of("JAI213")
def random_numbers_constrained():
    mesh = line("mc")
    w = abstract(mesh, P(), SQUARE)
    normal = lambda: jax.random.normal(jax.random.key(0), ROWS)  # noqa: E731
    yield program_report(lambda w: jax.random.normal(jax.random.key(0), ROWS) @ w, w)
    yield 'jax.lax.with_sharding_constraint(jax.random.normal(…), P("mc"))'
    yield program_report(lambda w: kept(mesh, normal(), "mc") @ w, w)


@remedy_of("JAI213")
def sums_on_single_elements_constrained():
    """A program without heavy work counts by all operations."""
    mesh = line("mc")
    area = lambda x: jnp.sum(jnp.exp(-x * x) * jnp.sin(3 * x) * x)  # noqa: E731
    arguments = [abstract(mesh, P(), ())]
    yield program_report(lambda top: area(jnp.linspace(0.0, top, 2**24)), *arguments)
    yield 'jax.lax.with_sharding_constraint(jnp.linspace(…), P("mc"))'
    yield program_report(lambda top: area(kept(mesh, jnp.linspace(0.0, top, 2**24), "mc")), *arguments)


@remedy_of("JAI213")
def an_argument_sharded():
    mesh = line("i")
    yield program_report(jnp.dot, abstract(mesh, P(), ROWS), abstract(mesh, P(), SQUARE))
    yield "Shard an argument or the result over i"
    yield program_report(jnp.dot, abstract(mesh, P("i"), ROWS), abstract(mesh, P(), SQUARE))


@remedy_of("JAI213")
def a_sum_scattered():
    mesh = line("i")
    arguments = abstract(mesh, P(None, "i"), (1024, 1024)), abstract(mesh, P("i"), (1024, 1024))

    def twice(a, b, constrain=lambda x: x):
        x = constrain(a @ b)
        return jnp.tanh(x) @ x.T @ x

    yield program_report(lambda a, b: twice(a, b, lambda x: kept(mesh, x)), *arguments)
    yield 'jax.lax.with_sharding_constraint(x, P("i"))'
    yield program_report(lambda a, b: twice(a, b, lambda x: kept(mesh, x, "i")), *arguments)


@remedy_of("JAI213")
def a_result_kept_sharded():
    mesh = line("i")
    x, w = abstract(mesh, P(), SQUARE), abstract(mesh, P(None, "i"), (512, 4096))
    yield program_report(lambda x, w: kept(mesh, x @ w), x, w)
    yield "Keep an operand or the result sharded over i with jax.lax.with_sharding_constraint"
    yield program_report(lambda x, w: kept(mesh, x @ w, None, "i"), x, w)


@remedy_of("JAI213")
def specs_of_a_shard_map():
    mesh = line("i")
    x, w = abstract(mesh, P("i"), (4096, 512)), abstract(mesh, P(), SQUARE)
    yield program_report(per_shard(jnp.dot, mesh, (P(), P()), P()), x, w)
    yield "in a shard_map by its specs"
    yield program_report(per_shard(jnp.dot, mesh, (P("i"), P()), P("i")), x, w)


@remedy_of("JAI213")
def a_batch_of_matrices_sharded():
    mesh = line("i")
    matrices = lambda *spec: abstract(mesh, P(*spec), (8, 128, 128))  # noqa: E731
    yield program_report(jnp.linalg.eigh, matrices(None, "i"))
    yield "XLA divides eigh only along other dimensions: shard a batch over i"
    yield program_report(per_shard(jnp.linalg.eigh, mesh, P("i"), P("i")), matrices("i"))


@pytest.mark.parametrize(("code", "least", "case"), [case for cases in REMEDIES.values() for case in cases])
def test_a_remedy_that_is_applied_removes_its_finding(code, least, case):
    if jax.__version_info__ < least:
        pytest.skip(f"{code} is found in this case from JAX {'.'.join(map(str, least))} on")
    before, words, *after = case()
    [finding] = [one for one in before.findings if one.code == code]
    assert words in finding.remedy
    assert after
    assert [[one.code for one in report.findings if one.code == code] for report in after] == [[]] * len(
        after
    )


def test_each_code_has_a_remedy_that_is_tried_or_a_reason_in_the_docs():
    table = PAGE.read_text(encoding="utf-8").partition("## Findings without an edit")[2]
    without = re.findall(r"^\| \[(JAI\d{3})\]\([^)]*\1\.md\) \| (.+) \|$", table, re.MULTILINE)
    assert all(reason for _, reason in without)
    tried = {*REMEDIES, *ON_ACCELERATORS}
    assert tried.isdisjoint(dict(without))
    assert tried | {*dict(without)} == {one.code for one in CODES.values()}
