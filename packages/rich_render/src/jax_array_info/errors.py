"""Errors that the functions of this package raise."""

from typing import TYPE_CHECKING

from jax_array_info_core.errors import *  # noqa: F403

if not TYPE_CHECKING:  # mypy exports nothing from a module whose list of names is computed
    from jax_array_info_core.base.errors import __all__ as __all__
