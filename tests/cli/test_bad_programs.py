"""``jai-cli program``: bad input, programs that do not compile, and their exit codes."""

import pytest

import jax_array_info_core
from jax_array_info.errors import TopologyError
from tests.cli.launching import write_program
from tests.cli.step_file import MESH, STEP  # noqa: F401

pytestmark = [
    pytest.mark.newest,
    pytest.mark.needs_devices(8),
    pytest.mark.usefixtures("folder"),
]


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("step.py:stpe",), "step.py has no function 'stpe': did you mean 'step'?"),
        (
            ("step.py:zzz",),
            "step.py has no function 'zzz': it has 'abstract', 'array', 'as_array', 'as_dict', 'as_list', …",
        ),
        (("step.py:Model.forwrd",), "step.py has no function 'Model.forwrd': did you mean 'Model.forward'?"),
        (("step.py:Saved.x",), "step.py has no function 'Saved.x': it has none"),
        (("step.py:number",), "step.py:number is of type int, not a function"),
        (("missing.py:f",), "missing.py: No such file or directory"),
        (("missing:f",), "missing: there is no file and no module of this name"),
        (("folder:f",), "folder: Is a directory"),
        (("/dev/zero:f",), "/dev/zero: a device or a pipe, not a regular file"),
        (("syntax.py:f",), "syntax.py cannot be loaded: SyntaxError: invalid syntax (syntax.py, line 2)"),
        (("raises.py:f",), "raises.py cannot be loaded: ValueError: two (raises.py:2 inner)"),
        (
            ("exits.py:f",),
            "exits.py cannot be loaded: SystemExit: 3 (exits.py:1 <module>). "
            "Exit only under if __name__ == '__main__'",
        ),
        (
            ("step.py:step", "--arg", "f32[8]"),
            "step.py:step(params, x) was given 1 argument: missing a required argument: 'x'",
        ),
        (
            ("step.py:twice", "--arg", "f32[8]", "--arg", "f32[8]"),
            "step.py:twice(x) was given 2 arguments: too many positional arguments",
        ),
        (
            ("step.py:twice", "--args-from", "step.py:none"),
            "step.py:none returned None instead of the arguments: return them as a tuple",
        ),
        (
            ("step.py:twice", "--args-from", "step.py:of_two"),
            "step.py:of_two failed: TypeError: of_two() missing 2 required positional arguments: 'size' and 'depth'",
        ),
        (
            ("step.py:twice", "--args-from", "step.py:raises"),
            "step.py:raises failed: ValueError: no arguments (step.py:57 raises)",
        ),
        (
            ("step.py:twice", "--args-from", "step.py:of_keys"),
            "step.py:of_keys failed: ValueError: Comparator",
        ),
        (
            ("step.py:twice", "--args-from", "step.py:text"),
            "step.py:text returned a value of type str at [0] of",
        ),
        (
            ("step.py:twice", "--args-from", "step.py:in_dict"),
            "step.py:in_dict returned a value of type object at [0]['b'] of the arguments",
        ),
        (
            ("step.py:twice", "--args-from", "step.py:on_two"),
            "step.py:on_two returned arguments on a mesh of 2 devices (own=2), but --mesh data=2,fsdp=2,tensor=2"
            " has 8: use the mesh that it is called with, or change --mesh",
        ),
        (("outcome.py:f",), "outcome.py cannot be loaded: Skipped: no devices (outcome.py:2 <module>)"),
        (("devices.py:f",), "The command sets the devices: do this only under if __name__ == '__main__'"),
        (
            ("missing.py:f", "--arg", "f32[8]", "--topology", "v9:2"),
            "Error: topology v9:2 does not exist: write a TPU slice by the chips along each side, ",
        ),
        (("step.py:twice", "--args-from", "step.py:as_lst"), "did you mean 'as_list'"),
        (("step.py:twice", "--arg", "f64[8]"), "--arg: JAX truncates float64 to float32. Write float32,"),
        (
            ("step.py:twice", "--arg", "f32[8]", "--output", "no/x.json"),
            "no/x.json: No such file or directory",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(call, folder, args, problem):
    (folder / "folder").mkdir()
    write_program(folder, "\ndef f(:\n", "syntax.py")
    write_program(folder, "def inner():\n    raise ValueError('''\n  two\nlines''')\ninner()", "raises.py")
    write_program(folder, "raise SystemExit(3)", "exits.py")
    write_program(folder, "class Skipped(BaseException): pass\nraise Skipped('no devices')", "outcome.py")
    write_program(folder, "import jax\njax.distributed.initialize()", "devices.py")
    done = call("program", *args, *MESH)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr
    assert done.stderr.removeprefix("printed by the file\n").count("\n") == 1


def test_a_file_without_code_is_refused(call, folder):
    (folder / "binary.py").write_bytes(bytes(range(256)))
    (folder / "\x1b[31m.py").write_text("1 +")
    for name in ("binary.py", "\x1b[31m.py"):
        done = call("program", f"{name}:f", *MESH)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "cannot be loaded: SyntaxError" in done.stderr
        assert "\x1b" not in done.stderr


def test_all_invalid_options_are_reported_together(call):
    arrays = ("f32[9]@data", "f32[8]@dat", "f32[8", "f32[8]@-,-", "f32[4]@?")
    options = [word for text in arrays for word in ("--arg", text)]
    done = call("program", "step.py", *MESH, "--args-from", ":f", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.partition("Error: ")[2] == (
        "FILE:FUNCTION must be the name of a file and a function in it, such as step.py:step, got 'step.py'\n"
        "--args-from must be the name of a file and a function in it, such as step.py:step, got ':f'\n"
        "--arg cannot be read: expected ',' or ']'\n  f32[8\n       ^\n"
        "--args-from and --arg both give the arguments: omit one of them\n"
        "--arg f32[9]@data: axis 0 of shape (9,) is not divisible by mesh axis 'data' of size 2: 9 % 2 = 1."
        " Pad it to 10, or leave it unsharded.\n"
        "--arg f32[8]@dat: 'dat' is not a mesh axis: the mesh has 'data', 'fsdp', 'tensor'\n"
        "--arg f32[8]@-,-: the spec has 2 entries, but the array has 1 axis: shape (8,)\n"
        "--arg f32[4]@?: an argument cannot be UNCONSTRAINED or unreduced: name mesh axes, or - for none\n"
    )
    done = call("program", "step.py:step", "--mesh", "data=64,fsdp=64")
    assert done.returncode == 2
    assert "--mesh data=64,fsdp=64 has 4096 devices; the limit is 2048 simulated devices." in done.stderr


@pytest.mark.parametrize(
    ("function", "shape", "problem"),
    [
        ("loss", "f32[8,4]", "TypeError: JAX does not support string indexing; got idx="),
        ("branches", "f32[8]", "TracerBoolConversionError: Attempted boolean conversion of traced array"),
        ("constrained", "f32[]", "ValueError: "),
        ("ends", "f32[8]", "BaseException: no answer"),
    ],
)
def test_a_function_that_does_not_compile_is_jax_s_line_and_exit_code_1(call, function, shape, problem):
    args = ("--arg", shape) * (2 if function == "loss" else 1)
    done = call("program", f"step.py:{function}", *MESH, *args)
    assert (done.returncode, done.stdout) == (1, "")
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"Error: step.py:{function} does not compile: {problem}")
    assert f" {function})" in line, "the line of the user"


def test_a_topology_that_does_not_exist_is_exit_code_2(call, monkeypatch):
    def refused(topology, axes, dcn):
        raise TopologyError(f"no topology {topology}\x1b")

    monkeypatch.setattr(jax_array_info_core, "topology_mesh", refused)
    done = call("program", "step.py:twice", *MESH, "--arg", "f32[8]", "--topology", "v5e:2x4")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("Error: no topology v5e:2x4\\x1b\n")


def test_ctrl_c_is_no_answer(call, monkeypatch, folder):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(jax_array_info_core, "program_report", interrupted)
    done = call("program", "step.py:twice", *MESH, "--arg", "f32[8]")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("Error: interrupted\n")
    write_program(folder, "raise KeyboardInterrupt", "interrupted.py")
    done = call("program", "interrupted.py:f", *MESH)
    assert (done.returncode, done.stderr) == (2, "Error: interrupted\n")


@pytest.mark.newest
def test_a_function_whose_report_fails_is_not_one_that_does_not_compile(call, monkeypatch):
    def failing(*args, **options):
        raise NotImplementedError("of the report")

    monkeypatch.setattr("jax_array_info_core.programs.propagation.propagation_report.propagated", failing)
    with pytest.raises(NotImplementedError, match="of the report"):
        call("why", "step.py:twice", *MESH, "--arg", "f32[8]@data")


@pytest.mark.newest
def test_a_function_with_a_constraint_on_manual_axes_compiles(call, folder):
    write_program(
        folder,
        """
        import jax
        from jax.sharding import NamedSharding, PartitionSpec as P
        def f(x, mesh):
            inner = lambda a: jax.lax.with_sharding_constraint(a, P(None, "tensor")) * 2
            return jax.shard_map(
                inner, mesh=mesh, in_specs=P("data"), out_specs=P("data"), axis_names={"data"}
            )(x)
        """,
        "manual.py",
    )
    done = call("program", "manual.py:f", *MESH, "--arg", "f32[64,16]@data")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 constraint" in done.stdout
