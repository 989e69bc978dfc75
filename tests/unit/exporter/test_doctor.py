# SPDX-License-Identifier: Apache-2.0
"""The doctor reads every source once and says what to do."""

from __future__ import annotations

from slurmscope.core.check import Check, find_root_cause
from slurmscope.core.errors import CommandMissing, TruncatedArrays
from slurmscope.exporter.collector import Collector, Role
from slurmscope.exporter.doctor import examine
from slurmscope.exporter.feature import OpenFeatures, Running
from slurmscope.exporter.reading import SharedReading
from slurmscope.prometheus.responses import QueryTooLarge


def collector(name: str, *needs: str) -> Collector:
    return Collector(name=name, role=Role.CLUSTER, help="x", needs=needs, metrics=(), collect=lambda **_: ())


def missing() -> object:
    raise CommandMissing(["squeue"], "squeue was not found")


def test_good_and_missing_sources_are_distinguished() -> None:
    readings = (
        SharedReading("jobs", missing, interval_seconds=10),
        SharedReading("nodes", dict, interval_seconds=10),
        SharedReading("unused", missing, interval_seconds=10),
    )
    features = OpenFeatures(
        Running(readings=readings), Running(checks=lambda: [Check(name="layout", is_good=True, message="fine")])
    )

    found = examine(features, [collector("a", "jobs", "nodes"), collector("b", "jobs")])

    checks = {check.name: check for check in found}
    assert {"reading jobs", "reading nodes", "layout"} == checks.keys()
    assert not checks["reading jobs"].is_good
    assert checks["reading nodes"].is_good
    assert "squeue was not found" == checks["reading jobs"].message
    assert "no metrics of a, b: install the Slurm client commands" in checks["reading jobs"].advice


def test_advice_for_truncated_arrays_is_the_setting_of_slurmrestd() -> None:
    def truncated() -> object:
        raise TruncatedArrays("the task lists of 2 job arrays end in '...'")

    features = OpenFeatures(Running(readings=(SharedReading("jobs", truncated, interval_seconds=10),)))

    (check,) = examine(features, [collector("a", "jobs")])

    assert (False, "the task lists of 2 job arrays end in '...'") == (check.is_good, check.message)
    assert "set SLURM_BITSTR_LEN=0 in the environment of slurmrestd" in check.advice


def test_advice_of_a_reading_comes_before_that_for_the_reason_except_for_bugs() -> None:
    def refuse() -> object:
        raise QueryTooLarge("it answered 422: too many samples")

    def break_down() -> object:
        raise ValueError("never seen")

    readings = (
        SharedReading("lustre", refuse, interval_seconds=10, advice="check --prometheus.url"),
        SharedReading("other", refuse, interval_seconds=10),
        SharedReading("traces", break_down, interval_seconds=10, advice="check the path of its socket"),
    )
    collectors = [collector(reading.name, reading.name) for reading in readings]

    lustre, other, traces = examine(OpenFeatures(Running(readings=readings)), collectors)

    assert "no metrics of lustre: check --prometheus.url" == lustre.advice
    assert "no metrics of other: run the command by hand" in other.advice
    assert "no metrics of traces: report it as a bug" in traces.advice


def test_cause_to_begin_with_is_the_one_that_others_follow_from() -> None:
    def failed(name: str) -> Check:
        return Check(name=name, is_good=False, message="", advice="")

    good = Check(name="disk", is_good=True, message="")
    checks = [failed("reading jobs"), good, failed("clock"), failed("munge")]

    assert checks[3] is find_root_cause(checks)
    assert checks[0] is find_root_cause([checks[0], failed("reading nodes")])
    assert find_root_cause([good, failed("munge")]) is None


def test_what_is_good_and_has_advice_or_was_not_checked_is_a_note() -> None:
    def status(advice: str = "", *, is_good: bool = True, is_note: bool = False) -> str:
        return Check(name="a", is_good=is_good, message="", advice=advice, is_note=is_note).status

    assert ["ok", "note", "note", "failed"] == [
        status(), status("do"), status(is_note=True), status("do", is_good=False)
    ]  # fmt: skip
