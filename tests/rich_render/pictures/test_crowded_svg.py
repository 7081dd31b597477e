"""Drawings with too many cells for their area or their file size."""

import re
from dataclasses import replace

import numpy as np
import pytest

from jax_array_info import ShardingLayout, planned_mesh_report, planned_report, spec_layout, to_html, to_svg
from jax_array_info.export.document import columns_of, columns_svg, html_document, parts_html
from jax_array_info.pictures import svg
from tests.rich_render.svg.reading import cells, listed, words

pytestmark = pytest.mark.oldest_and_newest

TWO_AXES = planned_report((1024, 2048), {"data": 4, "model": 2}, ("data", "model"))


def test_omitted_rows_columns_and_slices_are_marked():
    shown = words(to_svg(spec_layout((2**14, 2**14), {"a": 64, "b": 32}, ("a", "b"))))
    assert {"showing 24 of 64 rows, 24 of 32 columns"} <= set(shown)
    assert (shown.count("⋯"), shown.count("⋮")) == (24, 24), "for each row, for each column"
    slices = words(to_svg(spec_layout((64, 4, 4), {"a": 64, "b": 2, "c": 2}, ("a", "b", "c"))))
    assert (slices.count("⋯"), slices.count("⋮")) == (0, 1)
    three = words(to_svg(spec_layout((64, 4, 36), {"a": 64, "b": 2, "c": 2}, ("a", "b", "c"))))
    assert three.count("⋯") + three.count("⋮") == 1
    assert not {"⋯", "⋮"} & set(words(to_svg(TWO_AXES)))


def test_labels_become_bare_ids_before_they_wrap():
    shown = words(to_svg(spec_layout((64, 64), {"a": 16, "b": 8}, ("b", "a"))))
    assert {"0", "127", "cells show device ids"} <= set(shown)
    assert "device" not in shown


def test_labels_wrap_or_shorten_or_become_tooltips_only():
    ids = np.random.default_rng(0).permutation(256).reshape(4, 4, 16)
    shown = words(to_svg(ShardingLayout(shape=(64, 64), device_ids=ids, platform="gpu")))
    assert "GPU 0,36,54,68," in shown
    narrow = to_svg(spec_layout((64, 64), {"a": 32, "b": 4}, ("b", "a")))
    assert {"0", "127"} <= set(words(narrow))
    assert [line for line in words(narrow) if "device" in line] == ["cells show device ids"]
    dense = to_svg(spec_layout((2**18,), {"a": 120}, ("a",), uneven=True))
    assert "hover over a cell for its devices" in words(dense)
    assert cells(dense)[7].title.startswith("device 7\n")


@pytest.mark.parametrize(
    ("shape", "mesh", "spec", "note"),
    [
        ((2**14, 2**14), {"a": 64, "b": 64}, ("a", "b"), "showing 24 of 64 rows, 24 of 64 columns"),
        ((2**16, 2**16), {"a": 256, "b": 256}, ("a", "b"), "showing 24 of 256 rows, 24 of 256 columns"),
        ((2**18,), {"a": 256, "b": 256}, (("a", "b"),), "showing 141 of 65536 columns"),
        ((64,) * 4, dict.fromkeys("abcd", 16), tuple("abcd"), "showing 16 of 256 slices of axis 0, axis 1"),
        ((2**12, 2**12), {"a": 4096, "b": 16}, ("a",), "showing 141 of 4096 rows"),
    ],
)
def test_thinned_drawings_have_a_note_and_a_small_file(shape, mesh, spec, note):
    report = planned_report(shape, mesh, spec, name="x" * 40)
    each = report.layout.device_ids.size // 64
    processes = tuple((process, tuple(range(each * process, each * (process + 1)))) for process in range(64))
    for drawn in (
        report,
        replace(report, layout=replace(report.layout, platform="tpu", processes=processes)),
    ):
        drawing = to_svg(drawn)
        assert len(drawing.encode()) < 200_000
        assert any(note in line for line in words(drawing))
        titles = [cell.title for cell in cells(drawing)]
        assert len(titles) <= svg.MAX_CELLS
        ids = report.layout.device_ids.reshape(-1, report.layout.replicas)
        first, last = (listed(titles[end].split("\n")[0].split(", p")[0]) for end in (0, -1))
        assert (first, last) == (sorted(ids[0].tolist()), sorted(ids[-1].tolist())), "the corners are drawn"


def test_long_slices_and_names_do_not_exceed_the_file_size():
    count = 24 * 24 * 100
    ids = np.random.default_rng(0).permutation(count).reshape(1, 1, 1, 1, 24, 24, 100)
    processes = tuple((process, tuple(range(process, count, 256))) for process in range(256))
    layout = ShardingLayout(shape=(24 * 10**9,) * 6, device_ids=ids, platform="tpu" * 20, processes=processes)
    drawing = to_svg(layout, scale=10)
    assert 100_000 < len(drawing.encode()) < 200_000
    assert any(line.startswith("showing ") for line in words(drawing))


def test_text_from_json_does_not_make_a_drawing_large():
    long = "n" * 10**6
    plan = planned_report((8, 8), {"a": 8}, ("a",), name=long)
    sharding = replace(plan.sharding, spec=None, mesh=None, text=long)
    mesh = planned_mesh_report({"a": 4, "b": 2})
    for report in (
        replace(plan, dtype=long),
        replace(plan, sharding=sharding),
        replace(mesh, axes=replace(mesh.axes, names=(long, "b"))),
    ):
        assert len(to_svg(report)) < 200_000
        assert len(to_html(report)) < 200_000


@pytest.mark.parametrize("count", [3, 8])
def test_the_drawings_of_a_document_share_the_size_limit(count):
    specs = [("a", "b"), ("b", "a"), (("a", "b"), None), (None, ("a", "b"))] * 2
    plans = [planned_report((2**14, 2**14), {"a": 64, "b": 64}, spec) for spec in specs[:count]]
    columns = columns_of([[plan] for plan in plans])
    document = columns_svg(columns, "plans")
    assert 100_000 < len(document.encode()) < 200_000
    assert len(html_document(map(parts_html, columns), "plans").encode()) < 200_000
    thinned = [line for line in words(document) if line.startswith("showing ")]
    assert len(thinned) == count
    rows, columns = re.fullmatch(r"showing (\d+) of 64 rows, (\d+) of 64 columns", thinned[0]).groups()
    assert rows == columns, "rows are thinned as columns are"
