"""Cost of a report on the propagation of a program, relative to its tracing and lowering."""

from __future__ import annotations

import compare
import jax
import jax.numpy as jnp
from programs import LAYERS, batch, layer, step

from jax_array_info import propagation_report, sharded_structs
from jax_array_info_core.programs.propagation import helper

params = [layer] * LAYERS
lowered = step.lower(params, batch)
x = sharded_structs(
    jax.ShapeDtypeStruct((256, 512), jnp.float32), mesh={"data": 8}, specs=jax.sharding.PartitionSpec("data")
)


def trace_and_lower() -> None:
    jax.clear_caches()
    step.lower(params, batch)


def report_with_a_new_process() -> None:
    for worker in helper._WORKERS.values():
        worker.close()
    jax.clear_caches()
    propagation_report(step, params, batch)


if __name__ == "__main__":
    compare.times(
        f"tracing, lowering and report of a step of {len(params)} layers, in a new process",
        report_with_a_new_process,
        trace_and_lower,
        bound="3",
        rounds=5,
    )
    compare.times(
        f"report of a step of {len(params)} layers",
        lambda: propagation_report(lowered),
        trace_and_lower,
        bound="1",
        rounds=5,
    )
    small = jax.jit(jnp.tanh).trace(x).lower(lowering_platforms=("tpu",))
    compare.times(
        "report of one operation", lambda: propagation_report(small), trace_and_lower, bound="0.1", rounds=20
    )
