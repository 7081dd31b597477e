"""Trees in archives of NumPy."""

import json
import re
import struct
import zipfile

import ml_dtypes
import numpy as np
import pytest

from jax_array_info_core import load_tree
from jax_array_info_core.trees.files import read_report
from jax_array_info_core.trees.stored.reading import LIMITS
from tests.core.trees.test_files import refusal, written

pytestmark = pytest.mark.newest


def test_npz_headers(tmp_path):
    """Names are divided at dots. Entries that are not numeric arrays count as others."""
    path = tmp_path / "a.npz"
    arrays = {
        "layers.0.w": np.zeros((3, 4), "float16"),
        "layers.0.b": np.zeros(3, ml_dtypes.bfloat16),
        "step": np.array(3, ">i8"),
        "names": np.array(["a"]),
        "when": np.array(["2024-01-01"], "M8[D]"),
    }
    np.savez_compressed(path, **arrays)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("config.json", "{}")
    report = load_tree(path)
    assert [(row.path, row.shape, row.dtype, row.nbytes) for row in report.rows] == [
        ("layers/0/w", (3, 4), "float16", 24),
        ("layers/0/b", (3,), "V2", 6),  # numpy loses the name of bfloat16
        ("step", (), "int64", 8),
    ]
    assert (report.others, report.type_name, report.name) == (3, "npz", str(path))


def test_npz_dtypes(tmp_path):
    """Codes of either byte order are read as NumPy reads them, without evaluating the header."""
    codes = ["|b1", "|i1", "|u1", "<i2", ">i8", "<u4", ">u8", "<f2", ">f4", "<f8", "<c8", ">c16", "|V3"]
    codes += ["<V2", "<U5", "|S3", "<M8[ns]", "<m8[25s]", ">M8", "<M8[us]"]
    arrays = {f"{number:02}": np.zeros((2, 3), code) for number, code in enumerate(codes)}
    np.savez(tmp_path / "a.npz", **arrays, scalar=np.zeros((), "f4"), fortran=np.zeros((3, 4, 5), "f4").T)
    report = load_tree(tmp_path / "a.npz")
    rows = {row.path: (row.shape, row.dtype, row.nbytes) for row in report.rows}
    read = np.load(tmp_path / "a.npz")
    assert rows == {
        name: (
            array.shape,
            array.dtype.str[1:] if array.dtype.kind == "V" else array.dtype.name,
            array.nbytes,
        )
        for name, array in read.items()
        if array.dtype.kind in "biufcV"
    }
    assert (len(rows), report.others) == (16, 6)


def test_npz_of_the_float_that_numpy_does_not_read_back(tmp_path):
    """NumPy writes ``<f1`` for float8_e5m2."""
    np.savez(tmp_path / "a.npz", w=np.zeros(3, "float8_e5m2"))
    assert [(row.dtype, row.nbytes) for row in load_tree(tmp_path / "a.npz").rows] == [("float8_e5m2", 3)]


def test_keys_of_names_are_part_of_the_budget(tmp_path):
    """A name of slashes only would become as many keys."""
    array = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({"/" * (LIMITS["values"] + 1): array}).encode()
    path = written(tmp_path, "a.safetensors", struct.pack("<Q", len(header)) + header)
    assert refusal(path) == "7,000,001 values exceed the limit of 7,000,000"


def test_names_with_slashes_are_divided_there(tmp_path):
    np.savez(tmp_path / "a.npz", **{"params/w.x": np.zeros(2), "params/y.z": np.zeros(2)})
    assert [row.path for row in load_tree(tmp_path / "a.npz").rows] == ["params/w.x", "params/y.z"]


def test_npz_reads_no_data(tmp_path):
    """An archive whose arrays are damaged after their headers is read."""
    path = tmp_path / "a.npz"
    np.savez(path, w=np.zeros(100_000, "int8"))
    data = bytearray(path.read_bytes())
    data[50_000:60_000] = b"x" * 10_000
    path.write_bytes(data)
    assert load_tree(path).nbytes == 100_000


def test_progress_of_an_archive(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.zeros(1), b=np.zeros(1))
    shown = []
    read_report(tmp_path / "a.npz", progress=lambda *parts: shown.append(parts))
    assert shown == [(0, 2), (1, 2)]


def npy(header, version=1):
    length = struct.pack("<H" if version == 1 else "<I", len(header))
    return b"\x93NUMPY" + bytes([version, 0]) + length + header


def described(code, shape=b"(1,)"):
    return b"{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n" % (code, shape)


NOT_NUMPY = "w: not an array of numpy"
LARGE = "w: its header claims 1,152,921,504,606,847,062 bytes, but it has 86"
REFUSED = {
    "zeros": (b"\0" * 10**7, f"{NOT_NUMPY}, or one of records"),
    "bomb": (b"\x93NUMPY\x02\0" + struct.pack("<I", 2**32 - 1) + b" " * 10**7, NOT_NUMPY),
    "negative": (npy(described(b"<f4", b"(-1,)")), NOT_NUMPY),
    "deep": (npy(described(b"<f4", b"(" * 5000)), NOT_NUMPY),
    "object": (npy(described(b"|O")), "w: an array of Python objects: save it"),
    "code": (npy(b"__import__('os').getcwd()\n"), NOT_NUMPY),
    "division by zero": (npy(described(b"M8[Y/0]")), "w: the dtype 'M8[Y/0]' is not known"),
    "empty": (npy(described(b"")), "w: the dtype '' is not known"),
    "tuple": (npy(b"{'descr': (), 'fortran_order': False, 'shape': (1,), }"), NOT_NUMPY),
    "record": (npy(b"{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,), }"), NOT_NUMPY),
    "bool": (npy(described(b"<f4", b"(True,)")), NOT_NUMPY),
    "digits": (npy(described(b"<f4", b"(%s,)" % (b"9" * 20))), NOT_NUMPY),
    "large": (npy(described(b"|i1", b"(%d,)" % 2**60)), LARGE),
}


@pytest.mark.parametrize(("content", "problem"), REFUSED.values(), ids=REFUSED)
def test_npz_arrays_that_are_refused(tmp_path, content, problem):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", content)
    assert refusal(tmp_path / "a.npz").startswith(problem)


def test_npz_directory_of_any_size(tmp_path):
    """The directory of an archive is not read if it claims too many bytes."""
    length = LIMITS["bytes"] + 1
    end = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, length, 0, 0)
    with open(tmp_path / "a.npz", "wb") as file:
        file.seek(length)
        file.write(end)
    assert re.fullmatch(r"[\d,]+ bytes exceed the limit of 100,000,000", refusal(tmp_path / "a.npz"))
