"""``jai-cli advise``: the specs of constraints are found where the source writes them, and changed there."""

import sys

import jax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core.arrays.origins.origins import UserLines
from jax_array_info_core.facts.reports.advice import ProgramFigures
from jax_array_info_core.programs.advice.edits import Candidate, Edit, Pin
from jax_array_info_core.programs.advice.pins import Pins
from jax_array_info_core.programs.advice.search import figures_of
from jax_array_info_core.programs.propagation.propagation_report import propagated
from tests.cli.advised import engine_on, figures, module_of

pytestmark = [pytest.mark.newest, pytest.mark.needs_devices(8)]

SIZES = {"data": 4, "model": 2}
WANTED = ((), ("model",))

HEAD = """
import functools
import jax, jax.numpy as jnp
import specs
from jax.lax import with_sharding_constraint
from jax.sharding import NamedSharding, PartitionSpec as P
from specs import GIVEN as RENAMED

mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
ROWS, AXIS = P("data"), "data"
WHOLE = P()
FIRST, SECOND = P(("data", "model")), P("model", "data")
TABLE = {"w": P("data"), "b": P()}


def con(x, *spec):
    \"\"\"Constrain x.\"\"\"
    return with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))


def on(*spec):
    return NamedSharding(mesh, P(*spec))


def given(x, spec, rest=None):
    return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))


def default(x, spec=P("data", None)):
    return given(x, spec)


def tree(values, spec):
    return jax.tree.map(lambda value: jax.lax.with_sharding_constraint(value, on(*spec)), values)


class Layer:
    spec = P("data")

    def con(self, x, *spec):
        return con(x, *spec)

    def held(self, x):
        return given(x, self.spec)


layer = Layer()


def step(x, w):
    y = jnp.tanh(x @ w)
    return (
        LINES
    )


def step_args(mesh):
    table = {
        "w": NamedSharding(mesh, P()),
    }
    shardings = NamedSharding(mesh, WHOLE), table["w"]
    return tuple(jax.ShapeDtypeStruct((512, 512), jnp.float32, sharding=one) for one in shardings)
"""
SPECS = 'from jax.sharding import PartitionSpec as P\n\nGIVEN = P("data")\nHELD = P("data", None)\n'
CASES = {
    # The line that returns, what is printed of the source, and what is written in its place.
    'con(y, "data")': ('con(y, "data")', 'con(y, None, "model")'),
    'con(y * 2, "data", None).T': ('con(y * 2, "data", None)', 'con(y * 2, None, "model")'),
    "con(y, AXIS, None)": ("con(y, AXIS, None)", 'con(y, None, "model")'),
    "given(y, ROWS)": ('ROWS, AXIS = P("data"), "data"', 'ROWS, AXIS = P(None, "model"), "data"'),
    "given(y, spec=P(AXIS, P.UNCONSTRAINED))": (
        "given(y, spec=P(AXIS, P.UNCONSTRAINED))",
        'given(y, spec=P(None, "model"))',
    ),
    "given(y.T, ROWS)": ('ROWS, AXIS = P("data"), "data"', 'ROWS, AXIS = P(None, "model"), "data"'),
    "given(y, RENAMED)": ('GIVEN = P("data")', 'GIVEN = P(None, "model")'),
    "given(y, specs.HELD)": ('HELD = P("data", None)', 'HELD = P(None, "model")'),
    'given(y, TABLE["w"])': ('"w": P("data")', '"w": P(None, "model")'),
    "default(y)": ('P("data", None)', 'P(None, "model")'),
    'with_sharding_constraint(y, on("data"))': (
        'with_sharding_constraint(y, on("data"))',
        'with_sharding_constraint(y, on(None, "model"))',
    ),
    'tree([y], P("data"))': ('tree([y], P("data"))', 'tree([y], P(None, "model"))'),
    'layer.con(y, "data")': ('layer.con(y, "data")', 'layer.con(y, None, "model")'),
    '(lambda z: given(\n        z, P("data")))(y)': ('P("data")', 'P(None, "model")'),
    # The first dimension is that of the vmap.
    'jax.vmap(lambda row: con(row, "data"))(y.T)': ('con(row, "data")', 'con(row, "model")'),
}
COMPUTED = {
    # The line that returns, and the call in which a reader looks for the spec.
    'con(y, *["data"])': 'con(y, *["data"])',
    "given(y, P(*AXIS.split()))": "given(y, P(*AXIS.split()))",
    "layer.held(y)": "layer.held(y)",
    'given(y, [P("data"), P("data")][len(AXIS) - 4])': 'given(y, [P("data"), P("data")][len(AXIS) - 4])',
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """An engine for a program that returns the values of all cases."""
    folder = tmp_path_factory.mktemp("written")
    (folder / "specs.py").write_text(SPECS, encoding="utf-8")
    text = HEAD.replace("LINES", ",\n        ".join([*CASES, *COMPUTED, ""]))
    (folder / "step.py").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jax_array_info_cli.user_code.compiling._prepare_jax", lambda count: None)
        patch.syspath_prepend(str(folder))
        engine = engine_on(folder / "step.py", "step", SIZES)
        engine.base(0.0)
        engine.path = folder / "step.py"
        yield engine
    sys.modules.pop("specs", None)


@pytest.fixture(scope="module")
def pins(engine):
    """The constraints of the program, by the code of the case."""
    tries = engine.tries
    report = tries._report
    program = propagated(tries._lowered, report.arguments, report.outputs, UserLines())
    constraints = [one.pin for one in Pins(program, report, (), None).constraints]
    assert len(constraints) == len(CASES) + len(COMPUTED)
    return dict(zip([*CASES, *COMPUTED], constraints, strict=True))


def without_columns(pin):
    """Return a constraint as it is known before Python 3.11."""
    return pin._replace(columns=(None,) * len(pin.frames))


def changes(engine, *pins):
    return [one.change for one in engine.tries.written(pins)]


@pytest.mark.parametrize("has_columns", [True, False])
@pytest.mark.parametrize("line", CASES)
def test_a_spec_is_changed_where_it_is_written(engine, pins, line, has_columns):
    pin = pins[line]._replace(axes=WANTED)
    (change,) = changes(engine, pin if has_columns else without_columns(pin))
    assert (change.expression, change.code, change.is_proved) == (*CASES[line], True)


@pytest.mark.parametrize("line", COMPUTED)
def test_a_spec_that_is_computed_is_named(engine, pins, line):
    (change,) = changes(engine, pins[line]._replace(axes=WANTED))
    assert (change.expression, change.code, change.is_proved) == (COMPUTED[line], 'P(None, "model")', False)


def test_a_constraint_is_taken_away_with_its_helper(engine, pins):
    lines = ['con(y * 2, "data", None).T', "given(y, ROWS)", 'tree([y], P("data"))']
    found = [changes(engine, pins[line]._replace(axes=None))[0] for line in lines]
    assert [(one.expression, one.code) for one in found] == [
        ('con(y * 2, "data", None)', "(y * 2)"),
        ("given(y, ROWS)", "y"),
        ("jax.lax.with_sharding_constraint(value, on(*spec))", "value"),
    ]


def test_one_text_changes_once(engine, pins):
    """Two constraints have one spec. If they are to have two others, none of them is written."""
    one, other = (pins[line]._replace(axes=WANTED) for line in ("given(y, ROWS)", "given(y.T, ROWS)"))
    assert len(changes(engine, one, other)) == 1
    both = changes(engine, one, other._replace(axes=((), ("data",))))
    assert [(change.expression, change.is_proved) for change in both] == [
        ("given(y, ROWS)", False),
        ("given(y.T, ROWS)", False),
    ]


def test_a_computed_constraint_is_taken_away_if_that_does_the_same(engine, pins):
    changed = pins["layer.held(y)"]._replace(axes=WANTED)
    tried = ProgramFigures(sent_nbytes=2**30, memory_nbytes=2**30)
    remedy = engine.proved(Candidate("rule", "", (changed,), ()), tried, 0.0)
    assert (remedy.expression, remedy.code, remedy.is_proved) == ("layer.held(y)", "y", True)


@pytest.mark.parametrize(("nbytes", "code"), [(2**30, "y"), (0, 'given(y, spec=P(None, "model"))')])
def test_a_constraint_that_gives_values_several_specs_is_taken_away_if_that_does_the_same(
    engine, pins, nbytes, code
):
    changed = pins["given(y, spec=P(AXIS, P.UNCONSTRAINED))"]._replace(axes=WANTED)
    edits = Edit("constraint", 0, WANTED), Edit("constraint", 1, ((), ("data",)))
    tried = ProgramFigures(sent_nbytes=nbytes, memory_nbytes=nbytes)
    assert engine.proved(Candidate("rule", "", (changed,), edits), tried, 0.0).code == code


def test_several_changes_are_proved_together(engine, pins):
    """The figures are those of a copy with all of them: in two files, of arguments and outputs."""
    paths = [one.path for one in (*engine.tries._report.arguments, engine.tries._report.outputs[0])]
    changed = (
        pins["given(y, RENAMED)"]._replace(axes=WANTED),
        pins["given(y, ROWS)"]._replace(axes=WANTED),
        Pin("argument", WANTED, paths=(paths[0],)),
        Pin("output", ((), ("data",)), paths=(paths[2],)),
    )
    remedy = engine.proved(Candidate("rule", "it is so", changed, ()), ProgramFigures(), 0.0)
    assert [one.kind for one in remedy.changes] == ["respec", "respec", "argument", "output"]
    assert all(one.is_proved for one in remedy.changes)
    assert (remedy.because, remedy.before) == ("it is so", engine._program.base.tried_as)
    assert remedy.after == figures(*edited_program(engine))


def edited_program(engine):
    """Return the program with these changes, as a user makes them, and its arguments."""
    text = engine.path.read_text(encoding="utf-8").replace(
        'ROWS, AXIS = P("data")', 'ROWS, AXIS = P(None, "model")'
    )
    text = text.replace("from specs import GIVEN as RENAMED", 'RENAMED = P(None, "model")')
    module = module_of(engine.path, text)
    shardings = [
        NamedSharding(module.mesh, P(None, "data")),
        *[None] * (len(engine.tries._report.outputs) - 1),
    ]
    step = jax.jit(module.step, out_shardings=tuple(shardings))
    x, w = module.step_args(module.mesh)
    return step, (
        jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(module.mesh, P(None, "model"))),
        w,
    )


def test_the_specs_of_arguments_are_changed_where_they_are_written(engine, pins):
    """A constraint with a computed spec is taken to follow them, as they are those of a table."""
    paths = [one.path for one in engine.tries._report.arguments]
    changed = (
        pins["layer.held(y)"]._replace(axes=WANTED),
        Pin("argument", WANTED, paths=(paths[0],)),
        Pin("argument", ((), ("data",)), paths=(paths[1],)),
    )
    tried = ProgramFigures(sent_nbytes=2**30, memory_nbytes=2**30)
    remedy = engine.proved(Candidate("rule", "", changed, ()), tried, 0.0)
    assert [(one.expression, one.code, one.is_proved) for one in remedy.changes] == [
        ("WHOLE = P()", 'WHOLE = P(None, "model")', True),
        ('"w": NamedSharding(mesh, P())', '"w": NamedSharding(mesh, P(None, "data"))', True),
    ]
    assert remedy.before == figures_of(engine._base) != remedy.after
    worse = engine.proved(Candidate("rule", "", changed, ()), ProgramFigures(), 0.0)
    assert [one.is_proved for one in worse.changes] == [True, True, False]


def test_changes_of_one_line_are_one(engine):
    shardings = [(("data", "model"),), (("model",), ("data",))]
    given = [Pin("argument", WANTED, before=axes, paths=("x",)) for axes in shardings]
    ((one,), left) = engine.tries.tables(given)
    assert (left, one.change.code) == ([], 'FIRST, SECOND = P(None, "model"), P(None, "model")')


def test_arguments_stay_whose_specs_have_no_variable(engine, pins):
    argument = Pin("argument", ((), ("data",)), before=((), ("model",)), paths=("x",))
    assert engine.tries.tables([argument]) == ([], [argument])


def test_what_is_not_written_has_the_figures_of_its_try(engine, pins):
    figures = ProgramFigures(sent_nbytes=1)
    changed = pins["layer.held(y)"]._replace(axes=WANTED), pins["given(y, ROWS)"]._replace(axes=WANTED)
    remedy = engine.proved(Candidate("rule", "", changed, ()), figures, 0.0)
    assert [one.is_proved for one in remedy.changes] == [True, False]
    assert (remedy.before, remedy.after) == (engine._program.base.tried_as, figures)
