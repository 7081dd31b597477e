"""Readers of text that others write take time in proportion to its length.

Each text takes a fraction of a second, and took minutes where a search began again at each character.
"""

import time

import pytest

from jax_array_info_core import log_report
from jax_array_info_core.base.quantities import parse_bytes
from jax_array_info_core.compat.stages import slash_names
from jax_array_info_core.geometry.layouts.notation import parse_rule
from jax_array_info_core.xla.hlo.oom_logs import read_out_of_memory
from jax_array_info_core.xla.hlo.source import read_array, scope_of
from jax_array_info_core.xla.hlo.warnings import DONATION, warnings_in
from tests.logs import REMATERIALIZATION

pytestmark = pytest.mark.newest

HBM = "TPU TensorCore Hbm usage: 1,"


def log(text):
    return log_report([text])


def warnings(text):
    return list(warnings_in(text))


def names(text):
    return slash_names([text])


def size(text):
    with pytest.raises(ValueError, match="cannot be read"):
        parse_bytes(text)


def rule(text):
    with pytest.raises(ValueError, match="cannot be read"):
        parse_rule(text)


@pytest.mark.parametrize(
    ("read", "start", "repeated", "end"),
    [
        (log, DONATION + " x", " ", "y"),
        (log, DONATION + " x", ", ", "y"),
        (log, DONATION + " ", "a", ","),
        (log, DONATION + " ", "a<", ","),
        (log, DONATION + " ", "a[", "."),
        (log, DONATION + " ", "a[]{", "."),
        (log, DONATION + " f32[", "@(,", "]"),
        (log, DONATION + " ", "[", "]"),
        (log, DONATION + " ", "(", ")"),
        (log, DONATION + " f32[8,\n", "a", ""),
        (log, DONATION + " f32[8],\n", "f32[8],\n", ""),
        (log, "", DONATION, ""),
        (log, "", DONATION + "\n", ""),
        (log, "", "Involuntary full rematerialization\n", ""),
        (log, REMATERIALIZATION[:100], "{", ""),
        (log, "", "RESOURCE_EXHAUSTED: memory", ""),
        (log, "", "RESOURCE_EXHAUSTED: memory\n", ""),
        (log, "RESOURCE_EXHAUSTED: Attempting to allocate ", "9", ""),
        (log, "RESOURCE_EXHAUSTED: memory", "; (", "_HBM"),
        (log, "RESOURCE_EXHAUSTED: memory; (", "a", "_HBM"),
        (log, "RESOURCE_EXHAUSTED: memory", r"\nShape: ", ""),
        (log, "RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\n", "1. Size: 9\n", ""),
        (log, "RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\n", "Shape: (", ""),
        (log, "[" * 90, "a", "] RESOURCE_EXHAUSTED"),
        (warnings, REMATERIALIZATION[:100], '"\\', ""),
        (warnings, DONATION + " f32[", "9" * 19 + ",", "9]"),
        (read_array, "", "/*", ""),
        (names, "", "[", ""),
        (size, "1. ", " ", "#"),
        (rule, "a=", " ", "b#"),
        (read_out_of_memory, "", HBM, ""),
        (scope_of, "", "a(", ")" * 200_000 + "/b"),
    ],
)
def test_no_text_takes_long(read, start, repeated, end):
    text = start + repeated * (400_000 // len(repeated)) + end
    before = time.process_time()
    read(text)
    assert time.process_time() - before < 10
