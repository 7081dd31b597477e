"""Donated arguments, and the outputs that reuse their memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import assert_donated, from_json, program_report, to_json
from jax_array_info_core.arrays.stage_leaves import argument_values, output_values
from jax_array_info_core.compat.programs import program_mesh, program_record
from jax_array_info_core.compat.stages import Stages, argument_leaves, output_leaves
from jax_array_info_core.errors import CheckError
from jax_array_info_core.layouts import MeshAxes, Spec
from jax_array_info_core.programs.donations import UNUSED, common_end, donations_of
from jax_array_info_core.reports import Donation, ProgramValue, ShardingDescription
from jax_array_info_core.xla.hlo.module import read_module
from tests.hlo_texts import module_of
from tests.programs import abstract, line

pytestmark = pytest.mark.once_per_version


def donated(f, *arguments, donate=0, **options):
    """Return the donations of a function as ``path: output or reason``."""
    traced = jax.jit(f, donate_argnums=donate, **options).trace(*arguments)
    lowered = traced.lower()
    compiled = lowered.compile()
    module = read_module(program_record(compiled))
    given, returned = (
        leaves(Stages(traced, lowered, compiled)) for leaves in (argument_leaves, output_leaves)
    )
    mesh = program_mesh([*given, *returned])
    arguments = argument_values(given, mesh)
    outputs = output_values(returned, mesh)
    found = donations_of(arguments, [leaf.is_donated for leaf in given], outputs, module)
    return {one.path: one.output or one.reason for one in found}


def sharded(shape, *axes, dtype=jnp.float32):
    mesh = Mesh(np.array(jax.devices()), ("d",))
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*axes)))


def plain(*shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


@pytest.mark.filterwarnings("ignore:Some donated buffers")
@pytest.mark.needs_devices(8)
def test_each_donated_argument_has_the_output_that_reuses_it_or_a_reason():
    """JAX does not warn of another dtype without out_shardings. Pruned arguments have no number."""

    def rows(*shape):
        return sharded(shape, "d")

    def update(unused, state, half, moved, one, other, pruned, kept, last):
        return {
            "new": {key: value + kept.sum() for key, value in state.items()},
            "half": half.astype(jnp.bfloat16),
            "moved": jax.lax.with_sharding_constraint(moved + 1, sharded(()).sharding),
            "sum": one + other,
            "last": last * 2,
        }

    state = {"a": rows(64, 64), "b": rows(64, 32)}
    others = rows(24, 64), rows(8, 320), rows(32, 32), rows(32, 32), rows(64, 4), rows(64, 2), rows(64, 1)
    assert donated(update, rows(64, 8), state, *others, donate=(0, 1, 2, 3, 4, 5, 8)) == {
        "unused": UNUSED,
        "state/a": "outputs/new/a",
        "state/b": "outputs/new/b",
        "half": "dtype: no output is float32[24,64]; outputs/half is bfloat16[24,64]",
        "moved": "sharding: no output float32[8,320] is P('d',); outputs/moved is P()",
        "one": "outputs/sum",
        "other": "taken: no output float32[32,32] is left; outputs/sum reuses one",
        "last": "outputs/last",
    }


@pytest.mark.filterwarnings("ignore:Some donated buffers")
@pytest.mark.needs_devices(8)
def test_an_output_with_another_sharding_is_named_where_the_one_that_fits_is_taken():
    def f(b, d):
        return jax.lax.with_sharding_constraint(b + 1, sharded(()).sharding), d + 1

    found = donated(f, sharded((8, 8), "d"), sharded((8, 8), "d"), donate=(0, 1))
    assert found == {
        "b": "outputs/1",
        "d": "taken: no output float32[8,8] that is P('d',) is left; outputs/1 reuses b; outputs/0 is P()",
    }


@pytest.mark.filterwarnings("ignore:Some donated buffers")
def test_an_unused_argument_that_is_kept_is_not_reused():
    assert donated(lambda s, x: x * 2, plain(64, 64), plain(4, 4), keep_unused=True) == {"s": UNUSED}


@pytest.mark.parametrize("ordered", [True, False])
def test_ordered_effects_do_not_shift_the_numbers(ordered):
    """Their tokens are the first parameters and the first outputs."""

    def f(x, s):
        jax.debug.print("{}", x.sum(), ordered=ordered)
        io_callback(lambda value: None, None, x, ordered=ordered)
        return x * 2, s + 1

    assert donated(f, plain(4), plain(64, 64), donate=1) == {"s": "outputs/1"}


def test_an_argument_that_is_returned_is_its_own_output():
    assert donated(lambda s, x: (x + 1, s), plain(64, 64), plain(4)) == {"s": "outputs/1"}


def value(path, shape, dtype="float32", axes=(), **fields):
    description = ShardingDescription(
        type="NamedSharding", spec=Spec(axes), mesh=MeshAxes(("d", "e"), (8, 1))
    )
    return ProgramValue(path=path, shape=shape, dtype=dtype, nbytes=4, got=description, **fields)


def reasons(argument, *outputs):
    """Return what is said of a donated argument that the program uses, and no output reuses."""
    module = module_of(
        "HloModule m\n\nENTRY %main {\n  %p = f32[8]{0} parameter(0)\n  ROOT %r = f32[8]{0} negate(%p)\n}"
    )
    (found,) = donations_of([argument], [True], outputs, module)
    assert found == Donation(path=argument.path, nbytes=4, reason=found.reason)
    return found.reason


def test_an_output_that_matches_may_be_left():
    """Mesh axes of size 1 make no difference."""
    assert reasons(value("s", (8,), axes=(("d", "e"),)), value("o", (8,), axes=(("d",),))) == (
        "XLA did not reuse it; o has its dtype, shape and sharding"
    )


def test_an_output_in_other_memory_does_not_reuse_it():
    argument = value("s", (8,), memory_kind="device")
    hosted = value("o", (8,), memory_kind="pinned_host")
    assert reasons(argument, hosted) == (
        "memory kind: no output float32[8] is in device; o is in pinned_host"
    )
    sharded_on_device = value("d", (8,), axes=(("d",),), memory_kind="device")
    assert reasons(argument, hosted, sharded_on_device) == (
        "sharding: no output float32[8] in device is P(); d is P('d',)"
    )


def test_an_output_in_other_memory_is_named_where_the_one_that_fits_is_taken():
    module = module_of(
        "HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }\n\n"
        "ENTRY %main {\n  %p = f32[8]{0} parameter(0)\n  %q = f32[8]{0} parameter(1)\n"
        "  ROOT %r = (f32[8]{0}, f32[8]{0}) tuple(%p, %q)\n}"
    )
    arguments = [value(path, (8,), memory_kind="device") for path in "ab"]
    outputs = [value("o/0", (8,), memory_kind="device"), value("o/1", (8,), memory_kind="pinned_host")]
    first, second = donations_of(arguments, [True, True], outputs, module)
    assert first.output == "o/0"
    assert second.reason == (
        "taken: no output float32[8] in device is left; o/0 reuses a; o/1 is in pinned_host"
    )


@pytest.mark.parametrize("kinds", [(None, "pinned_host"), ("device", None), ("unpinned_host",) * 2])
def test_memory_kinds_that_are_unknown_or_equal_are_no_reason(kinds):
    argument, output = (value(path, (8,), memory_kind=kind) for path, kind in zip("so", kinds, strict=True))
    assert reasons(argument, output) == "XLA did not reuse it; o has its dtype, shape and sharding"


@pytest.mark.needs_devices(8)
def test_arguments_that_match_outputs_and_are_not_donated_could_be():
    mesh = line()
    state = {"w": abstract(mesh, P("dp"), (512, 1024)), "m": abstract(mesh, P("dp"), (512, 1024))}
    batch = abstract(mesh, P("dp"), (64, 1024))

    def update(state, batch):
        return {"w": state["w"] + batch.sum(), "m": state["m"] * 0.9}, batch.mean()

    found = program_report(update, state, batch).donatable
    assert [(one.path, one.nbytes, one.output) for one in found] == [
        ("state/m", 262144, "outputs/0/m"),
        ("state/w", 262144, "outputs/0/w"),
    ]
    assert program_report(jax.jit(update, donate_argnums=0), state, batch).donatable == ()
    rows = {name: NamedSharding(mesh, P()) for name in state}
    assert program_report(jax.jit(update, out_shardings=(rows, None)), state, batch).donatable == ()


@pytest.mark.once_per_version
def test_an_output_with_the_path_of_an_argument_chooses_before_others_of_its_type():
    state = {"count": jax.ShapeDtypeStruct((), "int32"), "step": jax.ShapeDtypeStruct((), "int32")}

    def update(state):
        return {"a marker": 0 * state["step"], "state": {name: one + 1 for name, one in state.items()}}

    assert [(one.path, one.output) for one in program_report(update, state).donatable] == [
        ("state/count", "outputs/state/count"),
        ("state/step", "outputs/state/step"),
    ]


def test_paths_of_different_length_have_only_their_last_keys_in_common():
    assert common_end("params/layers/w", "w") == common_end("w", "params/layers/w") == 1
    assert common_end("params/layers/w", "mu/layers/w") == 2


@pytest.mark.needs_devices(8)
def test_no_argument_could_be_donated_to_an_output_on_a_mesh_with_another_order_of_axes():
    devices = np.array(jax.devices()[:8])
    rows = NamedSharding(Mesh(devices.reshape(2, 4), ("x", "y")), P("x"))
    others = NamedSharding(Mesh(devices.reshape(4, 2), ("y", "x")), P("x"))
    assert rows.devices_indices_map((8, 16)) != others.devices_indices_map((8, 16))
    x = jax.device_put(jnp.zeros((8, 16)), rows)
    same, moved = (jax.jit(jnp.sin, in_shardings=rows, out_shardings=out) for out in (rows, others))
    assert [one.path for one in program_report(same, x).donatable] == ["x"]
    assert program_report(moved, x).donatable == ()


def same(array):
    """Return two arguments that are one array."""
    return array, array


def put_again(array):
    """Return an array, and another one with its buffer."""
    again = jax.device_put(array, array.devices().pop())
    return array, again


def on_all_devices():
    return jax.device_put(jnp.ones((16, 16)), NamedSharding(Mesh(np.array(jax.devices()), ("d",)), P("d")))


@pytest.mark.newest  # JAX 0.7 waits for ever when the arguments of a failed call are deleted
@pytest.mark.filterwarnings("ignore:Some donated buffers")
@pytest.mark.parametrize(
    ("make", "function", "donate", "reused"),
    [
        (lambda: same(jnp.ones((16, 16))), lambda a, b: (a + 1, b + 1), (0, 1), None),
        (lambda: same(on_all_devices()), lambda a, b: (a + 1, b + 1), (0, 1), None),
        (lambda: same(on_all_devices()), lambda a, b: a + b, (0, 1), None),
        (lambda: same(jax.random.key(0)), lambda a, b: (jax.random.fold_in(a, 1), b), (0,), None),
        (lambda: same(jnp.ones(())), lambda a, b: (a + 1, b + 1), (0, 1), None),
        (lambda: put_again(jnp.ones((16, 16))), lambda a, b: (a + 1, b + 1), (0, 1), None),
        (lambda: same(jnp.ones((16, 16))), lambda a, b: a + b, (0,), None),
        (lambda: same(jnp.ones((16, 16))), lambda a, b: b - a, (1,), None),
        (lambda: same(jnp.ones((16, 16))), lambda a, b: a + 1, (0,), ["a"]),
        (lambda: same(jnp.ones((16, 16))), lambda a, b: (a + b).sum(), (0, 1), []),
        (lambda: same(on_all_devices()), lambda a, b: (a + b).sum(), (0, 1), []),
        (lambda: same(np.ones((16, 16))), lambda a, b: (a + 1, b + 1), (0, 1), ["a", "b"]),
        (lambda: same(1.0), lambda a, b: (a + 1, b + 1), (0, 1), ["a", "b"]),
        (lambda: (jnp.ones(8), jnp.ones(8)), lambda a, b: (a + 1, b + 1), (0, 1), ["a", "b"]),
    ],
)
def test_a_donation_is_reused_only_if_the_call_runs(make, function, donate, reused):
    """The list of reused arguments is None if the call fails."""
    arguments = make()
    step = jax.jit(function, donate_argnums=donate)
    report = program_report(step, *arguments)
    codes = [one.code for one in report.findings]
    found = [one.path for one in report.donations if one.output is not None]
    assert ("JAI211" in codes) == (reused is None)
    assert found == (reused or [])
    del report
    if reused is not None:
        step(*arguments)
        return
    assert "JAI206" not in codes
    with pytest.raises((ValueError, RuntimeError), match=r"donate.* buffer|buffer .*donated"):
        step(*arguments)
    arguments = make()
    copied = arguments[0], jnp.copy(arguments[1])  # the remedy
    assert "JAI211" not in [one.code for one in program_report(step, *copied).findings]
    step(*copied)


def test_no_donation_counts_if_a_call_fails_and_each_has_its_reason():
    shared = jnp.ones((16, 16))
    state = {"a": shared, "b": shared, "c": jnp.ones((16, 16))}
    step = jax.jit(
        lambda state, scale: jax.tree.map(lambda one: scale * one, state),
        donate_argnums=0,
        static_argnames="scale",
    )
    report = program_report(step, state, scale=2)
    assert [one.output for one in report.donations] == [None] * 3
    with pytest.raises(CheckError, match=r"state/c \(1\.0 KiB\): a call fails: other arguments share"):
        assert_donated(report, "state/c")
    with pytest.raises(
        CheckError, match=r"state/a \(1\.0 KiB\): a call fails: it shares its buffer with state/b"
    ):
        assert_donated(report, "state")
    assert from_json(to_json(report)) == report


def test_arguments_that_share_a_buffer_are_not_advised_to_be_donated():
    big = jnp.ones((1024, 1024))
    add = lambda a, b: (a + 1, b + 1)  # noqa: E731
    assert [one.code for one in program_report(add, big, 2 * big).findings] == ["JAI207"]
    assert program_report(add, big, big).findings == ()
