"""Changes of shardings that are tried for a plain call."""

import ast
import dataclasses
import gc
import itertools
import os
import random
import signal
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info import watch_compiles
from jax_array_info_core.compat.modules import has_spans, lowered_module
from jax_array_info_core.errors import UnsupportedValueError
from jax_array_info_core.programs.advice.advice_report import _Engine, advise_report
from jax_array_info_core.programs.advice.candidates import Axes, Edit, Site, specs
from jax_array_info_core.programs.advice.search import Base, TryFailedError, TwinError, figures_of
from jax_array_info_core.programs.advice.worker import Question

if jax.__version_info__ < (0, 7):
    pytest.skip("advise_report needs JAX 0.7 or later", allow_module_level=True)
if len(jax.devices()) < 8:
    pytest.skip("the mesh of the programs has 8 devices", allow_module_level=True)

from . import advised_programs
from .advised_programs import ALL, Program, deposit, mesh, shaped, unrolled

exact = pytest.mark.skipif(
    not has_spans(),
    reason="expressions are changed on JAX 0.12 and later, whose operations have their columns",
)


def later() -> float:
    return time.monotonic() + 300


@pytest.fixture(params=ALL, ids=lambda program: program.__name__)
def engine(request: pytest.FixtureRequest) -> Any:
    """The engine of each program, its base, and the function that makes the program."""
    function, arguments = request.param()
    found = _Engine(function, arguments, {}, None)
    try:
        yield found, found.base(time.monotonic() + 600), request.param
    finally:
        found.close()


def at_source(program: Callable[[], "Program"], site: Site, axes: Axes) -> Question:
    """Return a program as it is lowered with a constraint in its source."""
    entries = [names if names else None for names in axes]
    text = Path(advised_programs.__file__).read_text()
    tree = ast.parse(text)

    class Wrap(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            node = self.generic_visit(node)
            if isinstance(node, ast.expr):
                here = node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
                is_read = isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
                if is_read and here == (site.line, site.column, site.end_line, site.end_column):
                    return ast.copy_location(ast.Call(ast.Name("constrained", ast.Load()), [node], []), node)
            return node

    edited = types.ModuleType("edited")
    edited.__dict__.update(
        __file__=advised_programs.__file__,
        constrained=lambda x: jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*entries))),
    )
    changed = ast.fix_missing_locations(Wrap().visit(tree))
    exec(compile(changed, advised_programs.__file__, "exec"), edited.__dict__)
    function, arguments = getattr(edited, program.__name__)()
    return Question(lowered_module(function.lower(*arguments)), is_fast=False)


@exact
@pytest.mark.newest
def test_what_is_measured_is_what_the_source_gives(engine: Any) -> None:
    """The figures are those of ``program_report``, and a constraint has the same on the lowered program and in
    the source, for each expression and its most sharded spec.
    """
    found, base, program = engine
    own = found._program(None)
    full = found._figures(Question(own.module, is_fast=False), later())
    for one in (full, base.tried_as):
        assert dataclasses.replace(one, xla_flops=None) == dataclasses.replace(
            figures_of(base.report), xla_flops=None
        )
    assert full.xla_flops is not None
    assert own.expressions
    others = 0
    for site, expression in own.expressions.items():
        sizes = mesh.shape
        axes = max(specs(expression.value.shape, sizes), key=lambda one: sum(map(len, one)))
        try:
            question = found._question(Edit("constraint", axes, site=site), None, is_fast=False)
            lowered = found._figures(question, later())
        except TryFailedError:
            continue
        source = found._figures(at_source(program, site, axes), later())
        got, wanted = (
            dataclasses.replace(one, memory_nbytes=0, temporary_nbytes=0) for one in (lowered, source)
        )
        assert got == wanted, site
        assert lowered.memory_nbytes == pytest.approx(source.memory_nbytes, rel=0.05), (
            site
        )  # it depends on the order of operations
        others += lowered != full
    assert others


def children() -> list[str]:
    """Return the numbers of the processes that this one started."""
    listed = Path("/proc/self/task").glob("*/children")  # of each thread
    return sorted(number for one in listed for number in one.read_text().split())


def state() -> tuple[Any, ...]:
    gc.collect()
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    return len(jax.live_arrays()), threading.active_count(), children(), descriptors


@pytest.fixture
def interrupted() -> Iterator[None]:
    """Interrupts raise KeyboardInterrupt, also where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def advise_forever(function: Any, arrays: Any) -> None:
    for _ in itertools.count():
        advise_report(function, *arrays, budget=20)


@exact
@pytest.mark.newest
@pytest.mark.usefixtures("interrupted")
def test_nothing_is_left_also_after_interrupts() -> None:
    """No array, thread, process or descriptor; the program is lowered as before, and its calls compile nothing."""
    function, shapes = deposit()
    arrays = [jax.device_put(np.zeros(one.shape, one.dtype), one.sharding) for one in shapes]
    function(*arrays)
    text = function.lower(*shapes).as_text()
    advise_report(function, *arrays, budget=1)  # Shardy's process runs from here on
    before = state()
    rng = random.Random(0)
    for _ in range(3):
        timer = threading.Timer(rng.uniform(0.2, 6), os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                advise_forever(function, arrays)
        finally:
            timer.join()
        assert state() == before
    assert function._cache_size() == 1
    assert function.lower(*shapes).as_text() == text
    with watch_compiles(function) as watch:
        function(*arrays)
    assert watch.report().compilations == ()


@exact
@pytest.mark.newest
def test_a_change_that_helps_is_written_as_it_stands_in_the_source() -> None:
    """The scatter is sharded where it is written, with the names of the file."""
    function, arguments = deposit()
    engine = _Engine(function, arguments, {}, None)
    try:
        engine.base(time.monotonic() + 600)
        sites = engine._program(None).expressions
        lines = Path(advised_programs.__file__).read_text().splitlines()
        (site,) = [one for one in sites if lines[one.line - 1][: one.end_column].endswith(".add(mass)")]
        best = engine.proved(Edit("constraint", (("data", "model"), (), ()), site=site), later())
    finally:
        engine.close()
    assert best.before.sent_nbytes is not None
    assert best.after.sent_nbytes is not None
    assert best.after.sent_nbytes < best.before.sent_nbytes / 4
    assert (best.proof, best.place.file) == ("lowered", advised_programs.__file__)
    assert lines[(best.place.line or 0) - 1][best.place.column :] == best.expression
    sharding = 'NamedSharding(mesh, P(("data", "model")))'
    assert best.code == f"lax.with_sharding_constraint({best.expression}, {sharding})"
    assert best.place.function == "deposit.<locals>.f"


@pytest.mark.once_per_version
def test_arguments_and_outputs_are_lowered_again() -> None:
    """The figures are those of the function with these arguments."""
    function, arguments = unrolled()
    engine = _Engine(function, arguments, {}, None)
    try:
        base = engine.base(time.monotonic() + 600)
        paths = tuple(one.path for one in base.report.arguments if one.path.endswith("up"))
        remedy = engine.proved(Edit("argument", ((), ("model",)), arguments=paths), later())
        assert remedy.code == 'P(None, "model")'
        assert remedy.expression == 'P("data", "model")'
        assert (remedy.place.path, remedy.place.paths) == (paths[0], paths)
        layers, x = arguments
        others = [{**one, "up": shaped((64, 256), None, "model")} for one in layers]
        direct = lowered_module(function.lower(others, x))
        assert remedy.after == engine._figures(Question(direct, is_fast=False), later())
        assert remedy.after != remedy.before
        outputs = tuple(one.path for one in base.report.outputs[:1])
        changed = engine.tried(Edit("output", (("model",), ()), outputs=outputs), later())
        assert changed != base.tried_as
        with pytest.raises(TwinError):
            engine.tried(Edit("output", (("model",), ()), outputs=outputs), later())
        with pytest.raises(TryFailedError):
            engine.tried(Edit("argument", (("unknown",), ()), arguments=paths), later())
    finally:
        engine.close()


@pytest.mark.newest
def test_a_child_that_ended_is_replaced() -> None:
    """A failed check in C++ costs one try."""
    function, arguments = deposit()
    engine = _Engine(function, arguments, {}, None)
    try:
        base: Base = engine.base(time.monotonic() + 600)
        os.kill(int(children()[-1]), signal.SIGABRT)
        edit = Edit("argument", (("data",), ()), arguments=(base.report.arguments[0].path,))
        with pytest.raises(TryFailedError, match="SIGABRT"):
            engine.tried(edit, later())
        assert engine.tried(edit, later()).sent_nbytes is not None
    finally:
        engine.close()


@exact
@pytest.mark.newest
def test_explicit_axes_have_changes_of_arguments_only() -> None:
    """JAX puts a constraint of its own behind each operation there."""
    explicit = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    x = jax.ShapeDtypeStruct((512, 512), jnp.float32, sharding=NamedSharding(explicit, P("data")))
    engine = _Engine(jax.jit(lambda x: jnp.cumsum(x * 2, 1)), (x,), {}, None)
    try:
        base = engine.base(time.monotonic() + 600)
    finally:
        engine.close()
    assert not base.values
    assert base.has_places
    assert "Explicit" in base.caveats[0]


@pytest.mark.once_per_version
def test_what_cannot_be_advised_is_told() -> None:
    """A time, a stage, and an error of the function."""
    for wrong in ("soon", -1, 0, True, None, "1e3s"):
        with pytest.raises(UnsupportedValueError, match="budget"):
            advise_report(jnp.sin, jax.ShapeDtypeStruct((8,), jnp.float32), budget=wrong)  # type: ignore[arg-type]
    x = jax.ShapeDtypeStruct((8,), jnp.float32)
    with pytest.raises(UnsupportedValueError, match="stage"):
        advise_report(jax.jit(jnp.sin).lower(x))
    error = ZeroDivisionError()

    def fails(x: Any) -> Any:
        raise error

    with pytest.raises(ZeroDivisionError) as caught:
        advise_report(fails, x)
    assert caught.value is error


@pytest.mark.once_per_version
def test_a_program_of_one_device_starts_nothing() -> None:
    """There is no change to try."""
    before = children()
    report = advise_report(jnp.sin, jax.ShapeDtypeStruct((8,), jnp.float32))
    assert report.reason == "no change to try: the program runs on one device"
    assert children() == before
