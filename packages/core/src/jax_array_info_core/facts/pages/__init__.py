"""Pages: what each report says, in blocks that any renderer can show."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..reports import Report
    from ..reports.codes import Code
    from .blocks import Listing


class Shown(NamedTuple):
    """How reports of a class are shown: names of what is imported at first use."""

    page: str
    """Module and function of the page."""
    verb: str = "print_report"
    """Function that makes and prints such a report; ``print_report`` prints any."""
    command: str = ""
    """Command that makes and prints one; empty if there is none."""


REPORTS = {
    "AdviceReport": Shown("advice.advice_page", command="advise"),
    "ArrayReport": Shown("arrays.array_page", "sharding_info", "show"),
    "CheckReport": Shown("checks.check_page", "print_check", "check"),
    "Code": Shown("explained.explained_page", command="explain"),
    "CompilationsReport": Shown("compilations.compilations_page", "print_compilations"),
    "CompileCachesReport": Shown("compilations.compile_caches_page", "print_compile_caches"),
    "DevicesReport": Shown("devices.devices_page", "print_memory_stats", "devices"),
    "GrowthReport": Shown("growths.growth_page", "print_growth"),
    "HostsReport": Shown("hosts.hosts_page", "print_hosts", "hosts"),
    "LayersReport": Shown("layers.layers_page", "print_layers", "layers"),
    "LiveArrayReport": Shown("live.live_page", "print_array_stats"),
    "LogReport": Shown("logs.log_page", "print_log", "log"),
    "MemoryProfileReport": Shown("devices.memory_profile_page", "print_memory_profile", "profile"),
    "MemoryReport": Shown("devices.memory_page", "pretty_memory_stats"),
    "MeshReport": Shown("arrays.layout_page", "print_mesh", "mesh"),
    "ProgramDiff": Shown("program_diffs.program_diff_page", "print_program_diff", "diff"),
    "ProgramReport": Shown("programs.program_page", "print_program", "program"),
    "ProgramTimelineReport": Shown("programs.program_timeline_page", "print_program_timeline"),
    "PropagationReport": Shown("propagations.propagation_page", "print_propagation", "why"),
    "ReshardReport": Shown("reshards.reshard_page", "print_reshard"),
    "ShardReport": Shown("arrays.shard_page", command="show"),
    "ShardingLayout": Shown("arrays.layout_page", "sharding_vis"),
    "TimelineReport": Shown("timelines.timeline_page", "print_timeline", "memory"),
    "TreeDiff": Shown("tree_diffs.tree_diff_page", "print_tree_diff", "diff"),
    "TreeReport": Shown("trees.tree_page", "print_tree", "tree"),
    "XlaReport": Shown("arrays.xla_page", command="explain"),
}
"""Each class of reports, and codes of findings, by name."""


def page(report: Report | Code, **options: Any) -> Iterator[Listing]:
    """Return the page of a report, with all rows: ``blocks.cut`` leaves out some.

    Args:
        report: Any report, or the code of findings.
        **options: Options of its page, such as ``depth`` for a tree.

    Raises:
        TypeError: If ``report`` is not a report, or its page has no such option.
        ValueError: If an option is out of its bounds.
    """
    if type(report).__name__ not in REPORTS:
        raise TypeError(f"expected a report, got {type(report)}")
    module, name = REPORTS[type(report).__name__].page.split(".")
    blocks: Iterator[Listing] = getattr(import_module(f".{module}", __name__), name)(report, **options)
    return blocks
