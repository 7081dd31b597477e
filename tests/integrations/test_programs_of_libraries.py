"""Programs and compile caches of functions that Flax and Equinox jit: the names are the user's."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_array_info import compile_caches_report, program_report

X = np.ones((2, 4), np.float32)


def paths(values):
    return [one.path for one in values]


@pytest.fixture
def nnx():
    return pytest.importorskip("flax.nnx")


@pytest.fixture
def eqx():
    return pytest.importorskip("equinox")


def network(nnx):
    """Return a model whose layers have different sizes, so that their order is visible in the shapes."""

    class Network(nnx.Module):
        def __init__(self, rngs):
            self.layers = nnx.List([nnx.Linear(4, 4, rngs=rngs), nnx.Linear(4, 3, rngs=rngs)])

        def __call__(self, x):
            return functools.reduce(lambda x, layer: layer(x), self.layers, x)

        @nnx.jit
        def double(self, x):
            return 2 * self(x)

    return Network(nnx.Rngs(0))


LAYERS = ["layers/0/bias", "layers/0/kernel", "layers/1/bias", "layers/1/kernel"]
SHAPES = [(4,), (4, 4), (3,), (4, 3)]


def train_step(nnx):
    @nnx.jit
    def train_step(model, optimizer, x):
        loss, gradients = nnx.value_and_grad(lambda model: (model(x) ** 2).mean())(model)
        optimizer.update(model, gradients)
        return {"loss": loss}

    return train_step


@pytest.mark.parametrize("is_cached", [False, True])
def test_arguments_of_nnx_jit_have_the_paths_of_the_objects(nnx, is_cached):
    model = network(nnx)
    optimizer, step = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param), train_step(nnx)
    if is_cached:
        report = program_report(nnx.cached_partial(step, model, optimizer), X)
    else:
        report = program_report(step, model, optimizer, X)
    moments = [f"optimizer/opt_state/0/{name}/{path}" for name in ("mu", "nu") for path in LAYERS]
    state = [
        *(f"model/{path}" for path in LAYERS),
        "optimizer/opt_state/0/count",
        *moments,
        "optimizer/step",
    ]
    assert report.name == "train_step"
    assert report.origin.file == __file__
    assert paths(report.arguments) == [*state, "x"]
    assert paths(report.outputs) == [*(f"outputs/{path}" for path in state), "outputs/loss"]
    assert [one.shape for one in report.arguments[:4]] == SHAPES
    assert [one.shape for one in report.outputs[5:9]] == SHAPES


def test_objects_in_containers_methods_and_shared_variables_have_their_paths(nnx):
    model = network(nnx)
    report = program_report(
        nnx.jit(lambda pair, scale, x: pair["b"](x) * scale), {"a": model, "b": model}, 2.0, X
    )
    assert paths(report.arguments) == [*(f"pair/a/{path}" for path in LAYERS), "scale", "x"]
    assert paths(program_report(model.double, X).arguments) == [*(f"self/{path}" for path in LAYERS), "x"]


def test_what_is_not_split_by_nnx_keeps_the_paths_of_jax(nnx):
    @nnx.jit
    def scale(tree, x):
        return tree["states"][0][0] * x

    assert paths(program_report(scale, {"states": ((X,),)}, X).arguments) == ["tree/states/0/0", "x"]


def test_a_cached_partial_that_was_reported_still_trains(nnx):
    model = network(nnx)
    optimizer, step = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param), train_step(nnx)
    cached = nnx.cached_partial(step, model, optimizer)
    before = model.layers[0].kernel[...].copy()
    program_report(cached, X)
    assert (model.layers[0].kernel[...] == before).all()
    cached(X)
    assert not (model.layers[0].kernel[...] == before).all()


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize("donate", ["none", "all", "all-except-first"])
def test_arguments_of_filter_jit_have_the_paths_of_the_objects(eqx, donate):
    @eqx.filter_jit(donate=donate)
    def step(model, power, *batches, scale=None):
        gradients = eqx.filter_grad(lambda model: (jax.vmap(model)(batches[0]) ** power).mean() * scale)(
            model
        )
        return eqx.apply_updates(model, gradients), {"loss": batches[1].sum()}

    model = eqx.nn.MLP(4, 2, 3, 1, key=jax.random.key(0))
    report = program_report(step, model, 2, jnp.ones((2, 4)), jnp.ones((5,)), scale=jnp.ones(()))
    weights = [f"layers/{number}/{name}" for number in (0, 1) for name in ("weight", "bias")]
    found = {one.path: one.shape for one in report.arguments}
    assert set(found) == {
        *(f"model/{path}" for path in weights),
        "batches/0",
        "batches/1",
        "scale",
    }
    assert [found[f"model/{path}"] for path in weights] == [(3, 4), (3,), (2, 3), (2,)]
    assert (found["batches/0"], found["batches/1"]) == ((2, 4), (5,))
    assert paths(report.outputs) == [
        "outputs/marker",
        *(f"outputs/0/{path}" for path in weights),
        "outputs/1/loss",
    ]


def test_a_module_that_filter_jit_calls_is_self(eqx):
    model = eqx.nn.Linear(4, 3, key=jax.random.key(0))
    assert paths(program_report(eqx.filter_jit(model), jnp.ones(4)).arguments) == [
        "x",
        "self/weight",
        "self/bias",
    ]


def test_compile_caches_of_libraries_have_the_names_of_the_users_functions(nnx, eqx):
    @nnx.jit
    def nnx_step(model, x):
        return model(x)

    @eqx.filter_jit
    def eqx_step(x, power):
        return x**power

    def compiled():
        report = compile_caches_report()
        return {one.name: one.entries for one in report.functions if one.name in ("nnx_step", "eqx_step")}

    model = network(nnx)
    cached = nnx.cached_partial(nnx_step, model)
    for clear in ((nnx_step, eqx_step), ("nnx_step", "eqx_step"), (cached, eqx_step)):
        cached(X), eqx_step(X, 2)
        assert compiled() == {"nnx_step": 1, "eqx_step": 1}
        compile_caches_report(clear=clear)
        assert compiled() == {"nnx_step": 0, "eqx_step": 0}
    named = {one.name: one.origin for one in compile_caches_report().functions}
    assert named["nnx_step"].file == __file__
    assert named["eqx_step"] is None  # Functions of one name share the function of Equinox.
