"""Printed reasons for an unknown sharding or for missing memory statistics."""

import dataclasses

import pytest

from jax_array_info import to_text
from jax_array_info.reports import ArrayReport, DeviceReport, DevicesReport, MemoryReport
from jax_array_info_core.pages.words import reason_words

pytestmark = pytest.mark.oldest_and_newest


@pytest.mark.parametrize(
    ("stored", "printed"),
    [
        ("only the compiler will know it", "XLA chooses it at compile time"),
        ("the compiler removed it", "XLA removed the value"),
        ("this version of jax does not tell", "not available in this version of JAX"),
        (
            "never computed, only transposed",
            "the function is only transposed, so the value is never computed",
        ),
        ("a reducer sees single elements", "inside a reducer, which sees single elements"),
        ("a Pallas kernel sees a block", "inside a Pallas kernel, which sees one block"),
        (
            "jax.experimental.jet computes Taylor coefficients",
            "inside jax.experimental.jet, which computes Taylor coefficients",
        ),
        (
            "jax.experimental.sparse keeps it as several arrays",
            "jax.experimental.sparse stores it as several arrays",
        ),
        ("not compiled", "not compiled"),
        ("a reason of a later version", "a reason of a later version"),
    ],
)
def test_the_panel_prints_each_stored_reason_in_plain_words(stored, printed):
    report = ArrayReport(name=None, kind="tracer", type_name="JitTracer", shape=(), unknown_because=stored)
    assert f"│ sharding unknown: {printed} " in to_text(report, width=120)


DEVICE = DeviceReport(id=9, name="gpu:9", platform="gpu", kind="H100", process=1, is_local=False)


@pytest.mark.parametrize(
    ("stored", "printed"),
    [
        ("it is another process's", "the device belongs to another process"),
        (
            "XLA_PYTHON_CLIENT_ALLOCATOR=platform keeps none",
            "XLA_PYTHON_CLIENT_ALLOCATOR=platform keeps no statistics",
        ),
        ("not reported by the cpu backend", "not reported by the cpu backend"),
    ],
)
def test_tables_print_the_reason_for_missing_statistics(stored, printed):
    report = MemoryReport(device="gpu:9", stats=None, missing_reason=stored)
    assert to_text(report, width=120) == f"no memory statistics for gpu:9: {printed}"
    devices = DevicesReport(devices=(dataclasses.replace(DEVICE, missing_reason=stored),))
    assert f"│ {printed} │" in to_text(devices, width=120)


def test_every_reason_of_an_unknown_sharding_has_a_printed_form():
    from jax_array_info_core.reports import array as unknown_reasons

    names = vars(unknown_reasons).items()
    stored = [text for name, text in names if name.isupper() and isinstance(text, str)]
    unchanged = [text for text in stored if reason_words(text) == text]
    assert unchanged == ["not compiled", "the program does not use the tapped value"]
