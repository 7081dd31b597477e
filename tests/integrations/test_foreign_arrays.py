"""Arrays of other libraries, which JAX does not hold, where the library is installed."""

import jax.numpy as jnp
import numpy as np
import pytest

from jax_array_info import sharding_info
from jax_array_info_core import array_report, check_report, tree_report
from jax_array_info_core.reports import ElsewhereBytes

SHAPE = (64, 8)
NBYTES = 64 * 8 * 4


def h5py_dataset(library, folder):
    return library.File(folder / "data.h5", "w").create_dataset("x", shape=SHAPE, dtype="f4")


def zarr_array(library, folder):
    return library.open(str(folder / "data.zarr"), mode="w", shape=SHAPE, dtype="f4")


def tensorstore_array(library, folder):
    store = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(folder / "store")}}
    return library.open(store, create=True, dtype=library.float32, shape=SHAPE).result()


MAKE = {
    "h5py": h5py_dataset,
    "zarr": zarr_array,
    "tensorstore": tensorstore_array,
    "dask.array": lambda library, _: library.zeros(SHAPE, dtype="f4"),
    "torch": lambda library, _: library.zeros(SHAPE, dtype=library.float32),
    "xarray": lambda library, _: library.DataArray(np.zeros(SHAPE, np.float32)),
}


@pytest.mark.parametrize("name", MAKE)
def test_an_array_of_another_library_is_one_leaf_outside_device_memory(name, tmp_path, capsys):
    value = MAKE[name](pytest.importorskip(name), tmp_path)
    report = array_report(value)
    assert (report.kind, report.shape, report.elsewhere) == ("array-like", SHAPE, "not in device memory")
    tree = {"w": jnp.ones(3), "data": value}
    assert [row.path for row in tree_report(tree).rows] == ["data", "w"]
    assert (tree_report(tree).nbytes, check_report(tree, hbm_nbytes=100).passed) == (12, True)
    assert tree_report(tree).elsewhere == (
        ElsewhereBytes(place="not in device memory", leaf_count=1, nbytes=NBYTES),
    )
    sharding_info(value, "density")
    out = capsys.readouterr().out
    assert "shape: (64, 8)" in out
    assert "not in device memory" in out
