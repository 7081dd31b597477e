"""Costs of programs with frozen weights, several models and moments, compared with counts by hand."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from jax_array_info_core import layers_report, program_report
from tests.costed import (
    BATCH,
    FSDP,
    HIDDEN,
    LAYERS,
    LENGTH,
    PRODUCT,
    TELLS_PASSES,
    WIDTH,
    assert_complete,
    grid,
    layer,
    paths,
    stacked,
    sums,
    tells_passes,
)
from tests.programs import abstract

pytestmark = [pytest.mark.needs_devices(8), pytest.mark.once_per_version]


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
