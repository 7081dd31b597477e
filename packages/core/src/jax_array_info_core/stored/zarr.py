"""A program that reads boxes of the arrays in an Orbax checkpoint.

It has a process of its own, and imports nothing of this package: TensorStore can crash on damaged files.
Its arguments are the directory, and whether the arrays are in a database. It answers each line of its input,
a JSON object with an array and a box, with a line of JSON: the number of bytes that follow, or an error.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

_MOST_NBYTES = 2**28
"""Maximum size of the chunks that are decompressed at the same time."""
_CONTEXT = {
    "cache_pool": {"total_bytes_limit": _MOST_NBYTES},
    "file_io_concurrency": {"limit": 1},
    "data_copy_concurrency": {"limit": 1},
}
"""Limits of TensorStore: with the cache, a chunk is decompressed once for several boxes."""


class Reader:
    """The arrays of a checkpoint. One of them is open."""

    def __init__(self, directory: str, is_database: bool) -> None:
        """Open a checkpoint.

        Args:
            directory: Directory of the item.
            is_database: Whether the arrays are in a database.
        """
        import tensorstore

        self._tensorstore = tensorstore
        files = {"driver": "file", "path": f"{directory}/"}
        self._store: dict[str, Any] = {"driver": "ocdbt", "base": files} if is_database else files
        self._context = tensorstore.Context(_CONTEXT)
        self._key: Any = None
        self._array: Any = None

    def read(self, key: str, driver: str, shape: list[int], box: list[list[int]] | None) -> Any:
        """Return the elements in a box as a NumPy array, or the shape of a chunk.

        Args:
            key: Path of the array.
            driver: Its version of Zarr, as TensorStore names it.
            shape: Its expected shape.
            box: Start and stop along each axis; None for the shape of a chunk.

        Raises:
            ValueError: If the array has another shape, or a chunk is too large.
        """
        import numpy as np

        if key != self._key:
            path = (self._store.get("path") or "") + key
            spec = {"driver": driver, "kvstore": {**self._store, "path": path}}
            self._array = self._tensorstore.open(spec, context=self._context, read=True, open=True).result()
            self._key = key
        array = self._array
        if list(array.shape) != shape:
            raise ValueError(f"the shape is now {array.shape}")
        # TensorStore has no length of a chunk along an axis that it covers as a whole.
        sizes = array.chunk_layout.read_chunk.shape or shape
        chunk = tuple(size or max(length, 1) for size, length in zip(sizes, shape, strict=True))
        if box is None:
            return np.array(chunk, np.int64)
        found = np.empty([stop - start for start, stop in box], array.dtype.numpy_dtype)
        self._fill(found, [start for start, _ in box], box, chunk)
        return found

    def _fill(self, found: Any, origin: list[int], box: list[list[int]], chunk: tuple[int, ...]) -> None:
        """Read a box of the array, in parts that touch few chunks."""
        touched = [-(-stop // size) - start // size for (start, stop), size in zip(box, chunk, strict=True)]
        nbytes = math.prod(chunk) * found.dtype.itemsize
        if max(touched, default=1) <= 1 or nbytes * math.prod(touched) <= _MOST_NBYTES:
            if nbytes > _MOST_NBYTES:
                raise ValueError(
                    f"a chunk of {nbytes:,} bytes exceeds the limit of {_MOST_NBYTES:,}: "
                    "save with a smaller chunk_byte_size"
                )
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
    directory, is_database = sys.argv[1:]
    reader = None
    for line in sys.stdin:
        try:
            reader = reader or Reader(directory, is_database == "True")
            found = reader.read(**json.loads(line))
        except Exception as error:
            # TensorStore raises errors of any type for damaged files.
            sys.stdout.buffer.write(json.dumps({"error": str(error)}).encode() + b"\n")
        else:
            answer = {"dtype": str(found.dtype), "nbytes": found.nbytes}
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.write(found.tobytes())
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
