"""Classes of reports and of their parts."""

from typing import TYPE_CHECKING

from jax_array_info_core.facts.reports.all_reports import *  # noqa: F403

if not TYPE_CHECKING:  # mypy exports nothing from a module whose list of names is computed
    from jax_array_info_core.facts.reports.all_reports import __all__ as __all__
