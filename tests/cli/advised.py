"""Advice on programs without other processes, and changes as a user writes them."""

import contextlib
import functools
import importlib.util
import inspect
import itertools
import random
import re
import sys
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_cli.advice import child
from jax_array_info_cli.advice.child import Failed, Task, Tries, Values
from jax_array_info_cli.advice.engine import SourceEngine
from jax_array_info_cli.user_code import parse_function
from jax_array_info_cli.user_code.compiling import Request, report_on
from jax_array_info_core import program_report
from jax_array_info_core.programs.advice.judging import figures_of
from jax_array_info_core.programs.advice.search import TryFailedError, advised

_NUMBERS = itertools.count()


class EngineHere(SourceEngine):
    """Applies changes as the processes of ``jai-cli advise`` do, in this one."""

    def _start(self, deadline):
        values = Values()
        source = child.source_of(Task(self._here, {}, searches=True), values)

        def keep(function, *arguments, **options):
            report = program_report(function, *arguments, **options)
            self.tries = Tries(function, arguments, values, report, codes=source.codes)
            return report

        with hooked(source):
            report_on(self._here, keep, source.run)
        self._program = self.tries.program()
        return self._program

    def _asked(self, what, about, deadline):
        try:
            answer = getattr(self.tries, what)(about)
        except Exception as error:
            raise TryFailedError(str(error)) from error
        if isinstance(answer, Failed):
            raise TryFailedError(answer.message)
        return answer

    def _reported(self, change, deadline):
        task = Task(self._request, {}, change=change)
        source = child.source_of(task, Values())
        with hooked(source):
            try:
                return child.reported(task, source)
            except Exception as error:
                raise TryFailedError(str(error)) from error


@contextlib.contextmanager
def hooked(*finders):
    """Restore the finders and the modules of the user at the end."""
    before, modules = sys.meta_path[:], set(sys.modules)
    sys.meta_path[:0] = finders
    try:
        yield
    finally:
        sys.meta_path[:] = before
        for name in {*sys.modules} - modules:
            if not (getattr(sys.modules[name], "__file__", None) or "site-packages").count("site-packages"):
                del sys.modules[name]


def request_for(path, function, mesh, topology=None):
    """Return a request for a function of a file, with the arguments of the function ``…_args``."""
    return Request(
        function=parse_function(f"{path}:{function}"),
        mesh=mesh,
        args_from=parse_function(f"{path}:{function}_args"),
        options={"topology": topology, "dcn": None, "ignore_codes": ()},
    )


def engine_on(path, function, mesh, topology=None):
    """Return an engine for a function of a file."""
    return EngineHere(request_for(path, function, mesh, topology), 8)


def advice_on(path, function, mesh, budget=600.0, topology=None):
    """Return the advice on a function of a file."""
    return advised(engine_on(path, function, mesh, topology), budget)


def module_of(path, text=None):
    """Import a file as a module of its own; or a text in its place."""
    name = f"advised_{next(_NUMBERS)}"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    code = Path(path).read_text(encoding="utf-8") if text is None else text
    exec(compile(code, str(path), "exec"), module.__dict__)
    return module


def edited_text(path, changes):
    """Return the text of a file with other texts in the places of expressions, as a user writes them."""
    lines = Path(path).read_text(encoding="utf-8").split("\n")
    for change in sorted(changes, key=lambda one: (one.place.line, one.place.column), reverse=True):
        assert change.place.file == str(path)
        rest = "\n".join(lines[change.place.line - 1 :])
        column = change.place.column
        assert rest[column:].startswith(change.expression)
        new = rest[:column] + change.code + rest[column + len(change.expression) :]
        lines[change.place.line - 1 :] = new.split("\n")
    return "\n".join(filter(None, [*dict.fromkeys(change.imports for change in changes), *lines]))


def mesh_of(sizes):
    devices = np.array(jax.devices()[: int(np.prod([*sizes.values()]))], object)
    return Mesh(devices.reshape([*sizes.values()]), tuple(sizes))


def called(path, function, sizes, remedy=None):
    """Return a function of a file and its arguments, with a remedy as a user applies it."""
    mesh = mesh_of(sizes)
    changes = () if remedy is None else remedy.changes
    written = [change for change in changes if change.place.path is None]
    module = module_of(path, edited_text(path, written) if written else None)
    arguments = getattr(module, f"{function}_args")(mesh)
    arguments = arguments if type(arguments) is tuple else (arguments,)
    step = getattr(module, function)
    if "mesh" in inspect.signature(step).parameters:
        step = jax.jit(functools.partial(step, mesh=mesh))
    specs = {path: change.code for change in changes for path in change.place.paths}
    if not specs:
        return step, arguments
    shardings = {path: NamedSharding(mesh, eval(code, {"P": P})) for path, code in specs.items() if code}
    report = program_report(step, *arguments)
    leaves, tree = jax.tree.flatten(arguments)
    for number, one in enumerate(report.arguments):
        if one.path in shardings:
            leaf = leaves[number]
            leaves[number] = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=shardings[one.path])
    arguments = jax.tree.unflatten(tree, leaves)
    outputs = [one.path for one in report.outputs]
    if not {*outputs}.isdisjoint(shardings) or "" in specs.values():
        structure = jax.tree.structure(jax.eval_shape(step, *arguments))
        donated = [number for number, one in enumerate(report.arguments) if specs.get(one.path) == ""]
        if hasattr(step, "lower"):
            info = step.lower(*arguments).args_info[0]
            donated += [number for number, one in enumerate(info) if jax.tree.leaves(one)[0].donated]
        step = jax.jit(
            getattr(step, "__wrapped__", step),
            out_shardings=jax.tree.unflatten(structure, map(shardings.get, outputs)),
            donate_argnums=donated,
        )
    return step, arguments


def figures(step, arguments):
    return figures_of(program_report(step, *arguments, explain=False))


def results(step, arguments, seed=0):
    """Run a function on random numbers, and return its outputs."""
    rng = np.random.default_rng(seed)

    def value(leaf):
        if np.issubdtype(leaf.dtype, np.integer):
            found = rng.integers(0, 8, leaf.shape)
        else:
            found = rng.random(leaf.shape) / 8  # roots are real, and hyperbolic tangents not 1
        return jax.device_put(np.asarray(found, leaf.dtype), leaf.sharding)

    return [np.asarray(one) for one in jax.tree.leaves(step(*jax.tree.map(value, arguments)))]


def assert_true(path, function, sizes, report):
    """Assert that each change does in the source what is said, and changes no result."""
    plain = called(path, function, sizes)
    assert figures(*plain) == report.base
    before = results(*plain)
    for remedy in (*report.remedies, *report.trades):
        if not all(change.is_proved for change in remedy.changes):
            continue
        changed = called(path, function, sizes, remedy)
        assert figures(*changed) == remedy.after, remedy
        assert remedy.before == report.base
        for one, other in zip(before, results(*changed), strict=True):
            scale = np.max(np.abs(one), initial=0) + 1e-30
            assert np.max(np.abs(one - other), initial=0) <= 1e-4 * scale, remedy


_DIMS = (64, 128, 256)


def random_program(seed):
    """Return the source of a random program of two to six operations, with random shardings, and its mesh."""
    rng = random.Random(seed)
    sizes = rng.choice([{"a": 4, "b": 2}, {"a": 2, "b": 2, "c": 2}, {"a": 8}])
    values = {f"x{n}": (rng.choice(_DIMS), rng.choice(_DIMS)) for n in range(rng.randint(2, 3))}
    arguments = {name: (shape, _spec(rng, sizes)) for name, shape in values.items()}
    lines = []
    for number in range(rng.randint(2, 6)):
        code, shape = _operation(rng, values)
        name = f"v{number}"
        lines.append(f"{name} = {code}")
        values[name] = shape
    used = set(re.findall(r"\bx\d\b", " ".join(lines)))
    head = ", ".join(arguments)
    body = "\n".join(f"    {line}" for line in lines)
    last = f"v{len(lines) - 1}"
    structs = ", ".join(
        f"jax.ShapeDtypeStruct({shape}, jnp.float32, sharding=NamedSharding(mesh, P(*{spec})))"
        for shape, spec in arguments.values()
    )
    if used and rng.random() < 0.5:
        end = f"    return ({last} * {last}).mean()\n"
        wrapped = "step = jax.jit(jax.value_and_grad(body, argnums=(0, 1)))\n"
    else:
        end = f"    return {last}\n"
        wrapped = "step = jax.jit(body)\n"
    return (
        "import jax\nimport jax.numpy as jnp\nfrom jax.sharding import NamedSharding, PartitionSpec as P\n\n\n"
        f"def body({head}):\n{body}\n{end}\n\n{wrapped}\n\n"
        f"def step_args(mesh):\n    return ({structs},)\n"
    ), sizes


def _spec(rng, sizes):
    """Return a random spec of two dimensions."""
    places = {name: rng.choice([None, 0, 1]) for name in sizes}
    dims = [tuple(name for name, place in places.items() if place == dim) for dim in (0, 1)]
    return tuple(dim or None for dim in dims)


def _operation(rng, values):
    """Return the code of a random operation on values, and the shape of its result."""
    names = [*values]
    x = rng.choice(names)
    rows, columns = values[x]
    fitting = [name for name, shape in values.items() if shape[0] == columns]
    alike = [name for name, shape in values.items() if shape == values[x]]
    choices = [
        (f"jnp.tanh({x})", (rows, columns)),
        (f"{x}.T", (columns, rows)),
        (f"jax.nn.softmax({x}, axis={rng.choice([0, 1])})", (rows, columns)),
        (f"jnp.cumsum({x}, axis={rng.choice([0, 1])})", (rows, columns)),
        (f"{x} - {x}.mean(axis={rng.choice([0, 1])}, keepdims=True)", (rows, columns)),
        (f"jnp.roll({x}, 1, axis={rng.choice([0, 1])}) + {x}", (rows, columns)),
        (f"jnp.sort({x}, axis={rng.choice([0, 1])})", (rows, columns)),
        (f"{x}.reshape({columns}, {rows})", (columns, rows)),
        (f"{x} * {rng.choice(alike)}", (rows, columns)),
        *[(f"{x} @ {y}", (rows, values[y][1])) for y in fitting] * 6,
    ]
    return rng.choice(choices)
