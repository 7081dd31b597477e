"""A training loop with Flax, Optax, Orbax, loader threads and evaluation is the same with a recorder."""

import queue
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import nnx

from jax_array_info import record_memory
from tests.records import of_kind, record_of, sample_count, until

STEPS = 40


def load(batches, number):
    rng = np.random.default_rng(number)
    for step in range(number, STEPS, 2):
        batches[step].put(rng.normal(size=(16, 8)).astype(np.float32))


class Network(nnx.Module):
    def __init__(self, rngs):
        self.inner, self.outer = nnx.Linear(8, 32, rngs=rngs), nnx.Linear(32, 8, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        return self.outer(self.dropout(nnx.relu(self.inner(x))))


def loss_of(model, x):
    return jnp.mean((model(x) - x) ** 2)


@nnx.jit
def train_step(model, optimizer, x):
    loss, gradients = nnx.value_and_grad(loss_of)(model, x)
    optimizer.update(model, gradients)
    return loss


def evaluate(model, x):
    return [loss_of(model, x * scale) for scale in range(5)]


def wait_for_samples(folder, count):
    until(lambda: sample_count(folder) > count)


def trained(folder, recorder=None):
    """Return the losses as bytes, and the compiled step."""
    jax.clear_caches()
    model = Network(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    batches = [queue.SimpleQueue() for _ in range(STEPS)]
    threads = [threading.Thread(target=load, args=(batches, number)) for number in range(2)]
    for thread in threads:
        thread.start()
    losses = []
    with ocp.StandardCheckpointer() as checkpointer:
        for step in range(STEPS):
            x = batches[step].get()
            losses.append(train_step(model, optimizer, x))
            if recorder is not None:
                recorder.step(step)
                wait_for_samples(folder / "memory", step // 4)
            if step % 10 == 9:
                if recorder is not None:
                    with recorder.mark("eval"):
                        losses += evaluate(model, x)
                else:
                    losses += evaluate(model, x)
                checkpointer.save(folder / f"step{step}", nnx.state(model))
    for thread in threads:
        thread.join()
    program = train_step.lower(model, optimizer, x).compile().as_text()
    return [np.asarray(loss).tobytes() for loss in losses], program


def test_losses_and_programs_are_the_same_with_a_recorder(tmp_path):
    runs = []
    for name in ("plain", "recorded"):
        if name == "recorded":
            with record_memory(tmp_path / name / "memory", every=0.01) as recorder:
                recorder.mark("start")
                until(lambda: sample_count(tmp_path / "recorded" / "memory"))
                runs.append(trained(tmp_path / name, recorder))
        else:
            runs.append(trained(tmp_path / name))
    (losses, program), (recorded_losses, recorded_program) = runs
    assert losses == recorded_losses
    assert len(set(losses)) > STEPS / 2
    assert without_lines(program) == without_lines(recorded_program)
    lines = record_of(tmp_path / "recorded" / "memory")
    assert lines[-1].reason == "stopped"
    marks = [mark.name for mark in of_kind(lines, "mark")]
    assert marks == ["start"] + ["eval"] * 8
    samples = of_kind(lines, "sample")
    assert {sample.step for sample in samples} > {None, STEPS - 1}
    groups = {group.id: group for group in of_kind(lines, "group")}
    fullest = max(samples, key=lambda sample: sample.in_use[0])
    kernels = [
        count
        for number, count in zip(fullest.groups, fullest.counts, strict=True)
        if groups[number].shape == (8, 32)
    ]
    assert sum(kernels) >= 3  # with its two moments


def without_lines(program):
    """Return a program without the lines of the test that called it."""
    return program.partition("FileNames")[0]
