# SPDX-License-Identifier: Apache-2.0
"""The doctor tries every source once and says what to do."""

from __future__ import annotations

from slurmscope.errors import CommandMissing
from slurmscope.metrics.collector import Collector, Role
from slurmscope.services.exporter.doctor import examine
from slurmscope.services.exporter.readings import SharedReading
from slurmscope.services.exporter.wiring import Check, Wiring


def collector(name: str, *needs: str) -> Collector:
    return Collector(name=name, role=Role.CLUSTER, help="x", needs=needs, metrics=(), collect=lambda **_: ())


def missing() -> object:
    raise CommandMissing(["squeue"], "squeue was not found")


def test_good_and_missing_sources_are_told_apart() -> None:
    wiring = Wiring(
        readings={
            "jobs": SharedReading("jobs", missing, interval_seconds=10),
            "nodes": SharedReading("nodes", dict, interval_seconds=10),
            "unused": SharedReading("unused", missing, interval_seconds=10),
        },
        checks=lambda: [Check(name="layout", is_good=True, message="fine")],
    )

    examination = examine(wiring, [collector("a", "jobs", "nodes"), collector("b", "jobs")])

    checks = {check.name: check for check in examination.checks}
    assert {"reading jobs", "reading nodes", "layout"} == checks.keys()
    assert not examination.is_healthy
    assert checks["reading nodes"].is_good
    assert "squeue was not found" == checks["reading jobs"].message
    assert "a, b cannot be served: install Slurm's client commands" in checks["reading jobs"].advice
