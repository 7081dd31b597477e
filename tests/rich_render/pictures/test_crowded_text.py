"""Text pictures with too many cells: shorter labels, then no rules, then fewer cells."""

import re

import numpy as np
import pytest

from jax_array_info import ShardingLayout, planned_mesh_report, print_mesh
from jax_array_info.pictures.text import array_picture, mesh_picture
from jax_array_info_core.layouts.layout import mesh_layout
from tests.arrays import FakeDevice, mesh_of

pytestmark = pytest.mark.oldest_and_newest


def picture(layout, **options):
    return array_picture(layout, **options).plain


def test_a_crowded_picture_names_the_platform_once():
    assert picture(mesh_layout((40,), {"a": 20}, [["a"]], platform="gpu")) == (
        f"┌{'┬'.join(['──'] * 20)}┐\n"
        f"│{'│'.join(f'{number:<2}' for number in range(20))}│\n"
        f"└{'┴'.join(['──'] * 20)}┘\n"
        "cells show GPU ids"
    )


def test_rules_between_rows_are_dropped_before_rows():
    text = picture(mesh_layout((64, 8), {"a": 32, "b": 2}, [["a"], ["b"]], platform="cpu"))
    assert text.splitlines()[:3] == ["┌───────┬───────┐", "│   0   │   1   │", "│   2   │   3   │"]
    assert text.splitlines()[32:] == ["│  62   │  63   │", "└───────┴───────┘", "cells show CPU ids"]


@pytest.mark.parametrize("is_mesh", [False, True])
@pytest.mark.parametrize("use_color", [False, True])
def test_512_devices_are_all_shown_in_80_columns_and_40_lines(is_mesh, use_color):
    if is_mesh:
        text = mesh_picture(planned_mesh_report({"data": 32, "model": 16}), use_color=use_color).plain
    else:
        layout = mesh_layout((512, 512), {"a": 32, "b": 16}, [["a"], ["b"]], platform="cpu")
        text = picture(layout, use_color=use_color)
    lines = text.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    shown = [list(map(int, line.strip("│").split("│"))) for line in lines if line.startswith("│")]
    assert shown == np.arange(512).reshape(32, 16).tolist()
    assert "showing" not in text
    assert f"cells show {'device' if is_mesh else 'CPU'} ids" in lines


def test_thinning_keeps_the_first_and_last_cells_with_one_marked_gap():
    layout = mesh_layout((64 * 64, 64 * 64), {"a": 64, "b": 64}, [["a"], ["b"]], platform="cpu")
    lines = picture(layout).splitlines()
    assert lines[-4:] == [
        "cells show CPU ids",
        "showing 33 of 64 rows, 15 of 64 columns",
        "axis 0: 64 shards, shard k on devices 0-63 + 64k",
        "axis 1: 64 shards, shard k on devices 0-4032:64 + k",
    ]
    assert len(lines) == 40
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    columns = [*range(8), "⋯", *range(57, 64)]
    assert rows[0] == list(map(str, columns))
    assert rows[-1] == [column if column == "⋯" else str(63 * 64 + column) for column in columns]
    assert rows[17] == ["" if column == "⋯" else "⋮" for column in columns]
    assert [row[0] for row in rows] == [*(str(64 * row) for row in range(17)), "⋮"] + [
        str(64 * row) for row in range(48, 64)
    ]
    ascii_lines = picture(layout, encoding="ascii").splitlines()
    assert "".join(ascii_lines).isascii()
    assert ascii_lines[1].split("|")[9:11] == ["...", " 57 "]
    assert ascii_lines[18].split("|")[1:3] == [" :  ", " :  "]


def test_the_first_and_last_of_any_number_of_columns_are_shown():
    count = 2**18
    text = picture(mesh_layout((count,), {"a": count}, [["a"]], platform="tpu"), use_color=True)
    assert text.splitlines()[1] == (
        "│0│1│2│3│4│5│6│7│8│⋯│262136│262137│262138│262139│262140│262141│262142│262143│"
    )


def test_omitted_slices_are_marked():
    layout = mesh_layout((64, 8, 8), {"a": 64, "b": 2, "c": 2}, [["a"], ["b"], ["c"]], platform="cpu")
    lines = [line.strip("─ ") for line in picture(layout).splitlines()]
    titles = [line for line in lines if line == "⋮" or line.startswith("axis 0 =")]
    assert titles == [
        *(f"axis 0 = {first}:{first + 1} ({first + 1}/64)" for first in range(4)),
        "⋮",
        *(f"axis 0 = {first}:{first + 1} ({first + 1}/64)" for first in range(61, 64)),
    ]


def test_thinning_keeps_the_first_and_last_slices():
    text = picture(mesh_layout((64, 8, 8), {"a": 64, "b": 2, "c": 2}, [["a"], ["b"], ["c"]], platform="cpu"))
    assert "axis 0 = 0:1 (1/64)" in text
    assert "axis 0 = 63:64 (64/64)" in text
    assert text.splitlines()[-1] == "showing 7 of 64 slices of axis 0"
    assert len(text.splitlines()) <= 40


def test_letters_replace_device_lists_that_do_not_fit():
    text = picture(mesh_layout((64,), {"d": 3, "m": 8, "r": 4}, [["m"]], platform="cpu"))
    assert text.splitlines()[1].replace(" ", "") == "│A│B│C│D│E│F│G│H│"
    assert text.splitlines()[3:5] == ["A: CPU 0-3,32-35,64-67", "B: CPU 4-7,36-39,68-71"]


def test_scattered_devices_stay_within_forty_lines_with_unbroken_ids():
    ids = np.random.default_rng(1).permutation(4096).reshape(2, 2, -1)
    text = picture(ShardingLayout(shape=(16, 4), device_ids=ids, platform="cpu"))
    assert len(text.splitlines()) <= 40
    assert "1024 of CPU" in text
    sparse = np.array([100003 + 7919 * number * number % 899981 for number in range(24)])
    text = picture(
        ShardingLayout(shape=(16,), device_ids=sparse.reshape(1, 24), platform="cpu"), max_width=40
    )
    assert len(text.splitlines()) <= 40
    assert set(map(int, re.findall(r"\d{6,}", text))) <= set(sparse.tolist())


@pytest.mark.parametrize(("axes", "note"), [(8, "and 2 more axes"), (7, "and 1 more axis")])
def test_patterns_of_more_than_six_axes_are_counted(axes, note):
    layout = mesh_layout((4,) * axes, dict.fromkeys("abcdefgh"[:axes], 4), [[n] for n in "abcdefgh"[:axes]])
    assert picture(layout).splitlines()[-1] == note


def test_long_labels_break_between_devices():
    ids = np.array([0, 1, 2, 3, 10, 11, 12, 13, 21, 23, 28, 35, 40, 41, 42])
    text = picture(ShardingLayout(shape=(), device_ids=ids, platform="cpu"), max_width=20)
    assert [line.strip("│ ") for line in text.splitlines()[1:-1]] == ["CPU 0-3,10-13,21,", "23,28,35,40-42"]


def test_a_mesh_drops_process_labels_before_devices(capsys):
    devices = [FakeDevice(2048 * (number % 2) + number // 2, number % 2) for number in range(8)]
    print_mesh(mesh_of((8,), ("a",), devices))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == [
        "─────────────────────────────────── a across ───────────────────────────────────",
        "┏━━━━━━━┳━━━━━━━━┳━━━━━━━┳━━━━━━━━┳━━━━━━━┳━━━━━━━━┳━━━━━━━┳━━━━━━━━┓",
        "┃ CPU 0 ┃CPU 2048┃ CPU 1 ┃CPU 2049┃ CPU 2 ┃CPU 2050┃ CPU 3 ┃CPU 2051┃",
        "┗━━━━━━━┻━━━━━━━━┻━━━━━━━┻━━━━━━━━┻━━━━━━━┻━━━━━━━━┻━━━━━━━┻━━━━━━━━┛",
        "━ 2 processes",
        "a: other process, 2 processes",
        "process 0: CPU 0-3        process 1: CPU 2048-2051",
    ]
