"""Directories of Orbax: the item with the arrays, and checkpoints that were not completely written."""

import json
import os

import pytest

from jax_array_info_core import load_tree
from jax_array_info_core.errors import FileFormatError
from jax_array_info_core.trees.stored.orbax import item_of
from jax_array_info_core.trees.stored.reading import Budget

pytestmark = pytest.mark.newest
UNFINISHED = "an Orbax checkpoint that is not completely written: use an earlier step, or wait for the save"


def written_item(folder):
    folder.mkdir(parents=True)
    (folder / "_METADATA").write_text("{}")
    return folder


def written_step(folder, *items, commit=1):
    for item in items:
        written_item(folder / item)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "_CHECKPOINT_METADATA").write_text(json.dumps({"commit_timestamp_nsecs": commit}))
    return folder


def chosen(folder, item=None):
    """Return the path of the item below a directory, and what is said about it."""
    place = item_of(folder, item, Budget())
    return place.directory.relative_to(folder).as_posix(), place.part


def refusal(folder, item=None):
    with pytest.raises(FileFormatError) as caught:
        load_tree(folder, item=item)
    message = str(caught.value)
    assert message.isprintable()
    assert message.startswith(f"{folder}: ")
    return message.removeprefix(f"{folder}: ")


def test_item(tmp_path):
    """The directory of an item is read as it is."""
    item = written_item(tmp_path / "state")
    assert chosen(item) == chosen(item, "state") == (".", "")
    assert refusal(item, "ema") == "this is the directory of one item, which has no item 'ema'"


def test_step_of_one_item(tmp_path):
    """The only item with arrays is chosen, whatever other items a step has."""
    step = written_step(tmp_path / "3", "default")
    (step / "config").mkdir()
    (step / "config" / "metadata").write_text("{}")
    assert chosen(step) == ("default", "")


def test_step_of_several_items(tmp_path):
    step = written_step(tmp_path / "3", "state", "ema")
    assert chosen(step, "ema") == ("ema", "item ema")
    assert refusal(step) == (
        f"the directory has the items 'ema', 'state': choose one with item='ema', or pass {step / 'ema'}"
    )
    assert refusal(step, "x") == "the directory has no item 'x' with arrays: it has 'ema', 'state'"


def test_newest_step_of_a_manager(tmp_path):
    """Steps are ordered by number. The step and, of several, the item are named."""
    for step in (2, 10, 9):
        written_step(tmp_path / str(step), "state", "ema")
    assert chosen(tmp_path, "state") == ("10/state", "step 10, item state")
    assert refusal(tmp_path) == (
        f"step 10 has the items 'ema', 'state': choose one with item='ema', or pass {tmp_path / '10' / 'ema'}"
    )


def test_links_next_to_the_steps_of_a_manager(tmp_path):
    """A link to itself or to nothing is no step, and hides none."""
    written_step(tmp_path / "3", "default")
    for name, target in (("4", "4"), ("latest", "nowhere")):
        (tmp_path / name).symlink_to(target)
    assert chosen(tmp_path) == ("3/default", "step 3")


def test_names_of_steps(tmp_path):
    """The name of a step may have a prefix and leading zeros, and a step may be an item itself."""
    written_step(tmp_path / "a" / "train_000010", "default")
    written_step(tmp_path / "a" / "train_000009", "default")
    assert chosen(tmp_path / "a") == ("train_000010/default", "step 10")
    written_item(tmp_path / "b" / "7")
    assert chosen(tmp_path / "b") == ("7", "step 7")


@pytest.mark.parametrize("content", ['{"commit_timestamp_nsecs": null}', "{}", '{"commit', "[]", "[" * 10**5])
def test_steps_without_a_commit_are_skipped(tmp_path, content):
    written_step(tmp_path / "1", "default")
    written_step(tmp_path / "2", "default")
    (tmp_path / "2" / "_CHECKPOINT_METADATA").write_text(content)
    assert chosen(tmp_path) == ("1/default", "step 1")
    assert refusal(tmp_path / "2") == UNFINISHED
    (tmp_path / "2" / "commit_success.txt").write_text("")
    assert chosen(tmp_path) == ("2/default", "step 2")


def test_temporary_directories_are_not_read(tmp_path):
    """Orbax renames a directory when it is complete."""
    unfinished = written_step(tmp_path / "5.orbax-checkpoint-tmp-17", "default", commit=None)
    expected = "no step of this Orbax checkpoint was completely written: 5.orbax-checkpoint-tmp-17"
    assert refusal(tmp_path) == expected
    for folder in (unfinished, unfinished / "default"):
        assert refusal(folder) == UNFINISHED
    written_step(tmp_path / "6", "default", "ema.orbax-checkpoint-tmp-1")
    assert refusal(tmp_path / "6") == UNFINISHED
    written_step(tmp_path / "4", "default")
    assert chosen(tmp_path) == ("4/default", "step 4")


def test_directories_that_are_no_checkpoints(tmp_path):
    """If a directory contains a file that can be read, the error names it."""
    assert refusal(tmp_path) == "an empty directory"
    (tmp_path / "x").mkdir()
    assert refusal(tmp_path) == "a directory that is not an Orbax checkpoint"
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    assert refusal(tmp_path) == (
        "a directory that is not an Orbax checkpoint: choose a file in it, such as model.safetensors.index.json"
    )


def test_step_without_arrays(tmp_path):
    step = written_step(tmp_path / "1")
    assert refusal(step) == "the directory has no item with arrays"


def test_pipes_in_a_checkpoint_do_not_block(tmp_path):
    step = written_step(tmp_path / "1", "default")
    (step / "_CHECKPOINT_METADATA").unlink()
    os.mkfifo(step / "_CHECKPOINT_METADATA")
    assert refusal(step) == UNFINISHED
