"""Sources of the shardings of traced values, and what was already reported."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple, Protocol

from ...base.text import plain_shape
from ...compat.jax_stack import LoweringPlace, compilation_target
from ...compat.shardings import device_facts, device_placement, sharding_facts
from ...compat.values import ArrayFacts, KnownSharding, ShardingFacts
from ...facts.reports.array import NOT_AVAILABLE, ArrayReport, BatchAxes, ShardingDescription
from ...geometry.layouts.layout import DevicePlacement, ShardingLayout, mesh_layout
from ...geometry.layouts.spec import MeshAxes, some_axes, spec_entries
from ...geometry.layouts.xla import parse_xla_sharding, spec_of_xla, xla_layout
from ...geometry.layouts.xla_sharding import XlaSharding

_logger = logging.getLogger("jax_array_info")


def log_problem(problem: str, *, with_traceback: bool = True) -> None:
    """Log a warning about the exception that is being handled.

    Errors of ``logging`` itself, as with a closed stderr, are ignored.

    Args:
        problem: The message.
        with_traceback: Whether to append the traceback.
    """
    with contextlib.suppress(Exception):
        _logger.warning("%s", problem, exc_info=with_traceback)


@contextlib.contextmanager
def log_failed_delivery() -> Iterator[None]:
    """Log the errors of a report's delivery, so that the user's program continues."""
    try:
        yield
    except OSError as error:
        log_problem(f"a report could not be written: {error}", with_traceback=False)
    except Exception:
        log_problem("a report could not be shown")


class Show(Protocol):
    """A function that prints a report, with the number of equal reports for which it is printed."""

    def __call__(self, report: ArrayReport, count: int = 1, /) -> None:
        """Print the report."""


class Call(NamedTuple):
    """A call in the user's code that inspects values: several times if its function is called again."""

    show: Show
    name: str | None
    place: Hashable
    """The call in its file, as ``caller_outside`` returns it."""


class Repeats:
    """The panels of one call in a lowered program.

    A panel waits until each value that the call inspects has a result, and at the longest for the end of the
    compilation, whether it succeeds or fails.
    """

    def __init__(self, show: Show) -> None:
        self.values: set[object] = set()
        """The pending reports of the call in the program."""
        self._show = show
        self._resolved: set[object] = set()
        """Those with a result of the current compilation."""
        # XLA calls back in its own threads, and several threads can compile one program.
        self._waiting: deque[ArrayReport] = deque()

    def add(self, report: ArrayReport, _: int = 1) -> None:
        """Hold a report until its panel is printed."""
        self._waiting.append(report)

    def resolved(self, value: object) -> None:
        """Handle the result of a value."""
        self._resolved.add(value)
        if self._resolved >= self.values:
            self.flush()

    def ended(self) -> None:
        """Handle the end of a compilation."""
        self.flush()
        self._resolved.clear()

    def flush(self) -> None:
        """Print the reports that wait. Errors are logged, and the user's program continues."""
        distinct: list[tuple[ArrayReport, int]] = []
        while self._waiting:
            try:
                report = self._waiting.popleft()
            except IndexError:  # another thread prints it
                break
            index = next((place for place, (other, _) in enumerate(distinct) if other == report), None)
            if index is None:
                distinct.append((report, 1))
            else:
                distinct[index] = (report, distinct[index][1] + 1)
        for report, count in distinct:
            with log_failed_delivery():
                self._show(report, count)


def unresolved(facts: ArrayFacts, reason: str) -> KnownSharding:
    """Return the sharding known while tracing, or an unknown sharding with the reason."""
    if facts.known.source != "unknown":
        return facts.known
    return KnownSharding(unknown_because=reason, batch=facts.known.batch)


def from_array(facts: ArrayFacts, array: Any, batch: BatchAxes | None) -> KnownSharding:
    """Return the sharding of the concrete array inside a tracer, as under vmap or grad without jit."""
    return KnownSharding(
        source="array",
        sharding=sharding_facts(array.sharding, plain_shape(array.shape)),
        batch=batch,
        manual_axes=facts.known.manual_axes,
    )


def from_jax(facts: ArrayFacts, sharding: Any) -> KnownSharding:
    """Return a sharding from ``jax.debug.inspect_array_sharding``, unless it is known to be wrong.

    Inside shard_map, JAX reports ``P()``. Under vmap, it reports the sharding of another shape.
    """
    if facts.known.source == "manual":
        return facts.known
    if facts.known.batch or len(spec_entries(getattr(sharding, "spec", ()))) > len(facts.shape):
        return unresolved(facts, NOT_AVAILABLE)
    return KnownSharding(source="compiler", sharding=sharding_facts(sharding, facts.shape))


def from_compiler(
    facts: ArrayFacts, sharding_text: str, batch: BatchAxes | None, place: LoweringPlace, module: object
) -> KnownSharding:
    """Return the sharding chosen by XLA.

    Args:
        facts: The facts known while tracing.
        sharding_text: XLA's text for the sharding, with devices numbered 0…n−1.
        batch: The batched axes under vmap; the sharding includes them.
        place: The target of the lowering.
        module: The listener of the lowered program, which identifies its compilation.
    """
    shape = batch.shape if batch else facts.shape
    # XLA sees a PRNG key as one more axis, which is never sharded.
    sharding = parse_xla_sharding(sharding_text).leading(len(shape))
    if place.mesh is not None and place.manual:
        return _inside_shard_map(facts, place.mesh, place.manual, sharding)
    devices, mesh = compilation_target(module)
    description = _description(sharding, mesh, place.device_count)
    sharding_facts = ShardingFacts(description=description)
    if len(devices) == place.device_count:
        placed = device_placement(devices)
        sharding_facts = ShardingFacts(
            description=description,
            layout=_layout(tuple(map(int, shape)), sharding, description, placed),
            devices=device_facts(devices, placed.ids, placed.processes),
        )
    return KnownSharding(
        source="compiler",
        sharding=sharding_facts,
        batch=batch,
        manual_axes=facts.known.manual_axes,
    )


def _inside_shard_map(
    facts: ArrayFacts, mesh: MeshAxes, manual: frozenset[str], sharding: XlaSharding
) -> KnownSharding:
    """Return the manual axes of a value inside shard_map, and its sharding over the other mesh axes."""
    auto = some_axes(mesh, set(mesh.names) - manual)
    spec = spec_of_xla(sharding, auto.shape) if auto.names else None
    known = facts.known.sharding
    if spec is not None:
        known = ShardingFacts(description=ShardingDescription(type="NamedSharding", spec=spec, mesh=auto))
    return KnownSharding(
        source="manual", sharding=known, batch=facts.known.batch, manual_axes=some_axes(mesh, manual)
    )


def _description(sharding: XlaSharding, mesh: MeshAxes | None, device_count: int) -> ShardingDescription:
    """Return the JAX form of XLA's sharding: a NamedSharding if it has a spec on the mesh."""
    spec = spec_of_xla(sharding, mesh.shape) if mesh else None
    if spec is not None:
        return ShardingDescription(type="NamedSharding", spec=spec, mesh=mesh)
    if device_count == 1:
        return ShardingDescription(type="SingleDeviceSharding")
    return ShardingDescription(type="GSPMDSharding", text=str(sharding))


def _layout(
    shape: tuple[int, ...], sharding: XlaSharding, description: ShardingDescription, devices: DevicePlacement
) -> ShardingLayout | None:
    """Return the layout, from the spec if there is one: it covers partial sums, unlike XLA's tiles."""
    if description.spec is None or description.mesh is None:
        return xla_layout(shape, sharding, devices)
    spec, sizes = description.spec, description.mesh.shape
    ids = devices.ids.reshape(description.mesh.sizes)
    return mesh_layout(shape, sizes, spec.axes, ids, devices.platform, devices.processes, spec.unreduced)
