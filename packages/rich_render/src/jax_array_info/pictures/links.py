"""Links between the devices of a mesh axis, in words."""

from __future__ import annotations

from jax_array_info_core.layouts.links import LINK_WORDS, AxisLinks, Neighbors
from jax_array_info_core.quantities import counted, format_number
from jax_array_info_core.text import printable


def link_words(links: AxisLinks) -> str:
    """Return how the devices along a mesh axis are connected, such as ``ICI, ring of 8 in z, 1 hop``.

    Several links are counted in pairs of neighbors, the slowest first.
    """
    kinds = {each.link for each in links.neighbors}
    if not kinds:
        return "one device"
    if len(links.neighbors) == 1:
        [only] = links.neighbors
        words = LINK_WORDS[only.link]
        if only.link == "ici":
            words += _form_words(links) + (f", {_hops(only)}" if only.hops else "")
    elif kinds == {"ici"}:
        words = f"ICI{_form_words(links)}: {_counted(links, '{hops}')}"
    else:
        words = _counted(links, "{link} {hops}")
    if crossing := _crossing(links):
        return f"{crossing}: {words}"
    if "dcn" in kinds:
        return f"{words}, {counted(links.slice_count, 'slice', 'slices')}"
    if kinds == {"same-host"}:
        return "inside a host"
    if links.leaves_host == "never" and kinds != {"same-chip"}:
        return f"inside a host: {words}"
    if kinds <= {"ici", "same-chip"}:
        return words
    if links.host_count is None:
        return f"{words}, {counted(links.process_count, 'process', 'processes')}"
    return f"{words}, {counted(links.host_count, 'host', 'hosts')}"


def _crossing(links: AxisLinks) -> str:
    """Return in how many groups slices, hosts or processes are crossed; empty if in all or none."""
    for noun, where, count in (
        ("slices", links.leaves_slice, links.groups_over_slices),
        ("hosts", links.leaves_host, links.groups_over_hosts),
        ("processes", links.leaves_process, links.groups_over_processes),
    ):
        if where == "partly" and count is not None:
            groups = counted(links.group_count, "group", "groups")
            return f"crosses {noun} in {format_number(count)} of {groups}"
    return ""


def _form_words(links: AxisLinks) -> str:
    """Return the form of the groups of an axis in the torus, such as ``, ring of 8 in z``."""
    if links.form is not None:
        return f", {links.form} of {links.chip_count} in {_sides(links)}"
    return f" in {_sides(links)}" if links.sides else ""


def _sides(links: AxisLinks) -> str:
    *others, last = map(printable, links.sides)
    return f"{', '.join(others)} and {last}" if others else last


def _hops(each: Neighbors) -> str:
    if each.link != "ici":
        return ""
    return "hops unknown" if each.hops is None else counted(each.hops, "hop", "hops")


def _counted(links: AxisLinks, form: str) -> str:
    """Return the links of an axis with the number of pairs of neighbors of each."""
    pieces = (
        (format_number(each.pair_count), form.format(link=LINK_WORDS[each.link], hops=_hops(each)).strip())
        for each in links.neighbors
    )
    return ", ".join(f"{count} × {words}" for count, words in pieces)
