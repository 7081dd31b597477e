"""Exchange of text between processes through the key-value store of ``jax.distributed``."""

from __future__ import annotations

from typing import Any

_LONGEST_PIECE = 2**20  # JAX 0.4.38 fails at messages of 4 MiB
_LONGEST_TRANSFER = 5.0  # seconds to read a piece that has been written


class KeyValueStore:
    """One folder of the store. Its keys are paths, with slashes."""

    def __init__(self, client: Any, folder: str) -> None:
        self._client = client
        self._folder = folder

    def set(self, key: str, text: str) -> None:
        """Write a short text, and replace any earlier text."""
        self._client.key_value_set(f"{self._folder}/{key}", text, allow_overwrite=True)

    def get(self, key: str, seconds: float) -> str | None:
        """Return a short text once it is written; None after the time limit."""
        try:
            milliseconds = max(1, int(seconds * 1000))
            return str(self._client.blocking_key_value_get(f"{self._folder}/{key}", milliseconds))
        except RuntimeError as error:
            # An XlaRuntimeError, or a JaxRuntimeError since JAX 0.8: only the message has the status.
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
            return None

    def entries(self, key: str) -> dict[str, str]:
        """Return the short texts currently below a key, by the rest of their keys."""
        prefix = f"{self._folder}/{key}/"
        return {path.removeprefix(prefix): text for path, text in self._client.key_value_dir_get(prefix)}

    def delete(self, key: str) -> None:
        """Remove a text, if it exists, and all texts below its key."""
        self._client.key_value_delete(f"{self._folder}/{key}")

    def write(self, key: str, text: str) -> None:
        """Write a long text in pieces. The first character marks the last piece (``.``) or not (``+``)."""
        for start in range(0, len(text), _LONGEST_PIECE):
            end = start + _LONGEST_PIECE
            self.set(f"{key}/{start // _LONGEST_PIECE}", ("." if end >= len(text) else "+") + text[start:end])

    def read(self, key: str, seconds: float) -> str | None:
        """Return a long text once it is written; None if a piece is removed or late."""
        pieces = ["+"]
        while pieces[-1].startswith("+"):
            piece = self.get(f"{key}/{len(pieces) - 1}", max(seconds, _LONGEST_TRANSFER))
            if piece is None:
                return None
            pieces.append(piece)
        return "".join(piece[1:] for piece in pieces)
