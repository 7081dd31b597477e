"""A program that reads an Orbax item with TensorStore: keys of its database (OCDBT), and boxes of its arrays.

It has a process of its own, and imports nothing of this package: TensorStore can crash on damaged files.
Its arguments are the directory, and whether the arrays are in a database. It answers each line of its input,
a JSON object with a method of ``Item`` and its arguments, with a line of JSON: the number of bytes that
follow, or the reason why there are none.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

MANIFEST = "manifest.ocdbt"
"""File that a directory with a database has."""
_MAX_NODE = 2**27
"""Maximum size of a node of the database in memory; that of Orbax is 10⁸ bytes."""
_MOST_NBYTES = 192 * 2**20
"""Maximum size of the chunks that are decompressed at the same time. Two programs then take less than 1 GiB
(measured: 960 MiB)."""
_CONTEXT = {
    "cache_pool": {"total_bytes_limit": 10**8},
    "file_io_concurrency": {"limit": 1},
    "data_copy_concurrency": {"limit": 1},
}
"""Limits of TensorStore: without the cache, it would read a node of the database again for each key."""
_CHUNKS = {"total_bytes_limit": _MOST_NBYTES + 2**20}
"""Cache of an open array: without it, a chunk would be decompressed again for each box. The largest chunk
fits, with what TensorStore adds to it."""
_AT_ONCE = 2**7
"""Keys that are read at the same time: the value of each can have a megabyte."""


class TooLargeError(Exception):
    """What is read exceeds a limit."""


class Item:
    """An item. One of its arrays is open."""

    def __init__(self, directory: str, is_database: str) -> None:
        """Read from a directory.

        Args:
            directory: Directory of the item.
            is_database: Whether the arrays are in a database: ``True`` or ``False``.
        """
        import tensorstore

        self._tensorstore = tensorstore
        self._files = {"driver": "file", "path": f"{directory}/"}
        self._database = {"driver": "ocdbt", "base": self._files}
        self._store: dict[str, Any] = self._database if is_database == "True" else self._files
        self._context = tensorstore.Context(_CONTEXT)
        self._spec: Any = None
        self._array: Any = None
        self._place: Any = None

    def contents(self, keys: list[str], limit: int) -> tuple[bytes, str]:
        """Return a JSON object of keys of the database with their contents, None for a missing one.

        Raises:
            TooLargeError: If the nodes of the database, or the contents together, exceed a limit.
        """
        files = self._tensorstore.KvStore.open(self._files, context=self._context).result()
        manifest = self._tensorstore.ocdbt.dump(files, context=self._context).result()
        nbytes = manifest["versions"][-1]["root"]["statistics"]["num_tree_bytes"]
        for size, most in ((manifest["config"]["max_decoded_node_bytes"], _MAX_NODE), (nbytes, limit)):
            if size > most:
                raise TooLargeError(f"nodes of {size:,} bytes exceed the limit of {most:,}")
        store = self._tensorstore.KvStore.open(self._database, context=self._context).result()
        ordered = sorted(keys)  # keys of one node are read together
        found = {}
        for start in range(0, len(ordered), _AT_ONCE):
            reads = [(key, store.read(key)) for key in ordered[start : start + _AT_ONCE]]
            for key, read in reads:
                result = read.result()
                nbytes += len(result.value)
                if nbytes > limit:
                    raise TooLargeError(f"{nbytes:,} bytes exceed the limit of {limit:,}")
                found[key] = result.value.decode("utf-8", "replace") if result.state == "value" else None
        return json.dumps(found).encode(), ""

    def elements(
        self, key: str, driver: str, shape: list[int], box: list[list[int]] | None
    ) -> tuple[bytes, str]:
        """Return the elements in a box of an array, or the shape of a chunk, with their dtype.

        Args:
            key: Path of the array.
            driver: Its version of Zarr, as TensorStore names it.
            shape: Its expected shape.
            box: Start and stop along each axis; None for the shape of a chunk.

        Raises:
            TooLargeError: If a chunk is too large.
            ValueError: If the array has another shape.
        """
        import numpy as np

        path = (self._store.get("path") or "") + key
        spec = {"driver": driver, "kvstore": {**self._store, "path": path}, "cache_pool": _CHUNKS}
        if spec != self._spec:
            self._spec = spec
            self._open()
        if list(self._array.shape) != shape:
            raise ValueError(f"the shape is now {self._array.shape}")
        # TensorStore has no length of a chunk along an axis that it covers as a whole.
        sizes = self._array.chunk_layout.read_chunk.shape or shape
        chunk = tuple(size or max(length, 1) for size, length in zip(sizes, shape, strict=True))
        if box is None:
            return np.array(chunk, np.int64).tobytes(), "int64"
        found = np.empty([stop - start for start, stop in box], self._array.dtype.numpy_dtype)
        self._fill(found, [start for start, _ in box], box, chunk)
        return found.tobytes(), str(found.dtype)

    def _open(self) -> None:
        """Open the array, with an empty cache."""
        self._array = self._place = None
        self._array = self._tensorstore.open(self._spec, context=self._context, read=True, open=True).result()

    def _fill(self, found: Any, origin: list[int], box: list[list[int]], chunk: tuple[int, ...]) -> None:
        """Read a box of the array, in parts that touch few chunks."""
        touched = [-(-stop // size) - start // size for (start, stop), size in zip(box, chunk, strict=True)]
        nbytes = math.prod(chunk) * found.dtype.itemsize
        if max(touched, default=1) <= 1 or nbytes * math.prod(touched) <= _MOST_NBYTES:
            if nbytes > _MOST_NBYTES:
                raise TooLargeError(
                    f"a chunk of {nbytes:,} bytes exceeds the limit of {_MOST_NBYTES:,}: "
                    "save with a smaller chunk_byte_size"
                )
            first = [start // size for (start, _), size in zip(box, chunk, strict=True)]
            if first != self._place:
                self._open()  # otherwise, two chunks would be in memory while the next one is decompressed
                self._place = first
            place = tuple(slice(a - o, b - o) for (a, b), o in zip(box, origin, strict=True))
            found[place] = self._array[tuple(slice(a, b) for a, b in box)].read().result()
            return
        axis = touched.index(max(touched))
        (start, stop), size = box[axis], chunk[axis]
        middle = (start // size + touched[axis] // 2) * size
        for part in ([start, middle], [middle, stop]):
            self._fill(found, origin, [*box[:axis], part, *box[axis + 1 :]], chunk)


def main() -> None:
    """Answer each line of the input."""
    item = None
    for line in sys.stdin:
        request = json.loads(line)
        data = b""
        try:
            item = item or Item(*sys.argv[1:])
            data, dtype = getattr(item, request.pop("read"))(**request)
            answer = {"nbytes": len(data), "dtype": dtype}
        except TooLargeError as error:
            answer = {"limit": str(error)}
        except Exception as error:
            # TensorStore raises errors of any type for damaged files.
            answer = {"error": str(error)}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
