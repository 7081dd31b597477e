"""Platforms on which JAX starts its backends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .processes import has_backends


@contextlib.contextmanager
def only_cpu() -> Iterator[None]:
    """Keep JAX on the CPU inside the block, unless it has already started its backends.

    An accelerator can belong to another process. After the block, the program can still start its own: the
    setting is restored, and a backend that was started on the CPU is cleared.
    """
    import jax

    if has_backends():
        yield
        return
    platforms = jax.config.jax_platforms
    jax.config.update("jax_platforms", "cpu")
    try:
        yield
    finally:
        if has_backends():
            import jax.extend.backend

            jax.extend.backend.clear_backends()
        jax.config.update("jax_platforms", platforms)
