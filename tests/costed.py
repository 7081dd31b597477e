"""Transformers whose costs by parameter are counted by hand, and the sums of these costs."""

import dataclasses
import functools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core.reports import CostShare
from tests.programs import abstract

LAYERS, WIDTH, HIDDEN, BATCH, LENGTH = 4, 256, 1024, 16, 128
FSDP, TENSOR = 4, 2
PRODUCT = 2 * (BATCH // FSDP) * LENGTH * WIDTH * HIDDEN // TENSOR
"""Operations of one product of a layer on a device: a half of its columns, for a quarter of the batch."""
WEIGHT = WIDTH * HIDDEN // TENSOR
"""Elements of one weight on a device after it is gathered over ``fsdp``."""
FIELDS = [field.name for field in dataclasses.fields(CostShare) if field.name not in ("parameters", "scope")]


TELLS_PASSES = jax.__version_info__ >= (0, 7)
tells_passes = pytest.mark.skipif(
    not TELLS_PASSES, reason="up to JAX 0.6, only operations in a named scope tell their pass"
)


def grid():
    """Return a mesh of 8 devices: fsdp=4, tensor=2."""
    return Mesh(np.array(jax.devices()[: FSDP * TENSOR]).reshape(FSDP, TENSOR), ("fsdp", "tensor"))


def layer(x, weights):
    """Return the output of a residual block, whose activations are sharded over the batch."""
    mesh = grid()
    hidden = x @ weights["up"].astype(x.dtype)
    x = x + jax.nn.gelu(hidden) @ weights["down"].astype(x.dtype)
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("fsdp")))


def stacked(mesh):
    """Return the parameters of scanned layers."""
    return {
        "down": abstract(mesh, P(None, "tensor", "fsdp"), (LAYERS, HIDDEN, WIDTH)),
        "up": abstract(mesh, P(None, "fsdp", "tensor"), (LAYERS, WIDTH, HIDDEN)),
    }


def separate(mesh):
    """Return the parameters of layers, one after the other."""
    one = {
        "down": abstract(mesh, P("tensor", "fsdp"), (HIDDEN, WIDTH)),
        "up": abstract(mesh, P("fsdp", "tensor"), (WIDTH, HIDDEN)),
    }
    return [one] * LAYERS


def loss_of(*, is_scanned=True, remat=False, dtype=jnp.float32):
    """Return a loss of parameters and a batch."""
    block = jax.checkpoint(layer) if remat else layer

    def loss(params, x):
        x = (x * params["scale"]).astype(dtype)
        if is_scanned:
            x, _ = jax.lax.scan(lambda x, weights: (block(x, weights), None), x, params["layers"])
        else:
            x = functools.reduce(block, params["layers"], x)
        return jnp.mean(x.astype(jnp.float32) ** 2)

    return loss


def transformer(**options):
    """Return a training step with gradient descent, and its arguments."""
    mesh, loss = grid(), loss_of(**options)
    layers = (stacked if options.get("is_scanned", True) else separate)(mesh)
    params = {"layers": layers, "scale": abstract(mesh, P(), (WIDTH,))}

    @functools.partial(jax.jit, donate_argnums=0)
    def step(params, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x))

    return step, (params, abstract(mesh, P("fsdp"), (BATCH, LENGTH, WIDTH)))


def sums(report, of=lambda share: share.parameters):
    """Return the sums of each field of the costs that are not 0, by what a function returns of each share."""
    totals = {}
    for share in report.costs:
        totals.setdefault(of(share), Counter()).update({name: getattr(share, name) for name in FIELDS})
    return {key: dict(+total) for key, total in totals.items()}


def assert_complete(report):
    """Assert that the costs add up to the figures of the report."""
    [total] = sums(report, of=lambda share: "all").values() if report.costs else [{}]
    sent = ("forward_sent_nbytes", "backward_sent_nbytes", "reduced_nbytes")
    flops = ("forward_flops", "backward_flops", "recomputed_flops")
    assert sum(total.get(name, 0) for name in sent) == report.sent.nbytes
    assert total.get("unknown_count", 0) == report.sent.unknown_count
    assert sum(total.get(name, 0) for name in flops) == report.known_dot_flops
    saved = report.memory.saved if report.memory else None
    assert saved is None or saved.nbytes in (None, total.get("saved_nbytes", 0))


def assert_layers(report, *, of_path, gathered_nbytes, reduced_nbytes, has_remat=False, is_scanned=True):
    """Assert the costs of the weights of the layers, and that no product belongs to anything else.

    Args:
        report: The report on a transformer.
        of_path: The path of a weight by its name and the number of its layer; None for all layers.
        gathered_nbytes: Bytes of an element that is gathered.
        reduced_nbytes: Bytes of an element of a gradient, twice where each device gets the whole sum.
        has_remat: Whether the layers are computed again.
        is_scanned: Whether the weights of all layers are one parameter.
    """
    found = sums(report)
    count = LAYERS if is_scanned else 1
    for name in ("up", "down"):
        for number in [None] if is_scanned else range(LAYERS):
            costs = found[(of_path(name, number),)]
            gathered = WEIGHT * gathered_nbytes * (FSDP - 1) // FSDP * count
            assert costs["forward_flops"] == PRODUCT * count
            assert costs["backward_flops"] == 2 * PRODUCT * count
            assert costs.get("recomputed_flops", 0) == (PRODUCT * count if has_remat and name == "up" else 0)
            assert costs["forward_sent_nbytes"] == gathered
            assert costs["reduced_nbytes"] == WEIGHT * reduced_nbytes * (FSDP - 1) // FSDP * count
    assert not any(name.endswith("flops") for name in found.get((), ()))


def paths(report):
    """Return the paths of the parameters of a report."""
    return [parameter.path for parameter in report.parameters]
