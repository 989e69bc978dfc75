# SPDX-License-Identifier: Apache-2.0
"""The doctor reads every source once and says what to do."""

from __future__ import annotations

from slurmscope.core.check import Check
from slurmscope.core.errors import CommandMissing, SourceError
from slurmscope.exporter.collector import Collector, Role
from slurmscope.exporter.doctor import examine
from slurmscope.exporter.reading import ReadingSet, SharedReading
from slurmscope.prometheus.responses import QueryTooLarge


def collector(name: str, *needs: str) -> Collector:
    return Collector(name=name, role=Role.CLUSTER, help="x", needs=needs, metrics=(), collect=lambda **_: ())


def missing() -> object:
    raise CommandMissing(["squeue"], "squeue was not found")


class CheckedReadings(ReadingSet):
    def checks(self) -> list[Check]:
        return [Check(name="layout", is_good=True, message="fine")]


def test_good_and_missing_sources_are_distinguished() -> None:
    readings = CheckedReadings(
        SharedReading("jobs", missing, interval_seconds=10),
        SharedReading("nodes", dict, interval_seconds=10),
        SharedReading("unused", missing, interval_seconds=10),
    )

    examination = examine(readings, [collector("a", "jobs", "nodes"), collector("b", "jobs")])

    checks = {check.name: check for check in examination.checks}
    assert {"reading jobs", "reading nodes", "layout"} == checks.keys()
    assert not examination.is_healthy
    assert checks["reading nodes"].is_good
    assert "squeue was not found" == checks["reading jobs"].message
    assert "no metrics of a, b: install the Slurm client commands" in checks["reading jobs"].advice


def test_advice_for_prometheus_is_not_that_for_commands() -> None:
    def refuse() -> object:
        raise QueryTooLarge("it answered 422: too many samples")

    readings = ReadingSet(
        SharedReading("lustre", refuse, interval_seconds=10), SharedReading("other", refuse, interval_seconds=10)
    )

    lustre, other = examine(readings, [collector("lustre", "lustre"), collector("other", "other")]).checks

    assert "no metrics of lustre: check --prometheus.url" in lustre.advice
    assert "no metrics of other: run the command by hand" in other.advice


def test_advice_for_a_socket_is_not_that_for_commands() -> None:
    def refuse() -> object:
        raise SourceError("cannot listen on /run/a/profile.sock: No such file or directory")

    readings = ReadingSet(SharedReading("profile", refuse, interval_seconds=10))

    (profile,) = examine(readings, [collector("profile", "profile")]).checks

    assert "no metrics of profile: check the path of its socket" in profile.advice
