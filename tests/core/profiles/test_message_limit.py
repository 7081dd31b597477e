"""The limit of messages, checked before parsing, so that a small file cannot use up the memory."""

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_array_info_core import memory_profile_report
from jax_array_info_core.errors import ProfileError
from jax_array_info_core.profiles import pprof
from jax_array_info_core.profiles import pprof as message_limit
from tests.core.profiles.test_profile import on, pprof_of

pytestmark = pytest.mark.oldest_and_newest

frames = st.lists(
    st.tuples(st.sampled_from(["a.py", "größe.py"]), st.integers(0, 300), st.just("f")), max_size=3
)
samples = st.lists(
    st.tuples(st.lists(st.integers(0, 2**63 - 1), min_size=2, max_size=2), st.just(on("cuda:0")), frames),
    max_size=4,
)


def exceeds(data, most):
    return message_limit.exceeds(data, pprof._FIELDS, "Profile", most)


def objects_in(message):
    """Return the number of messages and strings that the parser finds in a message."""
    count = 0
    for _, value in message.ListFields():
        for entry in [value] if isinstance(value, (int, bytes)) else value:
            if not isinstance(entry, int):
                count += 1 + (0 if isinstance(entry, bytes) else objects_in(entry))
    return count


@given(samples)
def test_the_count_of_messages_matches_the_parser(found):
    profile = pprof_of(found)
    data = profile.SerializeToString()
    count = objects_in(profile)
    assert not exceeds(data, count)
    assert exceeds(data, count - 1)


GOOD = pprof_of([([1, 8], on("cuda:0"), [("a.py", 1, "f")])]).SerializeToString()


@pytest.mark.parametrize(
    "flood",
    [
        b"\x12\x00" * 101,  # samples
        b"\x92\x80\x00\x00" * 101,  # the same with longer tags
        b"\x32\x00" * 101,  # strings
        b"\x12\xca\x01" + b"\x1a\x00" * 101,  # labels in one sample
        b"\x12\xa4\x06\x0a\xa1\x06" + bytes(801),  # packed numbers in one sample
        b"\x12\xc2\x0c" + b"\x08\x00" * 801,  # the same, not packed
        b"\x78\x00" * 801,  # unknown fields
        b"\x7b\x7c" * 801,  # empty groups
    ],
)
def test_everything_that_is_larger_in_memory_than_in_a_file_is_counted(flood):
    assert not exceeds(GOOD, 100)
    assert exceeds(GOOD + flood, 100)


@pytest.mark.parametrize(
    "damage", [b"\x12", b"\x12\x7f", b"\xff" * 300, b"\x12\xff\xff\xff\xff\x0f", b"\x17" * 50]
)
def test_damaged_data_are_left_to_the_parser(damage):
    assert not exceeds(GOOD + damage, 30)


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_a_profile_of_more_than_a_million_messages_is_rejected_before_parsing(packed, monkeypatch):
    def parse():
        raise AssertionError("it was parsed")

    monkeypatch.setattr(pprof, "_profile_class", parse)
    with pytest.raises(ProfileError, match="more than 1,000,000 messages"):
        memory_profile_report(packed(GOOD + b"\x12\x00" * 1_000_001))


def test_too_many_references_to_one_location_are_rejected():
    profile = pprof_of([([1, 8], on("cuda:0"), [("a.py", 1, "f")])])
    location = profile.location[0]
    for _ in range(10_000):
        location.line.add().CopyFrom(location.line[0])
    profile.sample[0].location_id.extend([location.id] * 10_000)
    with pytest.raises(ProfileError, match="more than 10,000,000 frames"):
        memory_profile_report(profile.SerializeToString())
