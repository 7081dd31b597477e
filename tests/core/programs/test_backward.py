"""Values for the backward pass: those that JAX saves, and those that are live in the compiled program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.ad_checkpoint import saved_residuals
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report
from jax_array_info_core.compat.arrays import per_shard
from jax_array_info_core.compat.lowering import OLDEST
from tests.programs import abstract, line

pytestmark = pytest.mark.newest

POLICIES = jax.checkpoint_policies
OFFLOAD = POLICIES.save_and_offload_only_these_names(
    names_which_can_be_saved=["hidden"],
    names_which_can_be_offloaded=["out"],
    offload_src="device",
    offload_dst="pinned_host",
)
TELLS_PASSES = jax.__version_info__ >= (0, 7)
tells_passes = pytest.mark.skipif(not TELLS_PASSES, reason="up to JAX 0.6, operations do not tell their pass")
MERGES_REMAT = jax.__version_info__ < (0, 11)
"""Whether XLA merges, on CPU, what ``jax.checkpoint`` computes again with what there is."""


def block(x, w):
    return x + jax.nn.gelu(x @ w)


def named_block(x, w):
    return checkpoint_name(jnp.sin(checkpoint_name(x @ w, "hidden")), "out")


def twice(one, x, w):
    return jnp.sum(one(one(x, w), w))


def over_layers(one):
    return lambda x, w: jnp.sum(jax.lax.scan(lambda c, each: (one(c, each), None), x, w)[0])


@jax.custom_vjp
def custom(x, w):
    return jnp.tanh(x @ w)


custom.defvjp(
    lambda x, w: (jnp.tanh(x @ w), (x, w, jnp.exp(x @ w))), lambda r, g: (g @ r[1].T + r[2], r[0].T @ g)
)


def attention(x, w):
    return jnp.sum(jax.nn.softmax((x @ w) @ (x @ w).T) @ x)


def layer_norm(x, w):
    return jnp.sum(((x - x.mean(-1, keepdims=True)) / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)) @ w)


X, W, WS = (np.ones(shape, "float32") for shape in ((16, 32), (32, 32), (3, 32, 32)))
FUNCTIONS = {
    "gelu": lambda x, w: twice(block, x, w),
    "relu": lambda x, w: jnp.mean(jax.nn.relu(jax.nn.relu(x @ w) @ w) ** 2),
    "attention": attention,
    "layer norm": layer_norm,
    "jitted function": lambda x, w: twice(jax.jit(block), x, w),
    "custom derivative": lambda x, w: twice(custom, x, w),
    "branches": lambda x, w: jnp.sum(jax.lax.cond(w[0, 0] > 0, jnp.sin, lambda y: y * y, x @ w)),
    "vmap": lambda x, w: jnp.sum(jax.vmap(lambda row: jnp.sin(row @ w))(x)),
    "loop": lambda x, w: jnp.sum(jax.lax.fori_loop(0, 3, lambda _, c: jnp.sin(c @ w), x)),
    "checkpoint": lambda x, w: twice(jax.checkpoint(block), x, w),
    "dots saved": lambda x, w: twice(jax.checkpoint(block, policy=POLICIES.dots_saveable), x, w),
    "everything saved": lambda x, w: twice(jax.checkpoint(block, policy=POLICIES.everything_saveable), x, w),
    "names saved": lambda x, w: twice(
        jax.checkpoint(named_block, policy=POLICIES.save_only_these_names("hidden")), x, w
    ),
    "names offloaded": lambda x, w: jnp.sum(
        jax.checkpoint(lambda x, w: jnp.sin(named_block(named_block(x, w), w)), policy=OFFLOAD)(x, w)
    ),
    "scan": over_layers(block),
    "scan with checkpoint": over_layers(jax.checkpoint(block)),
    "scan with dots saved": over_layers(jax.checkpoint(block, policy=POLICIES.dots_saveable)),
}
FILLED = {"relu": 2}
"""Numbers of saved literals in another shape, which JAX lists too: the zeros of relu."""


def saved_by_jax(function, *arguments):
    """Return the bytes that JAX saves: its own list without arguments, constants and literals."""
    found, filled = 0, 0
    for aval, source in saved_residuals(function, *arguments):
        if not any(word in source for word in ("argument", "constant", "literal")):
            found += aval.size * aval.dtype.itemsize
            filled = aval.size * aval.dtype.itemsize if "broadcast_in_dim" in source else filled
    return found, filled


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_jax_saves_is_what_it_lists_itself(name):
    function, arguments = FUNCTIONS[name], (X, WS if name.startswith("scan") else W)
    memory = program_report(jax.jit(jax.grad(function, argnums=(0, 1))), *arguments).memory
    listed, filled = saved_by_jax(function, *arguments)
    everywhere = sum(one.global_nbytes for one in (*memory.saved.lines, *memory.saved.offloaded))
    assert everywhere == listed - FILLED.get(name, 0) * filled
    assert memory.saved.nbytes == memory.saved.global_nbytes, "on one device"
    assert memory.saved.reason is None


def loss(w, x):
    hidden = checkpoint_name(jnp.sin(x @ w["a"]), "hidden")
    return jnp.mean((hidden @ w["b"]) ** 2)


def step(w, x):
    return jax.tree.map(lambda one, gradient: one - 0.1 * gradient, w, jax.grad(loss)(w, x))


def accumulated(w, xs):
    """Return the gradients of several batches, one after another."""

    def body(total, x):
        return jax.tree.map(jnp.add, total, jax.jit(jax.grad(loss))(w, x)), None

    return jax.lax.scan(body, jax.tree.map(jnp.zeros_like, w), xs)[0]


def grid():
    return Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))


def sharded():
    """Return the arguments of a step, sharded."""
    shapes = {"a": (P(None, "model"), (64, 128)), "b": (P("model", None), (128, 64))}
    return {name: abstract(grid(), *one) for name, one in shapes.items()}, abstract(
        grid(), P("data"), (256, 64)
    )


def whole():
    """Return the arguments of a step on one device."""
    return {"a": np.ones((64, 128), "f4"), "b": np.ones((128, 64), "f4")}, np.ones((256, 64), "f4")


HIDDEN, RESULT = 256 * 128 * 4, 256 * 64 * 4
"""Bytes of the two hidden values that are saved, its sine and its cosine, and of the result, once."""


@pytest.mark.parametrize(
    "function",
    [step, lambda w, x: jax.jit(step)(w, x), lambda w, x: accumulated(w, x[None])],
    ids=["step", "jitted inside", "accumulated"],
)
def test_bytes_per_device_are_those_of_the_propagated_shardings(function):
    saved = program_report(function, *sharded()).memory.saved
    assert saved.global_nbytes == 2 * HIDDEN + RESULT
    if jax.__version_info__ < OLDEST:
        assert saved.nbytes is None
    else:
        assert saved.nbytes == 2 * HIDDEN // 8 + RESULT // 2
        assert {(one.checkpoint_name, one.nbytes) for one in saved.lines} == {
            ("hidden", HIDDEN // 8),
            (None, HIDDEN // 8),
            (None, RESULT // 2),
        }


def test_without_shardy_only_the_bytes_on_all_devices_are_known():
    saved = program_report(step, *sharded(), explain=False).memory.saved
    assert (saved.nbytes, saved.global_nbytes) == (None, 2 * HIDDEN + RESULT)
    assert all(one.nbytes is None for one in saved.lines)


def test_gradients_one_after_another_do_not_add_up():
    def both(w, x):
        return jax.grad(loss)(w, x), jax.grad(loss)(w, 2 * x)

    def batches(w, xs):
        return accumulated(w, xs)

    w, x = whole()
    for function, given in ((both, x), (batches, np.ones((5, 256, 64), "f4"))):
        assert program_report(function, w, given).memory.saved.nbytes == 2 * HIDDEN + RESULT


def test_a_donated_argument_changes_nothing():
    w, x = whole()
    plain, donated = (program_report(jax.jit(step, donate_argnums=one), w, x).memory for one in ((), (0,)))
    assert plain.saved == donated.saved
    assert plain.live_at_backward == donated.live_at_backward


def test_the_gradient_of_a_shard_map_has_its_out_specs_and_one_inside_the_shapes_of_its_parts():
    mesh = line("x")
    inner = per_shard(lambda w, x: jnp.sin(jnp.sin(x @ w)), mesh, (P(), P("x")), P("x"))

    def outside(w, x):
        return jax.grad(lambda w: jnp.sum(inner(w, x)))(w)

    def part(w, x):
        return jax.lax.pmean(jax.grad(lambda w: jnp.sum(jnp.sin(x @ w)))(w), "x")

    inside = per_shard(part, mesh, (P(), P("x")), P())
    arguments = abstract(mesh, P(), (64, 64)), abstract(mesh, P("x"), (256, 64))
    for function, count in ((outside, 2), (inside, 1)):
        saved = program_report(function, *arguments, explain=False).memory.saved
        assert (saved.nbytes, saved.global_nbytes) == (count * 256 * 64 * 4 // 8, count * 256 * 64 * 4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jax.jvp(jax.grad(lambda y: jnp.sum(jnp.sin(y))), (x,), (x,)),
        lambda x: jax.grad(lambda y: jnp.sum(jax.grad(lambda z: jnp.sum(jnp.sin(z)))(y)))(x),
        lambda x: jax.grad(lambda y: jnp.sum(jax.jit(jax.grad(lambda z: jnp.sum(jnp.sin(z))))(y)))(x),
    ],
    ids=["forward over reverse", "reverse over reverse", "through a jitted function"],
)
def test_what_nested_derivatives_save_is_unknown(function):
    memory = program_report(function, X).memory
    assert (memory.saved.nbytes, memory.saved.reason) == (None, "nested derivatives")
    assert memory.live_at_backward.reason == "nested derivatives"
    assert not any(one.is_for_backward for one in memory.temporaries)


@tells_passes
def test_a_compiled_program_with_nested_derivatives_has_nothing_that_is_live():
    def slope(w):
        return jax.grad(lambda w: jnp.sum(jnp.tanh(X @ w)))(w)

    lowered = jax.jit(jax.grad(lambda w: jnp.sum(slope(w) ** 2))).lower(W)
    live = program_report(lowered.compile()).memory.live_at_backward
    assert (live.nbytes, live.reason) == (None, "nested derivatives")


@jax.custom_vjp
def recomputed(x, w):
    return custom(x, w)


recomputed.defvjp(
    lambda x, w: (jnp.tanh(x @ w), (x, w)), lambda r, g: jax.vjp(lambda x, w: jnp.tanh(x @ w), *r)[1](g)
)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: jnp.sum(recomputed(x, w) ** 2),
        lambda x, w: jnp.sum(jnp.linalg.solve(w + jnp.eye(32, dtype="float32"), x.T) ** 2),
    ],
    ids=["a derivative in the backward pass", "a linear solver"],
)
def test_a_derivative_that_only_the_backward_pass_takes_is_not_nested(function):
    saved = program_report(jax.grad(function, argnums=(0, 1)), X, W).memory.saved
    assert (saved.nbytes, saved.reason) == (saved_by_jax(function, X, W)[0], None)


def test_a_value_of_a_function_that_jax_jits_itself_has_the_line_of_the_call():
    def total(w, x):
        return jnp.sum(jnp.where(jax.random.bernoulli(jax.random.key(0), 0.5, (16, 32)), x @ w, 0))

    (line,) = program_report(jax.grad(total), W, X).memory.saved.lines
    assert (line.origin.file, line.origin.function, line.nbytes) == (__file__, "total", 16 * 32)


def test_a_program_without_a_backward_pass_keeps_nothing_for_it():
    def both(x):
        _, ys = jax.lax.scan(lambda c, _: (jnp.sin(c), c), x, None, length=8)
        return jax.lax.scan(lambda c, y: (c + jnp.cos(y), None), x, ys)[0]

    for function in (both, lambda x: jax.jvp(jnp.sin, (x,), (x,)), jnp.sin):
        memory = program_report(function, np.ones((64, 64), "float32")).memory
        assert (memory.saved, memory.live_at_backward) == (None, None)


def test_a_stacked_value_has_the_line_inside_of_the_loop_and_its_name():
    def layer(x, w):
        return checkpoint_name(jnp.tanh(x @ w), "out"), None

    def total(x, ws):
        return jnp.sum(jax.lax.scan(jax.checkpoint(layer), x, ws)[0])

    (line,) = program_report(jax.grad(total), X, WS).memory.saved.lines
    assert (line.origin.line, line.checkpoint_name) == (layer.__code__.co_firstlineno + 1, "out")
    assert (line.is_in_loop, line.count, line.nbytes) == (True, 1, 3 * X.nbytes)


def test_offloaded_values_are_apart():
    saved = program_report(jax.grad(FUNCTIONS["names offloaded"]), X, W).memory.saved
    assert {one.checkpoint_name for one in saved.offloaded} == {"out"}
    assert {one.checkpoint_name for one in saved.lines} == {"hidden"}
    assert saved.nbytes == sum(one.nbytes for one in saved.lines) == 2 * X.nbytes


@tells_passes
def test_a_compiled_program_has_only_what_is_live():
    lowered = jax.jit(step).lower(*whole())
    for one in (lowered, lowered.compile()):
        memory = program_report(one).memory
        assert memory.saved is None
        assert memory.live_at_backward.nbytes > 0
        assert sum(line.nbytes for line in memory.live_at_backward.lines) == memory.live_at_backward.nbytes


def wide_block(x, w):
    return x + jnp.tanh(x @ w["up"]) @ w["down"]


def blocks(one, count, x, w):
    for number in range(count):
        x = one(x, w[number])
    return jnp.sum(x**2)


def wide_weights(count):
    return [{"up": np.ones((64, 1024), "f4"), "down": np.ones((1024, 64), "f4")} for _ in range(count)]


@tells_passes
@pytest.mark.parametrize("count", [2, 5])
def test_live_is_what_each_block_keeps(count):
    """A result of a block has 64 columns, and what is inside 1024; the last result is read at once."""
    x, wide = np.ones((128, 64), "float32"), 128 * 1024 * 4
    inputs = (count - 1) * x.nbytes

    def live(one):
        gradient = jax.grad(lambda x, w: blocks(one, count, x, w), 1)
        return program_report(gradient, x, wide_weights(count)).memory.live_at_backward.nbytes

    assert count * wide + inputs <= live(wide_block) <= 2 * count * wide + inputs + x.nbytes
    found = live(jax.checkpoint(wide_block))
    if MERGES_REMAT:
        assert found >= count * wide, "XLA has removed the second computation"
    else:
        assert inputs <= found <= inputs + x.nbytes


@tells_passes
def test_live_is_what_a_scan_stacks():
    x, ws = np.ones((256, 32), "float32"), np.ones((6, 32, 32), "float32")

    def total(ws, x):
        return jnp.sum(jax.lax.scan(jax.checkpoint(lambda c, w: (jnp.tanh(c @ w), None)), x, ws)[0] ** 2)

    live = program_report(jax.grad(total), ws, x).memory.live_at_backward
    assert 6 * x.nbytes <= live.nbytes <= 7 * x.nbytes, "the input of each layer, and the result"
    (stacked,) = (one for one in live.lines if one.is_in_loop)
    assert stacked.nbytes == 6 * x.nbytes


def test_where_names_do_not_tell_the_pass_what_is_live_is_unknown():
    w, x = whole()

    def partly(w, x):
        with jax.named_scope("head"):
            y = jnp.sin(x)
        return loss(w, y)

    def named(w, x):
        with jax.named_scope("all"):
            return loss(w, x)

    for function in (loss, partly):
        live = program_report(jax.grad(function), w, x).memory.live_at_backward
        assert (live.nbytes is None) is not TELLS_PASSES
        assert (live.reason is None) is TELLS_PASSES
    assert program_report(jax.grad(named), w, x).memory.live_at_backward.nbytes > 0
