"""An error that leaves a block which tells something about it."""

import io
import traceback

import pytest


def printed_of(block_around, error):
    """Raise an error in a block, assert that it leaves the block unchanged, and return the printed text.

    Args:
        block_around: A function from a file to the block.
        error: The error.
    """
    earlier, args = KeyError(), error.args
    with io.StringIO() as file:

        def leave():
            try:
                raise earlier
            except KeyError:
                with block_around(file):
                    raise error  # noqa: B904 - the test is about the context

        with pytest.raises(type(error)) as caught:
            leave()
        assert caught.value is error
        assert [frame.name for frame in traceback.extract_tb(error.__traceback__)] == ["printed_of", "leave"]
        assert (error.__context__, error.__cause__, error.__suppress_context__) == (earlier, None, False)
        assert error.args == args
        assert not hasattr(error, "__notes__")
        return file.getvalue()
