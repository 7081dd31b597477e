"""Where the processes that ``jax.distributed`` has joined leave texts for each other."""

from __future__ import annotations

from typing import Any


class KeyValueStore:
    """The texts that processes leave for each other; a key with slashes is a path."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def set(self, key: str, text: str) -> None:
        """Write a text, in place of what stands there."""
        self._client.key_value_set(key, text, allow_overwrite=True)

    def get(self, key: str, seconds: float) -> str | None:
        """Return a text as soon as it is there, None when it does not come in time."""
        try:
            return str(self._client.blocking_key_value_get(key, max(1, int(seconds * 1000))))
        except RuntimeError as error:
            # An XlaRuntimeError, or JaxRuntimeError from jax 0.8 on: only its text tells which.
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
            return None

    def entries(self, folder: str) -> dict[str, str]:
        """Return the texts that are now in a folder, by the rest of their keys."""
        found = self._client.key_value_dir_get(f"{folder}/")
        return {key.removeprefix(f"{folder}/"): text for key, text in found}

    def delete(self, key: str) -> None:
        """Remove a text, where there is one, and all that is in the folder of this name."""
        self._client.key_value_delete(key)
