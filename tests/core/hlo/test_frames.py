import pytest

from jax_array_info_core.hlo.frames import FrameTables, frames_of
from jax_array_info_core.hlo.module import Frame

pytestmark = pytest.mark.oldest_and_newest

ROWS = {
    "FileNames": ['1 "/home/user/step.py"', '2 "C:\\\\run\\"a\\" \\303\\251.py"'],
    "FunctionNames": ['1 "<module>"', '2 "step.<locals>.loss"'],
    "FileLocations": [
        "1 {file_name_id=1 function_name_id=1 line=97 end_line=97 column=10 end_column=20}",
        "2 {file_name_id=2 function_name_id=2 line=24 end_line=24 column=1 end_column=2}",
        "3 {file_name_id=1 line=7}",
    ],
}
OUTER = Frame("/home/user/step.py", 97, "<module>")
INNER = Frame('C:\\run"a" é.py', 24, "step.<locals>.loss")


def tables(*frames):
    """Return the tables with some stack frames."""
    filled = FrameTables()
    for section, lines in (ROWS | {"StackFrames": frames}).items():
        for line in lines:
            assert filled.add(section, line), line
    return filled


@pytest.mark.parametrize(
    "parents",
    [
        pytest.param((" parent_frame_id=1", " parent_frame_id=2", " parent_frame_id=3"), id="one too high"),
        pytest.param((" parent_frame_id=0", " parent_frame_id=1", " parent_frame_id=2"), id="right"),
        pytest.param(("", " parent_frame_id=1", " parent_frame_id=2"), id="right, and no zeros"),
    ],
)
def test_a_stack_is_innermost_first(parents):
    places = (1, 3, 2)
    frames = (
        f"{n} {{file_location_id={place}{parent}}}"
        for n, (place, parent) in enumerate(zip(places, parents, strict=True), 1)
    )
    filled = tables(*frames)
    assert filled.stack(1) == (OUTER,)
    assert filled.stack(3) == (INNER, Frame("/home/user/step.py", 7, ""), OUTER)
    assert filled.stack(4) == ()


def test_a_circle_of_frames_ends():
    filled = tables("1 {file_location_id=9 parent_frame_id=3}", "2 {file_location_id=2 parent_frame_id=2}")
    assert set(filled.stack(1)) == {INNER}


def test_a_stack_stops_at_a_missing_frame():
    filled = tables("1 {file_location_id=1 parent_frame_id=1}", "3 {file_location_id=2 parent_frame_id=3}")
    assert filled.stack(3) == (INNER,)


@pytest.mark.parametrize(
    ("section", "line"),
    [
        ("FileNames", "1 step.py"),
        ("FileNames", '"step.py"'),
        ("FileLocations", "1 {}"),
        ("FileLocations", "1 {file_name_id=}"),
        ("StackFrames", "1 {file_location_id=1 parent_frame_id=1"),
        ("StackFrames", "1 {file_location_id=1234567890}"),
    ],
)
def test_other_lines_do_not_belong_to_a_table(section, line):
    assert not FrameTables().add(section, line)


def test_up_to_jax_0_7_the_metadata_has_one_line():
    metadata = {"op_name": "jit(f)/add", "source_file": "/home/user/step.py", "source_line": "7"}
    assert frames_of(metadata, FrameTables()) == (Frame("/home/user/step.py", 7, ""),)
    assert frames_of(metadata | {"source_line": "x"}, FrameTables()) == ()
    assert frames_of({"op_name": "x", "stack_frame_id": "9"}, FrameTables()) == ()
