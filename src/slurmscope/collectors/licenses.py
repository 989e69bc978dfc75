# SPDX-License-Identifier: Apache-2.0
"""Export license counts.

::

    slurm_licenses{license="matlab"} 10
    slurm_licenses_used{license="matlab"} 3
    slurm_license_info{license="abaqus@flex1",remote="yes"} 1

A name that appears more than once is a hierarchical resource of Slurm 25.05, whose counts depend on the nodes; it
is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from slurmscope.metrics.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, compat_gauge, gauge, info
from slurmscope.model.licenses import Licenses

INFO = info(
    "slurm_license_info", "License, and whether it is a remote license managed by slurmdbd.", "license", "remote"
)

# Field of License, the metric, its older name.
_COUNTS = (
    (
        "total",
        gauge("slurm_licenses", "Licenses available to this cluster.", "license"),
        compat_gauge("slurm_lic_total", "Licenses available to this cluster; a gauge despite its name.", "name"),
    ),
    (
        "used",
        gauge("slurm_licenses_used", "Licenses used by jobs.", "license"),
        compat_gauge("slurm_lic_used", "Licenses used by jobs.", "name"),
    ),
    (
        "free",
        gauge("slurm_licenses_free", "Licenses free for jobs.", "license"),
        compat_gauge("slurm_lic_free", "Licenses free for jobs.", "name"),
    ),
    (
        "reserved",
        gauge("slurm_licenses_reserved", "Licenses held by reservations.", "license"),
        compat_gauge("slurm_lic_reserved", "Licenses held by reservations.", "name"),
    ),
    (
        "last_consumed",
        gauge(
            "slurm_licenses_last_consumed",
            "Remote licenses in use anywhere, as last reported by their server.",
            "license",
        ),
        compat_gauge(
            "slurm_lic_last_consumed", "Remote licenses in use anywhere, as last reported by their server.", "name"
        ),
    ),
    (
        "last_deficit",
        gauge("slurm_licenses_last_deficit", "Remote licenses of this cluster that are used elsewhere.", "license"),
        compat_gauge("slurm_lic_last_deficit", "Remote licenses of this cluster that are used elsewhere.", "name"),
    ),
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


COLLECTOR = Collector(
    name="licenses",
    role=Role.CLUSTER,
    help="Total, used, free and reserved licenses, from one scontrol call.",
    needs=("licenses",),
    metrics=(INFO, *(metric for _, *pair in _COUNTS for metric in pair), UPDATED),
    collect=collect,
)
