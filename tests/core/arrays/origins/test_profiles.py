import contextlib
import functools
import gzip
import subprocess
import sys

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core import memory_profile_report
from jax_array_info_core.arrays.origins import profiles
from jax_array_info_core.arrays.origins.profiles import _profile_class
from jax_array_info_core.errors import ProfileError, UnsupportedValueError
from jax_array_info_core.facts.reports.origin import Origin
from tests.arrays import mesh_of, sharded

pytestmark = pytest.mark.newest

# A fixed time stamp, since the data are in the test ids.
packed = functools.partial(gzip.compress, mtime=0)

JAX_TYPES = [("allocations", "count"), ("space", "bytes")]
ELSEWHERE = "/opt/venv/lib/python3.11/site-packages"


def pprof_of(samples, types=JAX_TYPES):
    """Return a profile with the given samples, each of values, labels and frames (file, line, function)."""
    profile = _profile_class()()
    strings = [""]

    def index(text):
        if text not in strings:
            strings.append(text)
        return strings.index(text)

    for sample_type, unit in types:
        profile.sample_type.add(type=index(sample_type), unit=index(unit))
    for values, labels, frames in samples:
        sample = profile.sample.add(value=values)
        for key, text in labels.items():
            sample.label.add(key=index(key), str=index(text))
        for file, line, function in frames:
            number = len(profile.location) + 1
            profile.function.add(id=number, name=index(function), filename=index(file))
            profile.location.add(id=number).line.add(function_id=number, line=line)
            sample.location_id.append(number)
    profile.string_table.extend(text.encode() for text in strings)
    return profile


def rows(profile):
    report = memory_profile_report(profile.SerializeToString())
    return [
        (row.device, row.kind, row.origin and str(row.origin), row.nbytes, row.count) for row in report.rows
    ]


def on(device, kind="buffer"):
    return {"kind": kind, "device": device}


def test_the_bytes_of_this_process_are_grouped_by_device_and_line_apart_from_its_programs(no_arrays):
    count = len(jax.devices())
    arrays = [sharded((count, 100), mesh_of((count,), ("a",)), "a") for _ in range(3)]
    jax.jit(lambda x: x + 1).lower(0).compile()
    report = memory_profile_report()
    assert report.device_nbytes == tuple((f"cpu:{number}", 3 * 400) for number in range(count))
    held = [row for row in report.rows if row.kind == "buffer"]
    assert sum(row.nbytes for row in held) == sum(array.nbytes for array in arrays)
    assert {row.origin.function for row in held} == {"sharded"}
    assert "executable" in {row.kind for row in report.rows}


LIBRARIES = [
    (f"{ELSEWHERE}/jax/_src/dispatch.py", 4, "apply"),
    (f"{ELSEWHERE}/flax/linen/module.py", 3, "init"),
    ("/usr/lib/python3.11/functools.py", 2, "wrapper"),
    (r"C:\Python311\Lib\site-packages\optax\base.py", 2, "update"),
    (f"{ELSEWHERE}/jaxtyping/decorator.py", 7, "checked"),
]
OF_JAX = [(f"{ELSEWHERE}/jax/a.py", 1, "f"), (f"{ELSEWHERE}/jax/b.py", 2, "g")]
COMPREHENSION = ("train.py", 2, "main.<locals>.<listcomp>")


@pytest.mark.parametrize(
    ("frames", "site"),
    [
        ([*LIBRARIES, ("/home/me/train.py", 9, "main")], "train.py:9 main"),
        (OF_JAX, "a.py:1 f"),
        ([], None),
        ([COMPREHENSION, ("train.py", 2, "main")], "train.py:2 main"),
        ([COMPREHENSION], "train.py:2 <listcomp>"),
    ],
    ids=["libraries", "jax alone", "no frames", "comprehension", "comprehension alone"],
)
def test_the_allocation_site_is_the_line_of_the_user_or_the_innermost_one(frames, site):
    profile = pprof_of([([1, 8], on("cuda:0"), frames)])
    assert rows(profile) == [("cuda:0", "buffer", site, 8, 1)]


def test_the_bytes_of_a_line_are_added_up_and_sorted():
    line = [("train.py", 3, "main")]
    profile = pprof_of(
        [
            ([1, 8], on("cuda:10"), [("x.py", 1, "f"), *line]),
            ([2, 20], on("cuda:9"), line),
            ([3, 30], on("cuda:9"), line),
            ([1, 8], on("TFRT_CPU_9"), [("x.py", 1, "f")]),
            ([1, 99], {"kind": "executable"}, line),
            ([1, 1], {}, line),
        ]
    )
    assert rows(profile) == [
        (None, "executable", "train.py:3 main", 99, 1),
        ("cuda:9", "buffer", "train.py:3 main", 50, 5),
        ("cpu:9", "buffer", "x.py:1 f", 8, 1),
        ("cuda:10", "buffer", "x.py:1 f", 8, 1),
        (None, "unknown", "train.py:3 main", 1, 1),
    ]
    report = memory_profile_report(profile.SerializeToString())
    assert report.device_nbytes == (("cpu:9", 8), ("cuda:9", 50), ("cuda:10", 8))


def test_a_profile_may_be_compressed_in_one_or_several_parts():
    data = pprof_of([([1, 8], on("cuda:0"), [("x.py", 1, "f")])]).SerializeToString()
    report = memory_profile_report(data)
    half = len(data) // 2
    assert memory_profile_report(packed(data)) == report
    assert memory_profile_report(packed(data[:half]) + packed(data[half:])) == report


def test_a_path_may_have_bytes_that_are_not_utf_8():
    profile = pprof_of([([1, 8], on("cuda:0"), [("x.py", 1, "f")])])
    profile.string_table[list(profile.string_table).index(b"x.py")] = b"\xff.py"
    (row,) = memory_profile_report(profile.SerializeToString()).rows
    assert row.origin == Origin(file=r"\xff.py", line=1, function="f")


GOOD = pprof_of([([1, 8], on("cuda:0"), [("x.py", 1, "f")])]).SerializeToString()
GO_HEAP = [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_space", "bytes")]


def damaged(change):
    profile = pprof_of([([1, 8], on("cuda:0"), [("x.py", 1, "f")])])
    change(profile)
    return profile.SerializeToString()


def of_types(types):
    return pprof_of([], types).SerializeToString()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is empty"),
        (b"# a program\nimport jax\n", "is not a pprof profile"),
        (b"\x00" * 100, "is not a pprof profile"),
        (b"\x7fELF" + bytes(range(256)), "is not a pprof profile"),
        (packed(b""), "is not a pprof profile"),
        (packed(b"text"), "is not a pprof profile"),
        (packed(GOOD)[:-9], "is truncated or damaged"),
        (packed(GOOD)[:5], "is truncated or damaged"),
        (packed(GOOD)[:-8] + b"12345678", "is truncated or damaged"),
        (GOOD[:-1], "is not a pprof profile"),
        (of_types(GO_HEAP), "of alloc_objects in count, alloc_space in bytes, inuse_spa"),
        (of_types([("cpu", "nanoseconds")]), "a pprof profile of cpu in nanoseconds, not"),
        (of_types([("\x1b[31m", "b")]), r"of \\x1b\[31m in b, not"),
        (damaged(lambda profile: profile.sample[0].value.pop()), "damaged"),
        (damaged(lambda profile: setattr(profile.sample[0].label[0], "str", 99)), "damaged"),
        (damaged(lambda profile: setattr(profile.sample[0].label[0], "key", -1)), "damaged"),
        (damaged(lambda profile: profile.sample[0].location_id.append(7)), "damaged"),
        (damaged(lambda profile: setattr(profile.location[0].line[0], "function_id", 7)), "damaged"),
        (damaged(lambda profile: setattr(profile.function[0], "filename", 2**40)), "damaged"),
        (damaged(lambda profile: setattr(profile.sample_type[0], "unit", 99)), "damaged"),
        (
            damaged(lambda profile: profile.sample[0].value.__setitem__(0, -1)),
            "damaged, a count is negative: save",
        ),
        (
            damaged(lambda profile: profile.sample[0].value.__setitem__(1, -8)),
            "damaged, a count is negative: save",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_data_are_rejected_with_one_line(data, problem):
    with pytest.raises(ProfileError, match=problem) as refused:
        memory_profile_report(data)
    assert "\n" not in str(refused.value)


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255))
def test_a_profile_with_a_changed_byte_is_read_or_rejected(place, byte):
    for data in (GOOD, packed(GOOD)):
        index = place % len(data)
        changed = data[:index] + bytes([byte]) + data[index + 1 :]
        with contextlib.suppress(ProfileError):
            memory_profile_report(changed)


def test_data_beyond_the_size_limit_are_not_decompressed(monkeypatch):
    monkeypatch.setattr(profiles, "MAX_NBYTES", 2**20)
    with pytest.raises(ProfileError, match="is larger than 1 MiB uncompressed"):
        memory_profile_report(packed(bytes(2**21)))


def test_too_many_references_to_one_location_are_rejected():
    profile = pprof_of([([1, 8], on("cuda:0"), [("a.py", 1, "f")])])
    location = profile.location[0]
    for _ in range(10_000):
        location.line.add().CopyFrom(location.line[0])
    profile.sample[0].location_id.extend([location.id] * 10_000)
    with pytest.raises(ProfileError, match="more than 10,000,000 frames"):
        memory_profile_report(profile.SerializeToString())


@pytest.mark.parametrize("buffer", [bytearray, memoryview, lambda data: memoryview(data * 2)[: len(data)]])
def test_bytes_in_every_type_of_buffer_are_read(buffer):
    for data in (GOOD, packed(GOOD)):
        assert memory_profile_report(buffer(data)) == memory_profile_report(data)


@pytest.mark.parametrize("data", ["memory.prof", 3, []])
def test_values_other_than_bytes_are_rejected(data):
    with pytest.raises(UnsupportedValueError, match=r"the bytes of a profile, got .*: read the file"):
        memory_profile_report(data)


def test_the_error_names_a_backend_without_a_memory_profile(monkeypatch):
    def fail():
        raise NotImplementedError("no heap profiles\nhere")

    monkeypatch.setattr(jax.profiler, "device_memory_profile", fail)
    problem = r"^the cpu backend has no memory profile \(no heap profiles\): use print_array_stats"
    with pytest.raises(ProfileError, match=problem):
        memory_profile_report()


def test_reading_a_profile_does_not_import_jax():
    code = f"""
import sys
from jax_array_info_core import memory_profile_report
assert memory_profile_report({GOOD!r}).rows
assert "jax" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
