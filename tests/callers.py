"""Calls of a user's methods by this package: JAX's own caches call them too, which depends on what they hold."""

import traceback


def is_of_this_package() -> bool:
    """Return whether code of the package waits for the call in which this is asked."""
    names = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_stack(None))
    return any(name.split(".")[0].startswith("jax_array_info") for name in names)
