"""A program that reads keys of OCDBT, a database in files.

It has a process of its own, and imports nothing of this package: TensorStore can crash on a damaged database.
Its arguments are the directory and a limit of bytes; the keys are a JSON list on standard input.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

_MAX_NODE = 2**27
"""Maximum size of a node of the database in memory; that of Orbax is 10⁸ bytes."""
_CONTEXT = {
    "cache_pool": {"total_bytes_limit": 10**8},
    "file_io_concurrency": {"limit": 1},
    "data_copy_concurrency": {"limit": 1},
}
"""Limits of TensorStore: without the cache, it would read a node again for each key."""
_AT_ONCE = 2**7
"""Keys that are read at the same time: the value of each can have a megabyte."""


class TooLargeError(Exception):
    """What is read exceeds a limit."""


def contents(directory: str, keys: list[str], limit: int) -> Iterator[tuple[str, str | None]]:
    """Yield each key with its content; None if it is missing.

    Raises:
        TooLargeError: If the nodes of the database, or the contents together, exceed a limit.
    """
    import tensorstore

    base = {"driver": "file", "path": f"{directory}/"}
    context = tensorstore.Context(_CONTEXT)
    files = tensorstore.KvStore.open(base, context=context).result()
    manifest = tensorstore.ocdbt.dump(files, context=context).result()
    nbytes = manifest["versions"][-1]["root"]["statistics"]["num_tree_bytes"]
    for size, most in ((manifest["config"]["max_decoded_node_bytes"], _MAX_NODE), (nbytes, limit)):
        if size > most:
            raise TooLargeError(f"nodes of {size:,} bytes exceed the limit of {most:,}")
    store = tensorstore.KvStore.open({"driver": "ocdbt", "base": base}, context=context).result()
    ordered = sorted(keys)  # keys of one node are read together
    for start in range(0, len(ordered), _AT_ONCE):
        reads = [(key, store.read(key)) for key in ordered[start : start + _AT_ONCE]]
        for key, read in reads:
            result = read.result()
            nbytes += len(result.value)
            if nbytes > limit:
                raise TooLargeError(f"{nbytes:,} bytes exceed the limit of {limit:,}")
            yield key, result.value.decode("utf-8", "replace") if result.state == "value" else None


def main() -> None:
    """Write a JSON object: the contents by key, or the reason why they cannot be read."""
    directory, limit = sys.argv[1:]
    answer: dict[str, Any]
    try:
        answer = {"contents": dict(contents(directory, json.load(sys.stdin), int(limit)))}
    except TooLargeError as error:
        answer = {"limit": str(error)}
    except Exception as error:
        # TensorStore raises errors of any type for damaged files.
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
