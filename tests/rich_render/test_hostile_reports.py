"""Reports with any content that the schema allows: rejected, or printed without harm."""

import json
import re

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jax_array_info.engine.render import render, text_of
from jax_array_info_core import from_json, json_schema, to_json
from jax_array_info_core.base.text import printable
from jax_array_info_core.errors import ReportFormatError
from tests.core.facts.reports.test_json import every_report
from tests.rendered import as_pages, as_text, harmful
from tests.schemas import admitted_by, changed, covering

pytestmark = pytest.mark.newest

SCHEMA = json_schema()
REPORTS = sorted(choice["$ref"].rpartition("/")[2] for choice in SCHEMA["oneOf"])
BASES = [json.loads(to_json(report)) for report in every_report()]
BOXES = {chr(code) for code in range(0x2500, 0x2580)} | {"…"}


def marked(fields):
    """Return a function that returns a text for each field, with the number of the field in ``fields``."""

    def text(definition, field):
        if (definition, field) not in fields:
            fields.append((definition, field))
        return f"{HARM}q{fields.index((definition, field))}z"

    return text


HARM = "[b]<i>&\x1b[31m\x07\x9b\ud800\ufffe\u202e"
PRINTED = printable(HARM).lower()

MANY_CHOICES = ("ArrayReport", "CheckReport", "GrowthReport", "ProgramReport")

NEVER_SHOWN = {
    ("AdviceReport", "name"),  # given in the command
    ("ArrayReport", "default_memory_kind"),
    ("CostShare", "parameters"),  # print_layers adds them up
    ("CostShare", "scope"),
    ("ArrayReport", "invariant_axes"),  # those that are also manual axes
    ("DevicePeaks", "devices"),  # of several rows, where devices differ
    ("DeviceReport", "default_memory_kind"),
    ("DeviceReport", "platform"),
    ("Finding", "mesh_axes"),  # named in the problem
    ("Finding", "code"),  # that of the kind
    ("Finding", "page"),  # that of the kind
    ("HostArray", "dtype"),  # the findings have the arrays that differ
    ("HostArray", "label"),
    ("HostArray", "shape"),
    ("HostArray", "sharding"),
    ("HostDifference", "unread_because"),
    ("HostSummary", "boot_id"),  # counted
    ("HostSummary", "digest"),
    ("HostSummary", "platform"),
    ("LayerRow", "paths"),  # counted
    ("LiveArrayGroup", "replicated_over"),  # of arrays with replicas
    ("LiveArrayGroup", "memory_kind"),
    ("LiveArrayTotal", "of"),  # derived from the groups, whatever the file contains
    ("LogEvent", "kind"),  # the page of a consequence has it
    ("LogEvent", "ranks"),
    ("LogEvent", "numbers"),  # in the words
    *(
        ("LogFinding", name)  # computed from the events
        for name in (
            "code",
            "kind",
            "mesh_axes",
            "numbers",
            "page",
            "problem",
            "rank",
            "remedy",
            "shell_remedy",
        )
    ),
    ("LogReport", "root_ranks"),  # those of the headline
    ("MemoryProfileReport", "device_nbytes"),
    ("Parameter", "moments"),  # print_layers adds them up
    ("Parameter", "path"),
    ("ProgramReport", "unread_local"),  # among those of unread
    ("Remedy", "resolved"),  # findings of the program name the change
    ("RemedyPlace", "function"),
    ("RuleResult", "rule"),  # in other words in the fact
    ("PropagatedValue", "invariant_axes"),  # those that are also manual axes
    ("PropagatedLeaf", "dtype"),  # with line=
    ("PropagatedLeaf", "path"),
    ("PropagatedLeaf", "shape"),
    ("Rematerialization", "axes"),  # where a sharding is unknown
    ("RepeatedValue", "axes"),  # the line has those of the array that is moved
    ("ReplicatedValue", "invariant_axes"),  # those that are also manual axes
    ("SentBytes", "axes"),  # derived from the collectives
    ("SentBytes", "kind"),
    ("TimelineJump", "mark"),  # marks have a table of their own
    ("TimelineOutOfMemory", "message"),  # the answer has the time and the size
    ("TimelineProcess", "job"),  # of a process with several runs
    ("TimelineProcess", "mark"),  # jai-cli top shows it
    ("TimelineProcess", "platform"),
    ("TimelineReport", "folder"),
    ("TreeRow", "full_path"),  # patterns match it
    ("TreeRow", "same_as"),  # the path of another leaf
    ("TreeRow", "xla"),  # compared with other shardings
    ("UnevenAxis", "fitting"),
    ("UnevenAxis", "names"),
    ("UnreadHost", "name"),  # the findings have both
    ("UnreadHost", "reason"),
    ("WorkLine", "mesh_axes"),  # of lines that repeat much work
    ("WorkLine", "op"),
    ("WorkLine", "phases"),
    ("XlaReport", "kind"),
}
"""Fields that are only compared with others, or printed only for known values of another field."""


def test_the_text_of_every_field_is_printed_literally():
    fields, shown, others = [], set(), []

    def show(name, made):
        report = from_json(json.dumps({"report": name, "schema_version": 3, **made}))
        for text in (*as_text(report, 2000), *as_pages(report, 2000)):
            assert not harmful(text), name
            # Ignore line breaks and case: titles are wrapped, and platforms are in capitals.
            words = "".join(text.split()).lower()
            for mark in re.finditer(r"q(\d+)z", words):
                field = fields[int(mark[1])]
                shown.add(field)
                assert words.endswith(PRINTED, 0, mark.start()), (field, words[: mark.end()][-200:])

    for name in REPORTS:
        cover, more = covering(SCHEMA, name, marked(fields), 128 if name in MANY_CHOICES else 24)
        for made in cover:
            show(name, made)
        others += [(name, made) for made in more]
    # Some fields are shown for choices in two definitions.
    for name, made in others:
        missing = set(fields) - shown - NEVER_SHOWN
        if any(f"q{fields.index(field)}z" in json.dumps(made) for field in missing):
            show(name, made)
    assert set(fields) - shown == NEVER_SHOWN


@st.composite
def anything(draw):
    """Return JSON data that the schema allows, or a report with a few changed values."""
    if draw(st.booleans()):
        name = draw(st.sampled_from(REPORTS))
        return {"report": name, "schema_version": 3, **draw(admitted_by(SCHEMA, name))}
    made = draw(st.sampled_from(BASES))
    for _ in range(draw(st.integers(1, 3))):
        made = changed(made, draw)
    return made


@settings(
    deadline=None,
    derandomize=True,  # tests/fuzz has random ones
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@example(
    {
        "report": "ShardingLayout",
        "schema_version": 3,
        "shape": [0],
        "device_ids": [[0, 1]],
        "partial_sums": 2,
        "unreduced": ["\N{INVERTED EXCLAMATION MARK}"],
    }
)
@given(anything())
def test_any_json_is_rejected_or_printed_without_harm(made):
    try:
        report = from_json(json.dumps(made))
    except ReportFormatError as error:
        assert not harmful(str(error))
        return
    assert from_json(to_json(report)) == report
    for width in (20, 80):
        for text in (*as_text(report, width), *as_pages(report, width)):
            assert not harmful(text)
        ascii_text = text_of(render(report, width=width), width=width, encoding="ascii")
        assert all(char.isascii() or char in BOXES for char in ascii_text)
