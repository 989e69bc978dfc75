# SPDX-License-Identifier: Apache-2.0
"""Export license counts.

::

    slurm_licenses{license="matlab"} 10
    slurm_licenses_used{license="matlab"} 3
    slurm_license_info{license="abaqus@flex1",remote="yes"} 1

A name that appears more than once is a hierarchical resource of Slurm 25.05, whose counts depend on the nodes; it
is left out.

Releases differ in what follows ``Free=``: ``Reserved`` came with 22.05, ``LastConsumed`` and its
neighbours with 23.02 and for remote licences only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from slurmscope.cluster.sources import Sources
from slurmscope.core.errors import MalformedAnswer
from slurmscope.exporter.collector import Collector, NoOptions, Reading, Role
from slurmscope.metrics.family import Family, Metric, compat_gauge, gauge, info
from slurmscope.slurm.text import cut, parse_whole, split_lines, words


@dataclass(frozen=True, slots=True, kw_only=True)
class License:
    """The counts of one license; None for values that this Slurm version, or a local license, does not have.

    ``last_consumed`` is the usage that the license server reported to slurmdbd, ``last_deficit`` the part of this
    cluster's licenses that is used elsewhere, both as of ``updated_timestamp``.
    """

    name: str
    total: int
    used: int
    free: int
    reserved: int | None = None
    is_remote: bool | None = None
    last_consumed: int | None = None
    last_deficit: int | None = None
    updated_timestamp: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Licenses:
    """All licenses; ``unreadable_rows`` counts records that could not be parsed."""

    licenses: tuple[License, ...]
    unreadable_rows: int = 0


ARGUMENTS = ("--oneliner", "show", "licenses")

_NOTHING = "No licenses configured in Slurm."


def parse_licenses(answer: bytes) -> Licenses:
    """Read one record per line; one in another format is skipped, unless there is no other."""
    lines = split_lines(answer, "licenses")
    if lines == [_NOTHING]:
        return Licenses(licenses=())
    licenses = []
    for line in lines:
        try:
            licenses.append(_parse_license(line))
        except ValueError:
            continue
    if not licenses:
        raise MalformedAnswer("scontrol show licenses: no record is in a known format")
    return Licenses(licenses=tuple(licenses), unreadable_rows=len(lines) - len(licenses))


def _parse_license(line: str) -> License:
    name, rest = cut(line, "LicenseName", "Total")
    fields = words(f"Total={rest}")
    total, used, free = (parse_whole(fields.get(key)) for key in ("Total", "Used", "Free"))
    if total is None or used is None or free is None:
        raise ValueError("the record has no counts")
    return License(
        name=name,
        total=total,
        used=used,
        free=free,
        reserved=parse_whole(fields.get("Reserved")),
        is_remote={"yes": True, "no": False}.get(fields.get("Remote", "")),
        last_consumed=parse_whole(fields.get("LastConsumed")),
        last_deficit=parse_whole(fields.get("LastDeficit")),
        # 0 is what Slurm has before the first word of a licence server.
        updated_timestamp=parse_whole(fields.get("LastUpdate")) or None,
    )


INFO = info(
    "slurm_license_info", "License, and whether it is a remote license managed by slurmdbd.", "license", "remote"
)


def _declare(field: str, name: str, help: str, older_help: str = "") -> tuple[str, Metric, Metric]:
    """Declare the metric of a field of License, and its older name."""
    return field, gauge(name, help, "license"), compat_gauge(f"slurm_lic_{field}", older_help or help, "name")


_COUNTS = (
    _declare(
        "total",
        "slurm_licenses",
        "Licenses available to this cluster.",
        "Licenses available to this cluster; a gauge despite its name.",
    ),
    _declare("used", "slurm_licenses_used", "Licenses used by jobs."),
    _declare("free", "slurm_licenses_free", "Licenses free for jobs."),
    _declare("reserved", "slurm_licenses_reserved", "Licenses held by reservations."),
    _declare(
        "last_consumed",
        "slurm_licenses_last_consumed",
        "Remote licenses in use anywhere, as last reported by their server.",
    ),
    _declare("last_deficit", "slurm_licenses_last_deficit", "Remote licenses of this cluster that are used elsewhere."),
)
UPDATED = gauge(
    "slurm_license_updated_timestamp_seconds",
    "Unix time at which the server of a remote license last reported its usage.",
    "license",
)


def collect(options: NoOptions, *, licenses: Licenses) -> Iterator[Family]:  # noqa: ARG001 - part of the protocol
    """Yield each count under its name and its older name."""
    times = Counter(each.name for each in licenses.licenses)
    plain = [each for each in licenses.licenses if times[each.name] == 1]
    remote = {True: "yes", False: "no", None: ""}
    yield Family(INFO, {(each.name, remote[each.is_remote]): 1 for each in plain})
    for field, metric, compat in _COUNTS:
        counts = {(each.name,): count for each in plain if (count := getattr(each, field)) is not None}
        yield Family(metric, counts)
        yield Family(compat, counts)
    updates = (((each.name,), each.updated_timestamp) for each in plain)
    yield Family(UPDATED, {labels: moment for labels, moment in updates if moment is not None})


def read_licenses(slurm: Sources) -> Licenses:
    return parse_licenses(slurm.run("scontrol", ARGUMENTS))


LICENSES = Reading(name="licenses", read=read_licenses, every_seconds=180.0, older_errors=("slurm_lic_scrape_error",))
COLLECTOR = Collector(
    name="licenses",
    role=Role.CLUSTER,
    help="Total, used, free and reserved licenses, from one scontrol call.",
    needs=(LICENSES,),
    metrics=(INFO, *(metric for _, *pair in _COUNTS for metric in pair), UPDATED),
    collect=collect,
)
