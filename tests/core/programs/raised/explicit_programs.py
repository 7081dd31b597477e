"""Programs that raise in Explicit mode, and the same programs with an edit in place of the expression."""

import itertools
import linecache
import tomllib
from pathlib import Path

import numpy as np

FILE = Path(__file__).parents[3] / "data" / "explicit" / "programs.toml"
PREAMBLE = """\
import numpy as np
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P, reshard
E = AxisType.Explicit
mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(E, E))
A = np.arange(64, dtype=np.float32).reshape(8, 8)
def put(a, *spec):
    return jax.device_put(jnp.asarray(a), P(*spec))
"""
_numbers = itertools.count()


def programs(file=FILE):
    """Return the programs of a file."""
    return tomllib.loads(file.read_text(encoding="utf-8"))["program"]


def source_of(program):
    """Return the source of a program; one with ``mesh`` in it sets up its own names."""
    return program["source"] if "preamble" in program else PREAMBLE + program["source"]


class Program:
    """A program, run as a file of its own that only ``linecache`` holds."""

    def __init__(self, source, want):
        self.source, self.want = source, want
        self.file = f"<program {next(_numbers)}>"
        lines = source.splitlines(keepends=True)
        linecache.cache[self.file] = (len(source), None, lines, self.file)
        self.names = {"__name__": "program"}
        exec(compile(source, self.file, "exec"), self.names)

    def run(self):
        """Call ``bad`` in the program's mesh."""
        import jax

        with jax.set_mesh(self.names["mesh"]):
            return self.names["bad"]()

    def error(self):
        """Return the error that the program raises."""
        try:
            self.run()
        except Exception as error:
            return error
        raise AssertionError("the program does not raise")

    def edited(self, explanation, edit):
        """Return the program with the edit in place of the expression."""
        lines = self.source.splitlines(keepends=True)
        before, after = "".join(lines[: explanation.line - 1]), "".join(lines[explanation.line - 1 :])
        assert explanation.expression in after, "the expression does not stand in its line"
        return Program(before + after.replace(explanation.expression, edit.code, 1), self.want)

    def is_right(self):
        """Return whether the program runs and equals NumPy."""
        import jax

        with jax.set_mesh(self.names["mesh"]):
            got = self.names["bad"]()
            got = np.asarray(got)
        want = np.asarray(eval(self.want, dict(self.names)))
        return got.shape == want.shape and np.allclose(got, want, rtol=1e-3, atol=1e-3)
