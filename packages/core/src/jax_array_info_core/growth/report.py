"""Growth by allocation site."""

from __future__ import annotations

from collections.abc import Mapping

from ..reports.growth import OriginGrowth
from .snapshot import Allocation, Site, by_site, held_nbytes, largest_content
from .trends import NO_TREND, Trends


def origin_growths(
    new: Mapping[Allocation, int], freed: Mapping[Allocation, int], trends: Trends
) -> tuple[OriginGrowth, ...]:
    """Return the growth of each allocation site, steady growth first.

    Args:
        new: The number of arrays of each allocation that are alive now and were not at entry.
        freed: The number of arrays of each allocation that were alive at entry and are not now.
        trends: The trends over the steps since entry.
    """
    growing = trends.growing()
    new_at, freed_at = by_site(new, growing), by_site(freed, growing)
    found = []
    for site in {**new_at, **freed_at, **growing}:
        born, gone = new_at.get(site, {}), freed_at.get(site, {})
        trend = growing.get(site, NO_TREND)
        separate = [other for other in growing if other != site and Site(other.origin, None) == site]
        count_per_step, nbytes_per_step = trends.per_step(site, separate) or (None, None)
        growth = OriginGrowth(
            origin=site.origin,
            content=largest_content(born or gone) if born or gone else None,
            count=sum(born.values()),
            device_nbytes=held_nbytes(born),
            freed_count=sum(gone.values()),
            freed_device_nbytes=held_nbytes(gone),
            count_per_step=count_per_step,
            nbytes_per_step=nbytes_per_step,
            rose_every_step=trend.is_at_every_step,
            rose_steps=trend.steps,
            rose_count=trend.by.arrays,
            rose_nbytes=trend.by.nbytes,
            rose_content=site.content if site in growing else None,
        )
        found.append(growth)
    return tuple(sorted(found, key=_rising_first))


def _rising_first(growth: OriginGrowth) -> tuple[object, ...]:
    return (
        not growth.rose_every_step,
        -(growth.nbytes_per_step or 0) if growth.rose_every_step else 0,
        -growth.rose_nbytes,
        -growth.nbytes,
        -growth.freed_nbytes,
        -growth.count,
        str(growth.origin),
        growth.content or "",
    )
