"""Exceptions in other processes."""

import copy
import pickle

import pytest

from jax_array_info_core import CheckError, NotationError, ProcessTimeoutError, SpecError

pytestmark = pytest.mark.oldest_and_newest


@pytest.mark.parametrize(
    "error",
    [
        SpecError(["first", "second"], ["both"]),
        CheckError("a finding", {"report": 1}),
        NotationError("x=", 2, "expected a number"),
        ProcessTimeoutError([1, 2], 4, 60.0),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("restored", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy])
def test_copies_of_errors_have_the_same_message_and_attributes(error, restored):
    """A worker process that fails sends its error through pickle."""
    found = restored(error)
    assert (type(found), str(found), vars(found)) == (type(error), str(error), vars(error))
