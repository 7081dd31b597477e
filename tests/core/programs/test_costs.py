"""Costs of a program by parameter, compared with counts by hand."""

import functools

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from jax_array_info_core import from_json, layers_report, program_report, to_json
from tests.costed import (
    BATCH,
    FSDP,
    LAYERS,
    LENGTH,
    PRODUCT,
    TENSOR,
    WIDTH,
    assert_complete,
    assert_layers,
    grid,
    layer,
    paths,
    stacked,
    sums,
    tells_passes,
    transformer,
)
from tests.programs import abstract

pytestmark = [pytest.mark.needs_devices(8), pytest.mark.once_per_version]


def path_of(name, number):
    return "/".join(filter(None, ("params/layers", number if number is None else str(number), name)))


def test_a_weight_has_the_products_that_read_it_or_compute_its_gradient():
    """Scanned or not, its operations, its gathers and the sum of its gradient are those counted by hand."""
    for is_scanned in (True, False):
        step, arguments = transformer(is_scanned=is_scanned)
        report = program_report(step, *arguments)
        assert_complete(report)
        found = sums(report)
        count = LAYERS if is_scanned else 1
        for name in ("up", "down"):
            costs = found[(path_of(name, None if is_scanned else 2),)]
            passes = ("forward_flops", "backward_flops", "recomputed_flops")
            assert sum(costs.get(of, 0) for of in passes) == 3 * PRODUCT * count
        assert not any(name.endswith("flops") for name in found.get((), ()))


@tells_passes
@pytest.mark.parametrize("remat", [False, True], ids=["saved", "remat"])
@pytest.mark.parametrize("is_scanned", [True, False], ids=["scanned", "unrolled"])
def test_costs_of_a_transformer_are_told_by_pass(is_scanned, remat):
    """Two products in the backward pass for each in the forward pass; and only the first is computed again."""
    step, arguments = transformer(is_scanned=is_scanned, remat=remat)
    report = program_report(step, *arguments)
    assert_complete(report)
    assert_layers(
        report,
        of_path=path_of,
        gathered_nbytes=4,
        reduced_nbytes=8,
        has_remat=remat,
        is_scanned=is_scanned,
    )
    assert sums(report)[("params/scale",)] == {"reduced_nbytes": 2 * 4 * WIDTH * (FSDP - 1) // FSDP}


@tells_passes
def test_a_weight_that_a_scan_keeps_for_the_backward_pass_is_still_the_weight():
    """The forward pass stacks it as bfloat16, and the backward pass gathers and multiplies the stack."""
    step, arguments = transformer(dtype=jnp.bfloat16)
    report = program_report(step, *arguments)
    assert_complete(report)
    # CPU gathers and sums in float32.
    assert_layers(report, of_path=path_of, gathered_nbytes=4, reduced_nbytes=8)
    found = sums(report)[("params/layers/up",)]
    assert found["backward_sent_nbytes"] == found["forward_sent_nbytes"]


def test_arguments_with_gradients_are_parameters_and_others_are_not():
    """The batch is none, whatever its keys; neither are labels, nor what returns changed without gradient."""
    mesh = grid()
    params = {"w": abstract(mesh, P("fsdp"), (WIDTH, WIDTH)), "b": abstract(mesh, P(), (WIDTH,))}
    average = {"mean": abstract(mesh, P(), (WIDTH,))}
    batch = {
        "x": abstract(mesh, P("fsdp"), (BATCH, WIDTH)),
        "weight": abstract(mesh, P("fsdp"), (BATCH, WIDTH)),
        "label": abstract(mesh, P("fsdp"), (BATCH,), "int32"),
    }

    def loss(params, average, batch):
        y = (batch["x"] - average["mean"]) @ params["w"] + params["b"]
        return jnp.mean(batch["weight"] * (y - batch["label"][:, None]) ** 2)

    @jax.jit
    def step(params, average, batch):
        gradient = jax.grad(loss)(params, average, batch)
        average = {"mean": 0.9 * average["mean"] + 0.1 * batch["x"].mean(0)}
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient), average

    report = program_report(step, params, average, batch)
    assert paths(report) == ["params/b", "params/w"]
    assert_complete(report)


@tells_passes
def test_moments_belong_to_their_parameters_and_a_clipped_gradient_to_its_own():
    """The sum of the norm of all gradients is of no parameter."""
    optax = pytest.importorskip("optax", reason="optax is installed only for the tests with libraries")
    mesh = grid()
    params = stacked(mesh)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    state = jax.eval_shape(optimizer.init, params)

    def loss(params, x):
        return jnp.mean(jax.lax.scan(lambda x, w: (layer(x, w), None), x, params)[0] ** 2)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params, state, x):
        updates, state = optimizer.update(jax.grad(loss)(params, x), state, params)
        return optax.apply_updates(params, updates), state

    report = program_report(step, params, state, abstract(mesh, P("fsdp"), (BATCH, LENGTH, WIDTH)))
    assert_complete(report)
    assert [(one.path, one.moments) for one in report.parameters] == [
        (f"params/{name}", (f"state/1/0/mu/{name}", f"state/1/0/nu/{name}")) for name in ("down", "up")
    ]
    found = sums(report)
    for name in ("down", "up"):
        assert found[(f"params/{name}",)]["backward_flops"] == 2 * PRODUCT * LAYERS
        assert found[(f"params/{name}",)]["reduced_nbytes"] > 0


@tells_passes
@pytest.mark.parametrize(
    "returned",
    [
        lambda params, moved, loss: ((params, moved), loss),
        lambda params, moved, loss: (loss, (params, moved)),
        lambda params, moved, loss: {"new_params": params, "new_moved": moved, "loss": loss},
        lambda params, moved, loss: ({"state": {"params": params, "moved": moved}}, {"loss": loss}),
    ],
    ids=["pair", "after the loss", "dict", "nested"],
)
def test_a_step_has_the_same_costs_whatever_its_outputs_are_called(returned):
    mesh = grid()
    params = stacked(mesh)

    def loss(params, x):
        return jnp.mean(jax.lax.scan(lambda x, w: (layer(x, w), None), x, params)[0] ** 2)

    def step_of(returned):
        def step(params, mu, x):
            value, gradient = jax.value_and_grad(loss)(params, x)
            mu = jax.tree.map(lambda m, g: 0.9 * m + g, mu, gradient)
            return returned(jax.tree.map(lambda p, m: p - 0.1 * m, params, mu), mu, value)

        return jax.jit(step)

    x = abstract(mesh, P("fsdp"), (BATCH, LENGTH, WIDTH))
    usual = program_report(step_of(lambda *outputs: outputs), params, params, x)
    other = program_report(step_of(returned), params, params, x)
    assert paths(other) == paths(usual) == ["params/down", "params/up"]
    assert other.costs == usual.costs
    assert layers_report(other).caveats == layers_report(usual).caveats
    assert_complete(other)


@tells_passes
def test_sums_and_products_of_the_forward_pass_are_none_of_a_gradient():
    """A gradient without a product is computed from them: of a scale, and of a router."""
    mesh, experts = grid(), 4
    params = {
        "down": abstract(mesh, P(None, "tensor", "fsdp"), (experts, WIDTH, WIDTH)),
        "router": abstract(mesh, P(), (WIDTH, experts)),
        "scale": abstract(mesh, P(), (WIDTH,)),
    }

    def step(params, x):
        def loss(params):
            h = (x - jnp.mean(x**2, 0)) * params["scale"]
            weights = jax.nn.softmax(h @ params["router"])
            outputs = jnp.einsum("bd,edf->bef", h, params["down"])
            return jnp.mean(jnp.einsum("bef,be->bf", outputs, weights) ** 2)

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    report = program_report(step, params, abstract(mesh, P("fsdp"), (BATCH, WIDTH)))
    assert [(one.path, one.is_trained) for one in report.parameters] == [
        (f"params/{name}", True) for name in params
    ]
    assert_complete(report)
    assert "forward_sent_nbytes" not in sums(report)[("params/scale",)]
    product = 2 * (BATCH // FSDP) * WIDTH * WIDTH * experts // TENSOR
    costs = sums(report)[("params/down",)]
    assert (costs["forward_flops"], costs["backward_flops"]) == (product, 2 * product)


@tells_passes
def test_products_of_the_optimizer_are_none_of_the_backward_pass():
    """In Muon, XLA transposes and renames them. They count for the parameter that they update."""
    mesh = grid()
    params = {name: abstract(mesh, P(), (WIDTH, 2 * WIDTH)) for name in ("key", "query")}

    def orthogonal(x):
        x = x / jnp.linalg.norm(x)
        for _ in range(2):
            x = 1.5 * x - 0.5 * (x @ x.T) @ x
        return x

    def step(params, mu, x):
        def loss(params):
            return jnp.mean((jnp.tanh(x @ params["query"]) * (x @ params["key"])) ** 2)

        mu = jax.tree.map(lambda m, g: 0.9 * m + g, mu, jax.grad(loss)(params))
        return jax.tree.map(lambda p, m: p - 0.1 * orthogonal(m), params, mu), mu

    report = program_report(step, params, params, abstract(mesh, P("fsdp"), (BATCH, WIDTH)))
    assert_complete(report)
    product = 2 * (BATCH // FSDP) * WIDTH * 2 * WIDTH
    for path in ("params/key", "params/query"):
        costs = sums(report)[(path,)]
        assert costs["backward_flops"] == product
        assert costs["forward_flops"] > product
    assert not any(name.endswith("flops") for name in sums(report).get((), ()))


@tells_passes
def test_a_tied_embedding_has_both_its_uses():
    """The lookup adds to the gradient of the logits, whose three products are those of the embedding."""
    mesh, words = grid(), 512
    params = {"embed": abstract(mesh, P(None, "tensor"), (words, WIDTH))}
    tokens = abstract(mesh, P("fsdp"), (BATCH, LENGTH), "int32")

    def loss(params, tokens):
        logits = jnp.tanh(params["embed"][tokens]) @ params["embed"].T
        return jnp.mean(jax.nn.logsumexp(logits, -1))

    report = program_report(jax.jit(jax.grad(loss)), params, tokens)
    assert_complete(report)
    product = 2 * (BATCH // FSDP) * LENGTH * words * WIDTH // TENSOR
    costs = sums(report)[("params/embed",)]
    assert (costs["forward_flops"], costs["backward_flops"]) == (product, 2 * product)
    assert report.parameters[0].gradient_nbytes >= 4 * words * WIDTH // TENSOR


@tells_passes
def test_experts_have_their_products_and_the_router_its_own():
    mesh, experts = grid(), 4
    params = {
        "router": abstract(mesh, P(), (WIDTH, experts)),
        "up": abstract(mesh, P("tensor", None, "fsdp"), (experts, WIDTH, WIDTH)),
    }

    def loss(params, x):
        weights = jax.nn.softmax(x @ params["router"])
        outputs = jnp.einsum("btd,edf->ebtf", jnp.tanh(x), params["up"])
        return jnp.mean(jnp.sum(outputs * jnp.moveaxis(weights, -1, 0)[..., None], 0) ** 2)

    x = abstract(mesh, P("fsdp"), (BATCH, LENGTH, WIDTH))
    report = program_report(jax.jit(jax.grad(loss)), params, x)
    assert_complete(report)
    tokens = BATCH // FSDP * LENGTH
    found = sums(report)
    # The batch has no gradient: one product in the backward pass for each in the forward pass. The router's
    # columns are computed for the experts of a device, or for all.
    of_experts = 2 * tokens * WIDTH * WIDTH * experts // TENSOR
    of_router = 2 * tokens * WIDTH * experts
    assert found[("params/up",)]["forward_flops"] == found[("params/up",)]["backward_flops"] == of_experts
    for name in ("forward_flops", "backward_flops"):
        assert found[("params/router",)][name] in (of_router, of_router // TENSOR)


@tells_passes
def test_convolutions_have_the_gradients_of_their_inputs_too():
    """Their kernels are reversed for it. The first input has no gradient."""
    mesh = grid()
    kernels = [abstract(mesh, P(), (3, 3, 8, 8)) for _ in range(2)]

    def loss(kernels, x):
        for kernel in kernels:
            numbers = ("NHWC", "HWIO", "NHWC")
            x = jax.nn.relu(
                jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)
            )
        return jnp.mean(x**2)

    report = program_report(jax.jit(jax.grad(loss)), kernels, abstract(mesh, P("fsdp"), (BATCH, 8, 8, 8)))
    assert_complete(report)
    found = sums(report)
    product = found[("kernels/0",)]["forward_flops"]
    assert found[("kernels/0",)]["backward_flops"] == product
    assert found[("kernels/1",)]["backward_flops"] == 2 * product
    assert not any(name.endswith("flops") for name in found.get((), ()))


@tells_passes
@pytest.mark.parametrize("is_scattered", [False, True], ids=["psum", "psum_scatter"])
def test_a_gradient_that_the_user_sums_is_reduced(is_scattered):
    """What gathers the new parameters is no such sum, and neither is the sum of the activations."""
    mesh = grid()
    axes = ("fsdp", "tensor")

    def loss(params, x):
        return jnp.mean((jax.lax.psum(jnp.tanh(x @ params["up"]), "tensor") @ params["down"]) ** 2)

    def step(params, x):
        def new(p, g):
            if not is_scattered:
                return p - 0.1 * jax.lax.pmean(g, axes)
            own = jax.lax.psum_scatter(g, axes, tiled=True)
            place = jax.lax.axis_index("fsdp") * TENSOR + jax.lax.axis_index("tensor")
            part = jax.lax.dynamic_slice_in_dim(p, place * own.shape[0], own.shape[0])
            return jax.lax.all_gather(part - 0.1 * own, axes, tiled=True)

        return jax.tree.map(new, params, jax.grad(loss)(params, x))

    params = {name: abstract(mesh, P(), (WIDTH, WIDTH)) for name in ("down", "up")}
    mapped = jax.shard_map(step, mesh=mesh, in_specs=(P(), P(axes)), out_specs=P(), check_vma=False)
    report = program_report(jax.jit(mapped), params, abstract(mesh, P(axes), (BATCH, WIDTH)))
    assert_complete(report)
    found, nbytes = sums(report), 4 * WIDTH * WIDTH * 7 // 8
    for name in ("down", "up"):
        costs = found[(f"params/{name}",)]
        assert costs["reduced_nbytes"] == (nbytes if is_scattered else 2 * nbytes)
        assert costs.get("forward_sent_nbytes", 0) == (nbytes if is_scattered else 0)


@tells_passes
def test_what_the_gradients_of_several_parameters_are_computed_from_is_data():
    """Joined weights have one product, and its other operand is not a weight."""
    mesh = grid()
    params = {name: abstract(mesh, P(), (WIDTH, WIDTH)) for name in ("key", "query")}

    def loss(params, x):
        return jnp.mean((x @ jnp.concatenate([params["query"], params["key"]], 1)) ** 2)

    report = program_report(jax.jit(jax.grad(loss)), params, abstract(mesh, P("fsdp"), (BATCH, WIDTH)))
    assert_complete(report)
    assert paths(report) == ["params/key", "params/query"]


def test_a_product_of_two_parameters_belongs_to_neither():
    mesh = grid()
    params = {name: abstract(mesh, P(), (64, 64)) for name in ("u", "v")}
    report = program_report(
        lambda params, x: x @ (params["u"] @ params["v"]), params, abstract(mesh, P(), (8, 64))
    )
    assert sums(report)[()]["forward_flops"] == 2 * 64**3 + 2 * 8 * 64 * 64


def test_the_weights_of_a_forward_function_are_those_that_multiply_what_is_computed():
    """All arrays of their argument are parameters, but not a cache, which returns changed, and not the batch."""
    mesh = grid()
    params = {
        **{name: abstract(mesh, P(), (WIDTH, WIDTH)) for name in ("key", "out", "query")},
        "bias": abstract(mesh, P(), (WIDTH,)),
    }
    cache = {"key": abstract(mesh, P("fsdp"), (BATCH, LENGTH, WIDTH))}

    def decode(params, cache, batch):
        x = batch["x"]
        keys = jax.lax.dynamic_update_slice(cache["key"], (x @ params["key"])[:, None], (0, 3, 0))
        scores = jax.nn.softmax(jnp.einsum("bd,btd->bt", x @ params["query"], keys))
        return jnp.einsum("bt,btd->bd", scores, keys) @ params["out"] + params["bias"], {"key": keys}

    batch = {"x": abstract(mesh, P("fsdp"), (BATCH, WIDTH))}
    report = program_report(jax.jit(decode), params, cache, batch)
    assert paths(report) == ["params/bias", "params/key", "params/out", "params/query"]
    assert_complete(report)
    flops = 2 * (BATCH // FSDP) * WIDTH * WIDTH
    for name in ("key", "query", "out"):
        assert sums(report)[(f"params/{name}",)]["forward_flops"] == flops


@tells_passes
def test_a_gradient_that_is_returned_or_live_at_the_peak_is_held():
    """A step of gradient descent with one weight holds none of its own."""
    mesh = grid()
    weight, x = abstract(mesh, P("fsdp"), (WIDTH, WIDTH)), abstract(mesh, P("fsdp"), (BATCH, WIDTH))
    params = {"w": weight}

    def loss(params, x):
        return jnp.mean((x @ params["w"]) ** 2)

    [parameter] = program_report(jax.jit(jax.grad(loss)), params, x).parameters
    assert parameter.gradient_nbytes is not None
    assert parameter.gradient_nbytes >= 4 * WIDTH * WIDTH // FSDP


def test_the_costs_and_the_parameters_are_in_the_json_of_a_report():
    step, arguments = transformer()
    report = program_report(step, *arguments)
    assert from_json(to_json(report)) == report
    assert report.costs
    assert report.parameters


@tells_passes
def test_saved_values_belong_to_the_parameters_of_the_products_on_their_line():
    """Both products of the layer are on lines of their own, and nothing is saved without one but the input."""
    step, arguments = transformer()
    report = program_report(step, *arguments)
    if report.memory.saved.nbytes is None:
        pytest.skip("Shardy tells the shardings of saved values from JAX 0.10.1 on")
    found = sums(report)
    hidden = 4 * LAYERS * (BATCH // FSDP) * LENGTH * 1024 // TENSOR
    assert found[("params/layers/up",)]["saved_nbytes"] % hidden == 0
    assert_complete(report)
