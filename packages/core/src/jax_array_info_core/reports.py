"""Reports: frozen dataclasses with the facts about an array, a mesh, a tree or a program."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .facts.reports.all_reports import *  # noqa: F403
else:  # each name is still imported at first use
    from .facts.reports import __all__, __dir__, __getattr__  # noqa: F401
