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
    HIDDEN,
    LAYERS,
    LENGTH,
    PRODUCT,
    TENSOR,
    WIDTH,
    assert_complete,
    assert_layers,
    grid,
    layer,
    stacked,
    sums,
    transformer,
)
from tests.programs import abstract

TELLS_PASSES = jax.__version_info__ >= (0, 7)
tells_passes = pytest.mark.skipif(
    not TELLS_PASSES, reason="up to JAX 0.6, only operations in a named scope tell their pass"
)
pytestmark = [pytest.mark.needs_devices(8), pytest.mark.once_per_version]


def path_of(name, number):
    return "/".join(filter(None, ("params/layers", number if number is None else str(number), name)))


def paths(report):
    return [parameter.path for parameter in report.parameters]


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
def test_frozen_weights_have_the_product_of_the_activations_gradient_only():
    """In LoRA, the gradient of a frozen weight is not computed; biases of the same argument are frozen too."""
    mesh, rank = grid(), 8
    base = {**stacked(mesh), "scale": abstract(mesh, P(), (LAYERS, WIDTH))}
    small = {
        "a": abstract(mesh, P(), (LAYERS, WIDTH, rank)),
        "b": abstract(mesh, P(), (LAYERS, rank, WIDTH)),
    }

    def loss(lora, base, batch):
        def block(x, weights):
            lora, base = weights
            x = x * base["scale"] + (x @ lora["a"]) @ lora["b"]
            return layer(x, base), None

        return jnp.mean((jax.lax.scan(block, batch["x"], (lora, base))[0] - batch["y"]) ** 2)

    of_batch = abstract(mesh, P("fsdp"), (BATCH, LENGTH, WIDTH))
    gradient = jax.jit(jax.grad(loss))
    report = program_report(gradient, small, base, {"x": of_batch, "y": of_batch})
    assert paths(report) == ["lora/a", "lora/b", "base/down", "base/scale", "base/up"]
    assert_complete(report)
    found = sums(report)
    low = 2 * (BATCH // FSDP) * LENGTH * WIDTH * rank * LAYERS
    for name in ("a", "b"):
        assert found[(f"lora/{name}",)]["forward_flops"] == low
        assert found[(f"lora/{name}",)]["backward_flops"] == 2 * low
    for name in ("up", "down"):
        assert found[(f"base/{name}",)]["forward_flops"] == PRODUCT * LAYERS
        assert found[(f"base/{name}",)]["backward_flops"] == PRODUCT * LAYERS
        assert "reduced_nbytes" not in found[(f"base/{name}",)]


@tells_passes
def test_a_frozen_model_with_the_tree_of_the_trained_one_is_no_moment():
    """A reference, as of DPO, has rows of its own, also its leaves that no product reads."""
    mesh = grid()

    def model(spec):
        leaves = {"up": (WIDTH, WIDTH), "bias": (WIDTH,)}
        return {
            name: abstract(mesh, spec if len(shape) > 1 else P(), shape) for name, shape in leaves.items()
        }

    def apply(params, x):
        return jax.nn.relu(x @ params["up"] + params["bias"])

    def loss(params, reference, x):
        return jnp.mean((apply(params, x) - apply(reference, x)) ** 2)

    @jax.jit
    def step(params, mu, reference, x):
        gradient = jax.grad(loss)(params, reference, x)
        mu = jax.tree.map(lambda m, g: 0.9 * m + g, mu, gradient)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, mu), mu

    params, x = model(P("fsdp")), abstract(mesh, P("fsdp"), (BATCH, WIDTH))
    report = program_report(step, params, params, params, x)
    assert [(one.path, one.moments, one.is_trained) for one in report.parameters] == [
        ("params/bias", ("mu/bias",), True),
        ("params/up", ("mu/up",), True),
        ("reference/bias", (), False),
        ("reference/up", (), False),
    ]
    assert_complete(report)


def small(*names):
    """Return the parameters of a model with two products, or some of them."""
    mesh = grid()
    leaves = {
        "bias": abstract(mesh, P(), (WIDTH,)),
        "down": abstract(mesh, P("tensor", "fsdp"), (HIDDEN, WIDTH)),
        "up": abstract(mesh, P("fsdp", "tensor"), (WIDTH, HIDDEN)),
    }
    return {name: leaves[name] for name in names or leaves}


def predict(params, x):
    return layer(x, params) + params["bias"]


def descended(params, mu, gradient):
    """Return the parameters and the momentum after a step of gradient descent."""
    mu = jax.tree.map(lambda m, g: 0.9 * m + g, mu, gradient)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, mu), mu


def averaged(average, new):
    return jax.tree.map(lambda a, n: 0.99 * a + 0.01 * n, average, new)


def assert_flops(report, passes):
    """Assert the products of parameters, in those of a layer: forward and backward, by path."""
    found = sums(report)
    for path, expected in passes.items():
        costs = found.get((path,), {})
        counts = [costs.get(f"{name}_flops", 0) / PRODUCT for name in ("forward", "backward")]
        assert counts == ([*expected] if TELLS_PASSES else [sum(expected), 0]), path
    assert not any(name.endswith("flops") for name in found.get((), ()))


@pytest.mark.parametrize(
    ("names", "is_state"),
    [(("params", "target_params"), True), (("online", "target"), True), (("online", "target"), False)],
    ids=["params in a state", "state", "arguments"],
)
def test_a_target_network_has_rows_of_its_own(names, is_state):
    """It is an average of the trained model, whose gradient its new value contains, and no moment of it."""
    online, target = names

    def step(state, x):
        def loss(params):
            return jnp.mean((predict(params, x) - predict(state[target], x)) ** 2)

        params, mu = descended(state[online], state["mu"], jax.grad(loss)(state[online]))
        return {online: params, target: averaged(state[target], params), "mu": mu}

    def separate(online, target, mu, x):
        return tuple(step({"online": online, "target": target, "mu": mu}, x).values())

    params, x = small(), abstract(grid(), P("fsdp"), (BATCH, LENGTH, WIDTH))
    state = {online: params, target: params, "mu": params}
    report = program_report(step, state, x) if is_state else program_report(separate, *state.values(), x)
    before = "state/" if is_state else ""
    rows = {one.path: (one.moments, one.is_trained) for one in report.parameters}
    moments = {name: (f"{before}mu/{name}",) if online == "params" else () for name in params}
    assert rows == {
        **{f"{before}{online}/{name}": (moments[name], True) for name in params},
        **{f"{before}{target}/{name}": ((), False) for name in params},
    }
    assert_complete(report)
    assert_flops(
        report,
        {
            f"{before}{online}/up": (1, 1),
            f"{before}{online}/down": (1, 2),
            f"{before}{target}/up": (1, 0),
            f"{before}{target}/down": (1, 0),
        },
    )
    reduced = {path for path, costs in sums(report).items() if costs.get("reduced_nbytes")}
    assert reduced == {(f"{before}{online}/{name}",) for name in params}


def test_a_target_network_of_a_part_of_the_model_is_not_trained():
    """Its keys are those of its new value, which contains the gradient of the model too, as in BYOL."""

    def step(online, target, x):
        def loss(online):
            h = predict(online["encoder"], x) @ online["head"]
            return jnp.mean((h - predict(target, x)) ** 2)

        gradient = jax.grad(loss)(online)
        online = jax.tree.map(lambda p, g: p - 0.1 * g, online, gradient)
        return online, averaged(target, online["encoder"])

    mesh = grid()
    online = {"encoder": small(), "head": abstract(mesh, P(), (WIDTH, WIDTH))}
    report = program_report(step, online, small(), abstract(mesh, P("fsdp"), (BATCH, LENGTH, WIDTH)))
    trained = [one.path for one in report.parameters if one.is_trained]
    assert trained == [*(f"online/encoder/{name}" for name in small()), "online/head"]
    assert [one.path for one in report.parameters][4:] == [f"target/{name}" for name in small()]
    assert_complete(report)
    costs = sums(report)[("online/encoder/down",)]
    assert costs["forward_flops"] + costs.get("backward_flops", 0) == 3 * PRODUCT
    assert costs["reduced_nbytes"] > 0


def test_leaves_of_a_teacher_of_another_width_are_no_moments():
    """Its bias has the shape and the key of the student's."""
    mesh = grid()
    teacher = {
        "bias": abstract(mesh, P(), (WIDTH,)),
        "down": abstract(mesh, P("tensor", "fsdp"), (2 * HIDDEN, WIDTH)),
        "up": abstract(mesh, P("fsdp", "tensor"), (WIDTH, 2 * HIDDEN)),
    }

    def step(params, teacher, x):
        def loss(params):
            return jnp.mean((predict(params, x) - predict(teacher, x)) ** 2)

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    report = program_report(step, small(), teacher, abstract(mesh, P("fsdp"), (BATCH, LENGTH, WIDTH)))
    assert [one.moments for one in report.parameters] == [()] * 6
    assert_complete(report)
    assert_flops(report, {"params/down": (1, 2), "teacher/down": (2, 0), "teacher/up": (2, 0)})


@pytest.mark.parametrize("key", ["params", "weights"])
def test_two_models_with_the_same_keys_have_their_own_gradients_and_moments(key):
    """Names do not tell them: the update of each reads its own moments."""

    def step(left, right, of_left, of_right, x):
        def loss(left, right):
            return jnp.mean((predict(left[key], x) * predict(right[key], x)) ** 2)

        of_both = jax.grad(loss, argnums=(0, 1))(left, right)
        left, mu = descended(left, of_left["mu"], of_both[0])
        right, other = descended(right, of_right["mu"], of_both[1])
        return right, left, {**of_left, "mu": mu}, {**of_right, "mu": other}

    model = {key: small()}
    state = {"count": abstract(grid(), P(), ()), "mu": model}
    x = abstract(grid(), P("fsdp"), (BATCH, LENGTH, WIDTH))
    report = program_report(step, model, model, state, state, x)
    assert {one.path: (one.moments, one.is_trained) for one in report.parameters} == {
        f"{side}/{key}/{name}": ((f"of_{side}/mu/{key}/{name}",), True)
        for side in ("left", "right")
        for name in small()
    }
    assert_complete(report)
    of_side = {"up": (1, 1), "down": (1, 2)}
    expected = {f"{side}/{key}/{name}": of_side[name] for side in ("left", "right") for name in of_side}
    assert_flops(report, expected)


def test_data_in_the_argument_of_the_parameters_are_none():
    """Here, one argument has the model, a frozen part of it and the batch."""

    def step(state):
        def loss(params):
            error = predict(params, predict(state["frozen"], state["batch"]["x"])) - state["batch"]["y"]
            return jnp.mean(state["batch"]["mask"] * error**2)

        gradient = jax.grad(loss)(state["params"])
        return {**state, "params": jax.tree.map(lambda p, g: p - 0.1 * g, state["params"], gradient)}

    mesh = grid()
    x = abstract(mesh, P("fsdp"), (BATCH, LENGTH, WIDTH))
    batch = {"mask": x, "tokens": abstract(mesh, P("fsdp"), (BATCH,), "int32"), "x": x, "y": x}
    report = program_report(step, {"batch": batch, "frozen": small(), "params": small()})
    assert paths(report) == [f"state/{part}/{name}" for part in ("frozen", "params") for name in small()]
    assert_complete(report)
    assert_flops(report, {"state/frozen/up": (1, 0), "state/params/up": (1, 1), "state/params/down": (1, 2)})


@tells_passes
def test_gradients_that_no_name_tells_are_of_no_parameter_and_the_batch_is_none():
    """Neither an index nor the only other array of a product makes an output the gradient of an argument."""
    mesh = grid()
    square = abstract(mesh, P("fsdp"), (WIDTH, WIDTH))
    params, x = {"first": square, "others": [square, square]}, abstract(mesh, P("fsdp"), (BATCH, WIDTH))

    def loss(params, x):
        for weight in (params["first"], *params["others"]):
            x = jnp.tanh(x @ weight)
        return jnp.mean(x**2)

    def gradients(params, x):
        return tuple(jax.tree.leaves(jax.grad(loss)(params, x)))

    report = program_report(gradients, params, x)
    assert [(one.path, one.is_trained) for one in report.parameters] == [
        ("params/first", False),
        ("params/others/0", False),
        ("params/others/1", False),
    ]
    assert any(words.startswith("Gradients are not of a") for words in layers_report(report).caveats)
    assert_complete(report)
    product = 2 * (BATCH // FSDP) * WIDTH * WIDTH
    flops = [sums(report)[(path,)].get("backward_flops", 0) for path in paths(report)]
    assert flops == [0, product, product]
    assert sums(report)[()]["backward_flops"] == 3 * product


def test_an_update_is_of_the_argument_that_it_is_computed_from():
    """Outputs without keys, in another order than the arguments."""
    mesh = grid()
    first, second = (abstract(mesh, P("fsdp"), (WIDTH, WIDTH)) for _ in range(2))

    def step(first, second, x):
        def loss(weights):
            return jnp.mean((jnp.tanh(x @ weights[0]) @ weights[1]) ** 2)

        gradients = jax.grad(loss)((first, second))
        return second - 0.1 * gradients[1], first - 0.1 * gradients[0]

    report = program_report(step, first, second, abstract(mesh, P("fsdp"), (BATCH, WIDTH)))
    assert [(one.path, one.is_trained) for one in report.parameters] == [("first", True), ("second", True)]
    assert_complete(report)
    product = 2 * (BATCH // FSDP) * WIDTH * WIDTH
    costs = [sums(report)[(path,)] for path in paths(report)]
    flops = [one["forward_flops"] + one.get("backward_flops", 0) for one in costs]
    assert flops == [2 * product, 3 * product]


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
