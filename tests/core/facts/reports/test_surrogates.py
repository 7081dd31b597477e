"""Texts with lone surrogates, as of file names that are not UTF-8: what is written is read again."""

import tempfile
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core import (
    array_report,
    check_report,
    from_json,
    gather_reports,
    hosts_report,
    live_array_report,
    load_report,
    load_tree,
    log_report,
    memory_report,
    save_report,
    save_tree,
    to_json,
    tree_diff_report,
    tree_report,
)
from jax_array_info_core.facts.reports.json import summary_from_json, summary_to_json
from jax_array_info_core.jobs.hosts.files import hosts_in_folder
from jax_array_info_core.jobs.hosts.gather import _packed, _unpacked
from jax_array_info_core.jobs.hosts.summaries import SetAsText, arrays_of, summary_of
from jax_array_info_core.trees.stored.reading import decoded_parts
from tests.core.jobs.hosts.samples import ARRAYS, group, live, write

pytestmark = pytest.mark.newest

TEXTS = st.text(st.characters(exclude_categories=()), max_size=12) | st.sampled_from(
    ["caf\udce9.npz", "\ud800", "\udc00\ud800", "\ud83d\ude00", '"\\ud800', "\ud800\udc00 \\"]
)
"""Any text, also with lone surrogates, and with those that JSON joins to one character."""


def reports_with(text):
    """Return reports with a text as their name, as a path, as a label and as a message."""
    tree = {text: np.zeros(2, np.float32), f"{text}.": jnp.zeros(3), "nested": {text: 1, "b": object()}}
    report = tree_report(tree, text)
    yield array_report(3, text)
    yield array_report(text)
    yield report
    yield check_report(report, devices=2, hbm_nbytes=1)
    yield tree_diff_report(report, tree_report({"w": jnp.zeros(3)}, text))
    yield memory_report(jax.devices()[0], {text: text})
    yield log_report([f"Some donated buffers were not usable: {text} float32[8].", text])
    yield live(group(label=text))


def joined(value):
    """Return what JSON reads for a text: two halves of a character that follow each other are the character."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


@given(TEXTS)
def test_json_is_read_as_it_was_written(text):
    text = joined(text)
    for report in reports_with(text):
        written = to_json(report)
        assert written.isascii()
        assert from_json(written) == from_json(written.encode()) == report
        assert gather_reports(report) == [report]


@given(TEXTS)
def test_files_are_read_as_they_were_written(text):
    text = joined(text)
    report = tree_report({text: jnp.zeros(3), "b": np.zeros(2)}, text)
    with tempfile.TemporaryDirectory() as folder:
        save_tree(report, Path(folder, "tree"))
        assert load_tree(Path(folder, "tree")) == load_report(Path(folder, "tree")) == report
        save_report(report, folder)
        assert (
            load_report(Path(folder, "process-0.json")) == load_tree(Path(folder, "process-0.json")) == report
        )
        for rows in (False, True):
            assert hosts_in_folder(folder, rows=rows).unread == ()


@given(TEXTS)
def test_summaries_and_sets_of_arrays_travel_unchanged(text):
    text = joined(text)
    report = tree_report({text: jnp.zeros(3), "b": np.zeros(2)}, text)
    summary = replace(summary_of(report), host_name=text)
    assert summary_from_json(summary_to_json(summary)) == summary
    arrays = arrays_of(report)
    found = decoded_parts(_unpacked(_packed(SetAsText.of(arrays).text)), SetAsText).arrays
    assert (found.counts, found.digest) == (arrays.counts, arrays.digest)


def test_arrays_with_such_labels_are_compared_between_hosts(tmp_path):
    """The report of each process is read in part, by another reader."""
    label = "caf\udce9"
    for process in range(3):
        own = [group(label=label)] if process == 2 else []
        write(tmp_path, live(*ARRAYS, *own), process, 3)
    report = hosts_in_folder(tmp_path, rows=True)
    assert report.unread == ()
    [difference] = report.differences
    assert [array.label for array in difference.extra] == [label]
    assert from_json(to_json(report)) == report
    assert hosts_report(live_array_report()).unread == ()
