"""Exceptions of the package. Each also derives from a builtin exception, such as ValueError."""

from typing import TYPE_CHECKING

from .base.errors import *  # noqa: F403

if not TYPE_CHECKING:  # mypy exports nothing from a module whose list of names is computed
    from .base.errors import __all__ as __all__
