"""Exceptions in other processes."""

import copy
import pickle
import warnings

import pytest

from jax_array_info_core import CheckError
from jax_array_info_core.errors import (
    FileFormatError,
    NotationError,
    ProcessTimeoutError,
    SpecError,
)
from jax_array_info_core.layouts import parse_mesh, parse_spec

pytestmark = pytest.mark.newest


@pytest.mark.parametrize(
    "error",
    [FileFormatError("x" * 2001), SpecError(["\x1b" * 1000, "y"]), NotationError("\x9b" * 5000, 3000, "x")],
    ids=lambda error: type(error).__name__,
)
def test_lines_of_messages_end_and_are_printable(error):
    lines = str(error).split("\n")
    assert max(map(len, lines)) <= 2000
    assert all(line.isprintable() for line in lines)
    assert any(" ... " in line for line in lines)


@pytest.mark.parametrize("text", ["'\\d'", "'\\\x1b[31m'", "'\\400'"], ids=ascii)
def test_names_are_not_evaluated_so_that_python_warns_of_nothing(text):
    """Python 3.12 warns of unknown escapes with the text of the name."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        name = text[1:-1]
        assert parse_spec(text).axes == ((name,),)
        assert parse_mesh(f"{text}=2") == {name: 2}


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
