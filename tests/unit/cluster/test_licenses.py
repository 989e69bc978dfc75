# SPDX-License-Identifier: Apache-2.0
"""Licences are counted, and none left is a count too."""

from __future__ import annotations

from slurmscope.cluster.licenses import COLLECTOR, License, Licenses
from slurmscope.exporter.collector import NoOptions
from slurmscope.metrics.family import Samples

LOCAL = License(name="matlab", total=10, used=10, free=0, reserved=2, is_remote=False)
REMOTE = License(
    name="abaqus@flex1",
    total=20,
    used=3,
    free=12,
    reserved=0,
    is_remote=True,
    last_consumed=30,
    last_deficit=5,
    updated_timestamp=1677602367,
)


def serve(*licenses: License) -> dict[str, Samples]:
    """Return all samples by the name of their metric."""
    families = COLLECTOR.collect(NoOptions(), licenses=Licenses(licenses=licenses))
    return {family.metric.name: family.samples for family in families}


def test_every_count_has_its_name_and_its_older_one() -> None:
    remote = ("abaqus@flex1",)
    local = ("matlab",)

    assert {
        "slurm_license_info": {("matlab", "no"): 1, ("abaqus@flex1", "yes"): 1},
        "slurm_licenses": {local: 10, remote: 20},
        "slurm_lic_total": {local: 10, remote: 20},
        "slurm_licenses_used": {local: 10, remote: 3},
        "slurm_lic_used": {local: 10, remote: 3},
        "slurm_licenses_free": {local: 0, remote: 12},
        "slurm_lic_free": {local: 0, remote: 12},
        "slurm_licenses_reserved": {local: 2, remote: 0},
        "slurm_lic_reserved": {local: 2, remote: 0},
        "slurm_licenses_last_consumed": {remote: 30},
        "slurm_lic_last_consumed": {remote: 30},
        "slurm_licenses_last_deficit": {remote: 5},
        "slurm_lic_last_deficit": {remote: 5},
        "slurm_license_updated_timestamp_seconds": {remote: 1677602367},
    } == serve(LOCAL, REMOTE)


def test_layers_of_one_resource_are_no_licence() -> None:
    layer = License(name="power", total=5, used=1, free=4)

    assert {("matlab",): 10} == serve(layer, LOCAL, layer)["slurm_licenses"]


def test_older_releases_do_not_report_everything() -> None:
    served = serve(License(name="old", total=1, used=0, free=1))

    assert ({}, {("old", ""): 1}) == (served["slurm_licenses_reserved"], served["slurm_license_info"])


def test_every_declared_metric_is_served() -> None:
    served = serve(LOCAL, REMOTE)

    assert {metric.name for metric in COLLECTOR.metrics} == {name for name, samples in served.items() if samples}
