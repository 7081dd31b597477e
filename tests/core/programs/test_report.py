from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jax_array_info_core import (
    CheckError,
    assert_donated,
    assert_no_collective,
    assert_sent,
    check_report,
    from_json,
    metrics,
    program_diff_report,
    program_report,
    program_timeline_report,
    to_json,
)
from jax_array_info_core.compat.programs import program_record
from jax_array_info_core.xla.hlo.messages import hlo_classes
from tests.programs import abstract, cube, line, loss, refuse, scanned, step, step_arguments
from tests.threads import in_threads

pytestmark = [pytest.mark.once_per_version, pytest.mark.needs_devices(8)]


def test_a_training_step_sends_the_bytes_of_its_gathers_and_reductions():
    report = program_report(jax.jit(step), *step_arguments(cube()))
    assert {(one.kind, one.axes): one.nbytes for one in report.sent.by_kind_and_axes} == {
        ("all-gather", ("fsdp",)): 786_432,
        ("all-reduce", ("tensor",)): 524_288,
        ("all-reduce", ("fsdp",)): 1_048_576,
        ("all-reduce", ("data",)): 524_288,
    }
    assert report.sent.nbytes == 2_883_584
    assert report.sent.unknown_count == 0
    assert (report.unread, report.timeline) == ((), None)
    assert (report.name, report.platform, report.device_count) == ("step", "cpu", 8)
    assert report.origin.line == step.__code__.co_firstlineno
    gathered = {one.path for one in report.collectives if one.kind == "all-gather"}
    assert gathered >= {"params/wi", "params/wo"}


@pytest.mark.parametrize(
    ("checkpoint", "sent", "backward", "flops", "kept"),
    [
        (True, 251_658_240, 184_549_376, 240_518_168_576, (4, 8, 256, 1024)),
        (False, 234_881_024, 167_772_160, 206_158_430_208, (4, 8, 256, 2048)),
    ],
    ids=["checkpoint", "kept"],
)
def test_a_scanned_step_counts_its_loops_and_names_what_it_keeps(checkpoint, sent, backward, flops, kept):
    function, arguments = scanned(cube(), checkpoint=checkpoint)
    report = program_report(function, *arguments)
    assert report.sent.nbytes == sent
    assert {one.phase: one.nbytes for one in report.sent.by_phase}["backward"] == backward
    assert {one.times for one in report.collectives} == {4}
    assert report.dot_flops == flops
    temporaries = [one for one in report.memory.temporaries if one.is_kept and one.shape == kept]
    assert temporaries
    assert {one.dtype for one in temporaries} == {"float32"}
    assert {one.origin.file for one in temporaries if one.origin} == {
        function.__wrapped__.__code__.co_filename
    }
    assert report.unread == ()


def test_nothing_is_allocated_run_or_donated():
    mesh = line()
    ran = []
    x = jax.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, P("dp")))

    def noisy(x):
        jax.debug.callback(lambda: ran.append(1))
        return x + 1

    before = len(jax.live_arrays())
    report = program_report(jax.jit(noisy, donate_argnums=0), x)
    jax.effects_barrier()
    assert len(jax.live_arrays()) == before
    assert not x.is_deleted()
    assert ran == []
    assert [one.output for one in report.donations] == ["outputs"]


def test_threads_get_the_reports_of_their_own_programs():
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))

    def ask(number):
        def reshard(a):
            return jax.lax.with_sharding_constraint(a * number, NamedSharding(mesh, P(None, ("x", "y"))))

        argument = abstract(mesh, P("y", None, "x"), (16, 16, 16 * number))
        report = program_report(reshard if number % 2 else jnp.sin, argument)
        return len(report.rematerializations), report.outputs[0].shape[-1]

    numbers = range(1, 17)
    assert in_threads(ask, numbers) == [(number % 2, 16 * number) for number in numbers]


def test_an_error_of_the_function_is_raised_unchanged():
    with pytest.raises(ZeroDivisionError):
        program_report(lambda x: x / (1 // 0), np.ones(3))


@pytest.mark.parametrize(("operation", "may_send"), [("add", False), ("custom-call", True)])
def test_an_unknown_type_makes_the_bytes_unknown_only_if_its_instruction_may_send(
    monkeypatch, operation, may_send
):
    compiled = jax.jit(jnp.sin).lower(jax.ShapeDtypeStruct((8,), jnp.float32)).compile()
    message = hlo_classes()["HloModuleProto"].FromString(program_record(compiled))
    (entry,) = (one for one in message.computations if one.name == message.entry_computation_name)
    added = entry.instructions.add(
        name="lost", opcode=operation, id=2**40, operand_ids=[entry.instructions[0].id]
    )
    added.shape.element_type = 99
    (order,) = (one.value for one in message.schedule.sequences if one.key == entry.id)
    order.instruction_ids.append(added.id)
    record = message.SerializeToString()
    monkeypatch.setattr("jax_array_info_core.programs.compiled.program_record", lambda _: record)
    lost = f"%lost = {operation}(%{entry.instructions[0].name})"
    report = program_report(compiled)
    assert report.unread == (lost,)
    assert report.unread_sending == ((lost,) if may_send else ())
    assert from_json(to_json(report)) == report
    with pytest.raises(CheckError, match="lost") if may_send else nullcontext():
        assert_sent(report, at_most=0)


class OfPlugin:
    """The executable of a platform that does not hand out its program."""

    def hlo_modules(self):
        raise NotImplementedError


class WithoutModules(OfPlugin):
    def hlo_modules(self):
        return []


@pytest.mark.parametrize("executable", [None, OfPlugin(), WithoutModules()])
def test_a_program_that_its_platform_does_not_hand_out_is_not_read(monkeypatch, executable):
    compiled = jax.jit(jnp.sin).lower(jax.ShapeDtypeStruct((8,), jnp.float32)).compile()
    monkeypatch.setattr(type(compiled), "runtime_executable", lambda _: executable)
    report = program_report(compiled)
    assert report.reason == "the platform does not hand out the compiled program"
    assert report.unread == ()
    assert report.answer == f"{report.reason}; 1 finding: JAI210 unread-lines"
    [finding] = report.findings
    assert finding.problem == (
        "The platform does not hand out the compiled program: what it sends, its memory and its FLOPs are"
        " unknown."
    )
    assert report.sent_nbytes is None
    assert metrics(report, prefix="").keys().isdisjoint(("program/sent_bytes", "program/collective_count"))
    assert (report.memory, report.dot_flops, report.collectives) == (None, None, ())
    assert from_json(to_json(report)) == report
    with pytest.raises(CheckError, match="does not hand out"):
        assert_sent(report, at_most=0)
    with pytest.raises(CheckError, match="does not hand out"):
        assert_donated(report, report.arguments[0].path)


@pytest.mark.parametrize("is_known", [True, False])
def test_of_a_program_that_was_refused_the_outputs_have_no_bytes_and_the_collectives_are_known(
    monkeypatch, is_known
):
    function, arguments = jax.jit(step), step_arguments(cube())
    classes, refused = hlo_classes(), None
    if is_known:
        module = classes["HloModuleProto"].FromString(program_record(function.lower(*arguments).compile()))
        refused = classes["HloProto"](hlo_module=module).SerializeToString()

    refuse(monkeypatch, refused)
    report = program_report(function, *arguments)
    assert report.out_of_memory.available_nbytes is not None
    assert {one.nbytes for one in report.outputs} == {None}
    assert None not in {one.nbytes for one in report.arguments}
    assert (report.is_known, report.sent.nbytes) == (is_known, 2_883_584 if is_known else 0)
    assert program_diff_report(report, report).sent_nbytes_before == (2_883_584 if is_known else None)
    assert from_json(to_json(report)) == report


@pytest.mark.skipif(jax.__version_info__ >= (0, 10, 1), reason="Shardy tells origins from JAX 0.10.1 on")
def test_before_jax_0_10_1_there_are_no_reasons():
    report = program_report(jax.grad(loss), *step_arguments(cube()))
    assert report.collectives
    assert not any(one.because for one in report.collectives)


def test_a_helper_is_started_for_collectives_only(monkeypatch):
    workers, matrix = {}, abstract(line(), P("dp"), (64, 64))
    monkeypatch.setattr("jax_array_info_core.programs.propagation.helper._WORKERS", workers)
    program_report(jnp.sin, jnp.ones(8))
    program_timeline_report(jnp.matmul, matrix, matrix)
    report = program_report(jnp.matmul, matrix, matrix, explain=False)
    with pytest.raises(AssertionError, match="all-gather"):
        assert_no_collective(report, "all-gather")
    assert workers == {}


@pytest.mark.needs_devices(8)
@pytest.mark.parametrize(
    ("hbm", "fits"),
    [("256KiB", True), (2**18, True), (2**18 - 1, False), ("v5p", True), (" H100 ", True), ("1KiB", False)],
)
def test_the_memory_of_a_program_is_compared_with_that_of_a_device(hbm, fits):
    report = program_report(lambda x: x + 1, abstract(line("x"), P("x"), (512, 512)), hbm_nbytes=hbm)
    assert report.memory.required_nbytes == 2 * 512 * 512 * 4 // 8
    assert (report.out_of_memory is None) == fits
    assert report.answer.startswith("fits: needs 256.0 KiB" if fits else "does not fit: needs 256")


def test_an_unknown_name_of_a_device_lists_those_that_are_known():
    with pytest.raises(ValueError, match=r"v5e, v5p, .*h100.*got 'v9'"):
        program_report(lambda x: x, 1.0, hbm_nbytes="v9")
    with pytest.raises(ValueError, match=r"v5e, v5p, .*h100.*got 'v9'"):
        check_report({"w": np.ones(8)}, hbm_nbytes="v9")
    assert check_report({"w": np.ones(8)}, hbm_nbytes="v5e").hbm_nbytes == round(15.75 * 2**30)


def test_the_definition_has_the_text_of_its_line():
    """Reports of functions in others have the indentation."""

    def step(x):
        return x + 1

    assert program_report(step, jnp.ones(3)).origin.code == "    def step(x):"
