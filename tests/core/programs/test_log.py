"""Reports on logs of finished runs."""

import io

import jax
import numpy as np
import pytest

from jax_array_info_core import log_report
from jax_array_info_core.errors import FileFormatError, SpecError, UnsupportedValueError
from jax_array_info_core.programs import compiler_log as log_module
from jax_array_info_core.reports import LargeBuffer, LogReport, Origin, OutOfMemory
from tests.arrays import mesh_of
from tests.logs import (
    ALLOCATOR,
    DONATIONS,
    FAILED_ON_GPU,
    FAILED_ON_TPU,
    REFUSED,
    REFUSED_AFTER_USAGE,
    REMATERIALIZATION,
    USAGE,
    WORDINGS,
)

pytestmark = pytest.mark.newest

MESH = {"x": 4, "y": 2}
LOG = "\n".join(["step 1", *WORDINGS.values(), *DONATIONS.values(), REMATERIALIZATION, "step 2"])


def test_equal_warnings_are_one_row_in_specs(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(LOG, encoding="utf-8")
    report = log_report(path, mesh=MESH)
    assert (report.name, report.mesh.shape) == (str(path), MESH)
    assert report.line_count == len(LOG.splitlines())
    assert (report.unread, report.unlisted_count) == ((), 0)
    value, line = ((8, 16, 4), "float32", 16384), Origin(file="/home/me/train.py", line=13, function="")
    assert [
        (row.op, row.shape, row.dtype, row.nbytes, row.origin, row.count) for row in report.rematerializations
    ] == [
        ("jit(two)/add", *value, None, 3),
        ("jit(two)/jit(main)/add", *value, line, 1),
        ("jit(two)/add", *value, line, 1),
        ("", (), "", None, None, 2),
    ]
    specs = {(str(row.before), str(row.after)) for row in report.rematerializations}
    assert specs == {("P('y', None, 'x')", "P(None, ('x', 'y'))")}
    assert [(one.dtype, one.shape, one.nbytes, one.count) for one in report.donations] == [
        ("float32", (8, 64), 2048, 2),
        ("int32", (), 4, 2),
    ]


def test_a_value_on_which_xla_tries_a_partitioning_is_not_one():
    tried = REMATERIALIZATION.replace("%add.3", "%fake_parameter.2")
    report = log_report([tried, REMATERIALIZATION], mesh=MESH)
    assert [(row.op, row.count) for row in report.rematerializations] == [("jit(two)/add", 1)]


def test_the_wordings_of_two_versions_are_one_row_where_the_specs_are_known():
    lines = [WORDINGS["0.10.2"], WORDINGS["0.12.0.1"], WORDINGS["0.10.2"]]
    [row] = log_report(lines, mesh=MESH).rematerializations
    assert (row.count, row.before_text) == (3, "{devices=[2,1,4]<=[4,2]T(1,0)}")
    assert [row.count for row in log_report(lines).rematerializations] == [2, 1]


def test_without_a_mesh_the_shardings_are_xlas():
    [row] = log_report([REMATERIALIZATION]).rematerializations
    assert (row.before, row.after) == (None, None)
    assert row.after_text == "{mesh['x'=4,'y'=2], [{}, {'x', 'y'}, {}]}"


def test_a_sharding_with_replicas_of_256_devices_is_told_in_specs():
    line = WORDINGS["0.4.28"].replace("{devices=[2,1,4]<=[4,2]T(1,0)}", "{devices=[256,1]<=[256]}")
    line = line.replace("{devices=[1,8,1]<=[8]}", "{devices=[1,64,4]<=[256] last_tile_dim_replicate}")
    [row] = log_report([line], mesh={"data": 64, "model": 4}).rematerializations
    assert (str(row.before), str(row.after)) == ("P(('data', 'model'),)", "P(None, 'data')")


def test_a_mesh_of_another_size_has_no_specs():
    [row] = log_report([REMATERIALIZATION], mesh={"x": 3}).rematerializations
    assert row.before is None


def test_any_kind_of_mesh_is_accepted():
    mesh = mesh_of((len(jax.devices()), 1), ("x", "y"))
    assert log_report([], mesh=mesh).mesh.shape == dict(mesh.shape)
    assert log_report([], mesh=mesh.abstract_mesh).mesh.shape == dict(mesh.shape)
    assert log_report([], mesh={"x": np.int64(4)}).mesh.shape == {"x": 4}
    with pytest.raises(UnsupportedValueError, match="mesh must be a Mesh, an AbstractMesh or a mapping"):
        log_report([], mesh="x=4")
    with pytest.raises(SpecError, match="x"):
        log_report([], mesh={"x": 0})


@pytest.mark.parametrize(
    "source",
    [
        LOG.split("\n"),
        LOG.encode().splitlines(keepends=True),
        (line for line in LOG.splitlines(keepends=True)),
        io.StringIO(LOG),
        io.BytesIO(LOG.encode()),
    ],
    ids=["lines", "bytes", "generator", "text file", "binary file"],
)
def test_lines_and_open_files_are_read(source):
    report = log_report(source)
    assert (report.name, report.line_count) == (None, len(LOG.splitlines()))
    assert sum(row.count for row in report.rematerializations) == 7


def test_a_log_without_warnings_is_empty():
    assert log_report(["step 1", "step 2"]) == LogReport(name=None, line_count=2)
    assert log_report([]) == LogReport(name=None)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (
            b"te\0\1\2xt",
            "no text in UTF-8: 43% of its first 7.0 B are other bytes. Decompress or convert it first",
        ),
        (b"\x1f\x8b\x08rest", "compressed with gzip, not text: decompress it first"),
        ("text".encode("utf-16"), "text in UTF-16: convert it to UTF-8 first"),
    ],
)
def test_a_file_that_is_not_text_is_refused(tmp_path, data, problem):
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match=problem):
        log_report(path)


def test_a_file_that_cannot_be_read_is_an_oserror(tmp_path):
    with pytest.raises(FileNotFoundError):
        log_report(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("most", "line", "rows"),
    [
        ("_MOST", REMATERIALIZATION.replace("jit(two)", "jit(f@)"), "rematerializations"),
        ("_MOST_ERRORS", "RESOURCE_EXHAUSTED: Out of memory allocating @ bytes.", "out_of_memory"),
    ],
)
def test_the_number_of_rows_is_bounded(monkeypatch, most, line, rows):
    monkeypatch.setattr(log_module, most, 10)
    report = log_report([line.replace("@", str(number % 20)) for number in range(60)])
    found = getattr(report, rows)
    assert (len(found), sum(row.count for row in found), report.unlisted_count) == (10, 30, 30)


def test_a_warning_in_another_wording_is_unread_once():
    line = "Involuntary full rematerialization is new here"
    assert log_report([line, line]).unread == (line,)


def test_equal_out_of_memory_errors_are_one_row_in_the_order_of_the_log():
    lines = [FAILED_ON_TPU, REMATERIALIZATION, *REFUSED.splitlines(), "step 2", *REFUSED.splitlines()]
    report = log_report([*lines, FAILED_ON_TPU.replace("0x0x0", "0x0x1")])

    def buffer(gib, dtype, layers, op, line):
        origin = Origin(file="/home/me/model.py", line=line, function="")
        op, shape = f"jit(step)/jit(main)/{op}", (layers, 8192, 8192)
        return LargeBuffer(nbytes=gib * 2**30, shape=shape, dtype=dtype, op=op, origin=origin)

    attention, added = (
        buffer(12, "float32", 48, "attn/dot_general", 41),
        buffer(3, "bfloat16", 24, "mlp/add", 58),
    )
    assert report.out_of_memory == (
        OutOfMemory(
            message="Error allocating device buffer: Attempting to allocate 2.00G. That was not possible."
            " There are 1.10G free.",
            requested_nbytes=2 * 2**30,
            free_nbytes=round(1.1 * 2**30),
            count=2,
        ),
        OutOfMemory(
            message="Ran out of memory in memory space hbm. Used 19.32G of 15.75G hbm. Exceeded hbm capacity by"
            " 3.57G.",
            required_nbytes=round(19.32 * 2**30),
            available_nbytes=round(15.75 * 2**30),
            buffers=(attention, added, added),
            count=2,
        ),
    )
    assert len(report.rematerializations) == 1


def test_the_free_bytes_of_the_allocators_warning_are_those_of_the_error():
    [error] = log_report([*ALLOCATOR.splitlines(), *FAILED_ON_GPU.splitlines()]).out_of_memory
    assert (error.requested_nbytes, error.free_nbytes) == (17179869100, 10 * 2**30)
    # The rest of the log may be lost.
    [error] = log_report(ALLOCATOR.splitlines()).out_of_memory
    assert (error.requested_nbytes, error.free_nbytes) == (17179869184, 10 * 2**30)


def test_an_error_about_other_memory_is_not_one_about_the_device():
    line = "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem. Used 20.00M of 16.00M vmem."
    report = log_report([f"E1122 17:39:44 {line}", line])
    assert (report.out_of_memory, report.unread) == ((), ())
    assert [(one.kind, one.code) for one in report.findings] == [("kernel memory", "JAI506")]


def test_a_large_log_is_read_piece_by_piece():
    """Of 20 MB, with one warning in each piece."""

    class Pieces:
        left = 20

        def read(self, size):
            self.left -= 1
            return f"{REMATERIALIZATION}\n".encode().rjust(size) if self.left >= 0 else b""

    [row] = log_report(Pieces()).rematerializations
    assert row.count == 20


ROWS = [
    (12 * 2**30, "float32", (48, 8192, 8192)),
    (3 * 2**30, "bfloat16", (24, 8192, 8192)),
    (4 * 2**30, "float32", (16, 8192, 8192)),
]


def rows_of(error):
    return [(one.nbytes, one.dtype, one.shape) for one in error.buffers]


@pytest.mark.parametrize("prefix", ["", "[3]: ", "(worker pid=77) "])
@pytest.mark.parametrize("between", ["", "step 1\n" * 300])
def test_libtpu_reports_the_buffers_before_the_error(prefix, between):
    """All rows of its main memory, in its order; the tables of addresses and the VMEM are not among them."""
    lines = f"{USAGE}{between}{REFUSED_AFTER_USAGE}".splitlines()
    [error] = log_report([prefix + line for line in lines]).out_of_memory
    assert rows_of(error) == ROWS
    assert error.message.startswith("Ran out of memory on HBM")
    assert (error.required_nbytes, error.count) == (round(19.32 * 2**30), 1)


def test_a_report_of_libtpu_without_the_error_is_one():
    [error] = log_report(USAGE.splitlines()).out_of_memory
    assert rows_of(error) == ROWS
    assert error.message.endswith("HLO module: jit_step.")


def test_the_report_of_another_program_is_not_that_of_an_error():
    other = REFUSED_AFTER_USAGE.replace("jit_step", "jit_eval")
    report = log_report(f"{USAGE}{other}".splitlines())
    assert [rows_of(error) for error in report.out_of_memory] == [ROWS, []]
    without = REFUSED_AFTER_USAGE.replace(" HLO module: jit_step.", "")
    [error] = log_report(f"{USAGE}{without}".splitlines()).out_of_memory
    assert rows_of(error) == ROWS


def test_a_long_report_of_libtpu_has_all_of_its_rows():
    row = "    1.00GiB(100%);    1.00GiB;            0;                1; f32[16384,16384]\n"
    head, rest = USAGE.split("   12.00GiB( 80%)")
    text = head + row * 400 + "   12.00GiB( 80%)" + rest
    [error] = log_report(text.splitlines()).out_of_memory
    assert [one.nbytes for one in error.buffers] == [2**30] * 400 + [nbytes for nbytes, *_ in ROWS]
