"""A program that reads keys of the database (OCDBT) of an Orbax item with TensorStore.

It has a process of its own, and imports nothing of this package: TensorStore can crash on damaged files.
Its input is a JSON object, the arguments of ``contents``. Its output is a JSON array: the problem, an empty
text if there is none, and what ``contents`` returns.
"""

from __future__ import annotations

import json
import sys

MANIFEST = "manifest.ocdbt"
"""File that a directory with a database has."""
_MAX_NODE = 2**27
"""Maximum size of a node of the database in memory; that of Orbax is 10⁸ bytes."""
_CONTEXT = {
    "cache_pool": {"total_bytes_limit": 10**8},
    "file_io_concurrency": {"limit": 1},
    "data_copy_concurrency": {"limit": 1},
}
"""Limits of TensorStore: without the cache, it would read a node of the database again for each key."""
_MAX_REASON = 300
"""Maximum number of characters of an error of TensorStore that are shown."""
PROBLEM = "tensorstore cannot read it: "
"""Begin of errors of TensorStore."""
_AT_ONCE = 2**7
"""Keys that are read at the same time: the value of each can have a megabyte."""


class TooLargeError(Exception):
    """What is read exceeds a limit."""


def contents(directory: str, keys: list[str], limit: int) -> dict[str, str | None]:
    """Return keys of a database with their contents, None for a missing one.

    Args:
        directory: Directory of the item.
        keys: The keys.
        limit: Maximum number of bytes of the nodes and of the contents together.

    Raises:
        TooLargeError: If they are more, or a node is too large.
    """
    import tensorstore

    context = tensorstore.Context(_CONTEXT)
    base = {"driver": "file", "path": f"{directory}/"}
    files = tensorstore.KvStore.open(base, context=context).result()
    manifest = tensorstore.ocdbt.dump(files, context=context).result()
    nbytes = manifest["versions"][-1]["root"]["statistics"]["num_tree_bytes"]
    for size, most in ((manifest["config"]["max_decoded_node_bytes"], _MAX_NODE), (nbytes, limit)):
        if size > most:
            raise TooLargeError(f"nodes of {size:,} bytes exceed the limit of {most:,}")
    store = tensorstore.KvStore.open({"driver": "ocdbt", "base": base}, context=context).result()
    ordered = sorted(keys)  # keys of one node are read together
    texts = {}
    for start in range(0, len(ordered), _AT_ONCE):
        reads = [(key, store.read(key)) for key in ordered[start : start + _AT_ONCE]]
        for key, read in reads:
            result = read.result()
            nbytes += len(result.value)
            if nbytes > limit:
                raise TooLargeError(f"{nbytes:,} bytes exceed the limit of {limit:,}")
            texts[key] = result.value.decode("utf-8", "replace") if result.state == "value" else None
    return texts


def main() -> None:
    """Answer the input."""
    problem = ""
    texts: dict[str, str | None] = {}
    try:
        texts = contents(**json.load(sys.stdin))
    except TooLargeError as error:
        problem = str(error)
    except Exception as error:
        # TensorStore raises errors of any type for damaged files, with places in its source code.
        reason = str(error).partition("\n")[0].partition(" [source locations=")[0][:_MAX_REASON]
        problem = f"{PROBLEM}{reason}"
    json.dump([problem, texts], sys.stdout)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
