"""The list of the programs, and parts of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import program_report
from tests.programs import abstract

WIDTH, TOKENS, VOCABULARY = 256, 64, 4096


class Program(NamedTuple):
    """A program and what it is compiled for."""

    f: Callable[..., Any]
    arguments: tuple[Any, ...]
    out: Any = None
    """Specs of the outputs; None if XLA chooses."""


PROGRAMS: dict[str, Callable[[], tuple[Mesh, Program]]] = {}
"""Functions that return a mesh and a program, by name."""


def compiled_for(name):
    """Return a jitted program and its arguments, sharded."""
    mesh, program = PROGRAMS[name]()
    is_spec = lambda entry: isinstance(entry, P)  # noqa: E731
    out = jax.tree.map(lambda spec: NamedSharding(mesh, spec), program.out, is_leaf=is_spec)
    return jax.jit(program.f, out_shardings=out), program.arguments


REPLICATED_ADAPTERS = "LoRA on frozen FSDP weights"
"""A program that repeats a small part of its work: the gradient of what it replicates."""


def repetitions_of(name):
    """Return the findings that devices repeat the work of others in a program, and a share of work but 1."""
    f, arguments = compiled_for(name)
    report = program_report(f, *arguments)
    share = report.work.share
    is_even = share is None or abs(share - 1) < 0.005 or name == REPLICATED_ADAPTERS
    findings = [str(finding) for finding in report.findings if finding.code in ("JAI212", "JAI213")]
    return findings if is_even else [*findings, f"each device does {share} times its share"]


def named(name):
    """Return a decorator that keeps a program by its name."""

    def keep(make):
        PROGRAMS[name] = make
        return make

    return keep


def grid():
    """Return a mesh of two axes."""
    return Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "tensor"))


def keep(mesh, x, *spec):
    """Return an array with a constraint."""
    return lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))


def mlp_loss(params, x):
    """Return the loss of a multilayer perceptron."""
    return jnp.mean((jax.nn.gelu(x @ params["wi"]) @ params["wo"]) ** 2)


def step(params, x, of=mlp_loss):
    """Return the parameters after a step of gradient descent."""
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(of)(params, x))


def mlp(mesh, wi, wo, *layers):
    """Return the parameters of multilayer perceptrons, sharded."""
    stack = (None,) * len(layers)
    return {
        "wi": abstract(mesh, P(*stack, *wi), (*layers, WIDTH, 4 * WIDTH)),
        "wo": abstract(mesh, P(*stack, *wo), (*layers, 4 * WIDTH, WIDTH)),
    }


def specs_of(tree):
    """Return the specs of arrays."""
    return jax.tree.map(lambda leaf: leaf.sharding.spec, tree)
