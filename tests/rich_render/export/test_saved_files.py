"""Saved pictures: formats by suffix, atomic writes."""

import errno
import functools
import os
import re
import stat
import subprocess
import sys
import types
from pathlib import Path

import pytest

from jax_array_info import planned_report, save_picture, spec_layout, to_html, to_svg, to_text
from jax_array_info_core.base import files as descriptors
from tests.rich_render.svg.reading import parsed, words

pytestmark = pytest.mark.newest

REPORT = planned_report((16, 8), {"data": 4, "model": 2}, ("data", "model"), name="<wé>")


def test_the_suffix_selects_the_format(tmp_path):
    options = {"width": 40, "scale": 2, "color_map": lambda position: (position, 0, 0)}
    for name in ("x.svg", "x.SVG", "x.html", "x.txt"):
        save_picture(REPORT, tmp_path / name, **(options if name == "x.SVG" else {}))
    assert (tmp_path / "x.svg").read_text("utf-8") == to_svg(REPORT) != to_svg(REPORT, **options)
    assert (tmp_path / "x.SVG").read_text("utf-8") == to_svg(REPORT, **options)
    assert (tmp_path / "x.txt").read_text("utf-8") == to_text(REPORT) + "\n"
    page = (tmp_path / "x.html").read_text("utf-8")
    assert to_html(REPORT) in page
    assert page.startswith('<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8" />')
    assert "<title>&lt;wé&gt;</title>" in page
    parsed(page.partition("\n")[2])
    assert sorted(os.listdir(tmp_path)) == ["x.SVG", "x.html", "x.svg", "x.txt"], "nothing else is left"


@pytest.mark.parametrize("name", ["x", "x.gif", "x.svg.gz", ".svg"])
def test_an_unknown_suffix_is_an_error(name, tmp_path):
    with pytest.raises(
        ValueError,
        match=r"unknown file suffix in '.*': use one of \.svg, \.html, \.png, \.txt$",
    ):
        save_picture(REPORT, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_png_without_resvg_is_an_error_with_the_install_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(ValueError, match=r"pip install 'jax-array-info\[png\]', or save a \.svg"):
        save_picture(REPORT, tmp_path / "x.png")
    assert not list(tmp_path.iterdir())


def test_a_png_without_a_font_is_an_error_with_a_fix(tmp_path, monkeypatch):
    resvg = types.ModuleType("resvg_py")
    resvg.svg_to_bytes = lambda svg_string, **options: re.sub("<text.*?</text>", "", svg_string).encode()
    monkeypatch.setitem(sys.modules, "resvg_py", resvg)
    with pytest.raises(ValueError, match=r"PNG output needs a font, and none is .*, or save a \.svg"):
        save_picture(REPORT, tmp_path / "x.png")
    assert not list(tmp_path.iterdir())
    resvg.svg_to_bytes = lambda svg_string, **options: svg_string.encode()
    save_picture(spec_layout((2**18,), {"a": 4096}, ("a",)), tmp_path / "x.png")
    shown = words((tmp_path / "x.png").read_text())
    assert "save an .svg or .html and hover over a cell for its devices" in shown, "a PNG has no tooltips"


def test_resvg_without_fonts_is_detected(tmp_path, monkeypatch):
    resvg_py = pytest.importorskip("resvg_py", reason="the extra png is not installed here")
    draw = functools.partial(resvg_py.svg_to_bytes, skip_system_fonts=True)
    monkeypatch.setattr(resvg_py, "svg_to_bytes", draw)
    with pytest.raises(ValueError, match="PNG output needs a font"):
        save_picture(REPORT, tmp_path / "x.png")


def test_a_png_has_twice_the_pixels_of_the_drawing(tmp_path):
    pytest.importorskip("resvg_py", reason="the extra png is not installed here")
    save_picture(REPORT, tmp_path / "x.png")
    data = (tmp_path / "x.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert int.from_bytes(data[16:20]) == pytest.approx(2 * float(parsed(to_svg(REPORT)).get("width")), abs=2)


def test_a_failed_write_names_the_path_and_keeps_the_existing_file(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError) as raised:
        save_picture(REPORT, tmp_path / "nowhere" / "x.svg")
    assert raised.value.filename == str(tmp_path / "nowhere" / "x.svg")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(IsADirectoryError):
        save_picture(REPORT, tmp_path / "folder.svg")
    (tmp_path / "folder.svg").rmdir()

    (tmp_path / "x.svg").write_text("before")

    def fail(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space left") as raised:
        save_picture(REPORT, tmp_path / "x.svg")
    assert raised.value.filename == str(tmp_path / "x.svg")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x.svg", "before")]


KILLED = """
import os, pathlib
from jax_array_info_core.base import files
os.replace = lambda *args, **options: os.kill(os.getpid(), 9)
files.write_whole(pathlib.Path("x.svg"), b"never finished")
"""


@pytest.mark.own_process
def test_the_next_write_removes_the_temporary_file_of_a_killed_one(tmp_path):
    (tmp_path / "x.svg").write_text("before")
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, check=False, timeout=120)
    assert killed.returncode == -9
    assert len(list(tmp_path.iterdir())) == 2
    assert (tmp_path / "x.svg").read_text() == "before"
    save_picture(REPORT, tmp_path / "y.svg")
    assert sorted(os.listdir(tmp_path)) == ["x.svg", "y.svg"]


def test_a_write_keeps_the_temporary_files_of_running_writes(tmp_path, monkeypatch):
    replace = os.replace

    def write_another_one_first(*args, **options):
        monkeypatch.setattr(os, "replace", replace)
        save_picture(REPORT, tmp_path / "y.svg")
        replace(*args, **options)

    monkeypatch.setattr(os, "replace", write_another_one_first)
    save_picture(REPORT, tmp_path / "x.svg")
    assert sorted(os.listdir(tmp_path)) == ["x.svg", "y.svg"]


def test_writes_work_on_a_file_system_without_locks(tmp_path, monkeypatch):
    def fail(*args):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", fail)
    (tmp_path / ".jai-0123456789abcdef.part").write_text("may belong to another process")
    save_picture(REPORT, tmp_path / "x.svg")
    assert sorted(os.listdir(tmp_path)) == [".jai-0123456789abcdef.part", "x.svg"]


@pytest.mark.parametrize(
    ("name", "make"), [(".jai-mine.part", Path.touch), (".jai-0123456789abcdef.part", os.mkfifo)]
)
def test_a_write_keeps_files_with_similar_names_and_does_not_wait_for_pipes(tmp_path, name, make):
    make(tmp_path / name)
    save_picture(REPORT, tmp_path / "x.svg")
    assert sorted(os.listdir(tmp_path)) == [name, "x.svg"]


def test_a_temporary_file_that_was_removed_is_created_again(tmp_path, monkeypatch):
    removed = []

    def lock(file):
        if not removed:
            removed.extend(tmp_path.glob(".jai-*.part"))
            os.unlink(removed[0])

    monkeypatch.setattr(descriptors, "lock", lock)
    save_picture(REPORT, tmp_path / "x.svg")
    assert len(removed) == 1
    assert os.listdir(tmp_path) == ["x.svg"]


def test_links_and_modes_are_kept_and_devices_are_written_to(tmp_path):
    (tmp_path / "real.svg").write_text("")
    (tmp_path / "real.svg").chmod(0o640)
    (tmp_path / "link.svg").symlink_to("real.svg")
    save_picture(REPORT, tmp_path / "link.svg")
    assert (tmp_path / "link.svg").is_symlink()
    assert (tmp_path / "real.svg").read_text("utf-8") == to_svg(REPORT)
    assert stat.S_IMODE((tmp_path / "real.svg").stat().st_mode) == 0o640
    (tmp_path / "null.svg").symlink_to("/dev/null")
    save_picture(REPORT, tmp_path / "null.svg")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_open_files_and_pipes_are_written_to(tmp_path):
    (tmp_path / "notes").write_text("before\n")
    with open(tmp_path / "notes", "ab") as notes:
        (tmp_path / "link.txt").symlink_to(f"/dev/fd/{notes.fileno()}")
        save_picture(REPORT, tmp_path / "link.txt")
        notes.write(b"after\n")
    assert (tmp_path / "notes").read_text("utf-8") == f"before\n{to_text(REPORT)}\nafter\n"
    reading, writing = os.pipe()
    (tmp_path / "pipe.txt").symlink_to(f"/dev/fd/{writing}")
    save_picture(REPORT, tmp_path / "pipe.txt")
    os.close(writing)
    with open(reading, "rb") as pipe:
        assert pipe.read().decode() == to_text(REPORT) + "\n"


@pytest.mark.parametrize("name", [f"{'x' * 251}.svg", f"{'é' * 125}.svg"])
def test_very_long_file_names_work(tmp_path, name):
    save_picture(REPORT, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("path", ["/dev/null", "/dev/stdout", "new.svg", "old.svg", "link.svg"])
def test_open_files_and_devices_need_no_writable_folder(path, tmp_path, monkeypatch):
    (tmp_path / "old.svg").write_text("")
    (tmp_path / "link.svg").symlink_to("/dev/null")
    monkeypatch.setattr(os, "access", lambda folder, mode: str(folder) == str(tmp_path))
    descriptors.require_place(tmp_path / path)


def test_a_read_only_folder_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda folder, mode: False)
    with pytest.raises(PermissionError) as raised:
        descriptors.require_place(tmp_path / "x.svg")
    assert raised.value.filename == str(tmp_path / "x.svg")
