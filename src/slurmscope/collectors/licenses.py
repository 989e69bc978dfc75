# SPDX-License-Identifier: Apache-2.0
"""Count licences.

::

    slurm_licenses{license="matlab"} 10
    slurm_licenses_used{license="matlab"} 3
    slurm_license_info{license="abaqus@flex1",remote="yes"} 1

A name that appears more than once is one of the layered resources of 25.05, whose counts depend on
the nodes; it is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from slurmscope.metrics.collector import Collector, NoOptions, Role
from slurmscope.metrics.family import Family, gauge, info, seed_gauge
from slurmscope.model.licenses import Licenses

INFO = info("slurm_license_info", "Licence, and whether the accounting database shares it out.", "license", "remote")

# Field of License, the metric, its older name.
_COUNTS = (
    (
        "total",
        gauge("slurm_licenses", "Licences that this cluster may use.", "license"),
        seed_gauge("slurm_lic_total", "Licences that this cluster may use; a gauge in spite of its name.", "name"),
    ),
    (
        "used",
        gauge("slurm_licenses_used", "Licences that jobs hold.", "license"),
        seed_gauge("slurm_lic_used", "Licences that jobs hold.", "name"),
    ),
    (
        "free",
        gauge("slurm_licenses_free", "Licences that jobs may still get.", "license"),
        seed_gauge("slurm_lic_free", "Licences that jobs may still get.", "name"),
    ),
    (
        "reserved",
        gauge("slurm_licenses_reserved", "Licences that reservations hold.", "license"),
        seed_gauge("slurm_lic_reserved", "Licences that reservations hold.", "name"),
    ),
    (
        "last_consumed",
        gauge("slurm_licenses_last_consumed", "Remote licences in use anywhere, as their server told last.", "license"),
        seed_gauge("slurm_lic_last_consumed", "Remote licences in use anywhere, as their server told last.", "name"),
    ),
    (
        "last_deficit",
        gauge("slurm_licenses_last_deficit", "Remote licences of this cluster that others use.", "license"),
        seed_gauge("slurm_lic_last_deficit", "Remote licences of this cluster that others use.", "name"),
    ),
)
UPDATED = gauge(
    "slurm_license_updated_timestamp_seconds", "When the server of a remote licence told its use last.", "license"
)


def collect(options: NoOptions, *, licenses: Licenses) -> Iterator[Family]:  # noqa: ARG001 - part of the protocol
    """Yield every count under its name and its older one."""
    times = Counter(each.name for each in licenses.licenses)
    plain = [each for each in licenses.licenses if times[each.name] == 1]
    remote = {True: "yes", False: "no", None: ""}
    yield Family(INFO, {(each.name, remote[each.is_remote]): 1 for each in plain})
    for field, metric, seed in _COUNTS:
        counts = {(each.name,): count for each in plain if (count := getattr(each, field)) is not None}
        yield Family(metric, counts)
        yield Family(seed, counts)
    updates = (((each.name,), each.updated_timestamp) for each in plain)
    yield Family(UPDATED, {labels: moment for labels, moment in updates if moment is not None})


COLLECTOR = Collector(
    name="licenses",
    role=Role.CLUSTER,
    help="Licences in total, used, free and reserved, from one scontrol call.",
    needs=("licenses",),
    metrics=(INFO, *(metric for _, *pair in _COUNTS for metric in pair), UPDATED),
    collect=collect,
)
