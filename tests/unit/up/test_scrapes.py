# SPDX-License-Identifier: Apache-2.0
"""Check that collectors are recorded, and that a failing source costs its own samples only."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from slurmscope.core.errors import SourceError
from slurmscope.core.settings import setting
from slurmscope.exporter.collector import Collector, Role
from slurmscope.exporter.feature import OpenFeatures, Running
from slurmscope.exporter.page import EnabledCollector
from slurmscope.exporter.reading import SharedReading
from slurmscope.metrics.family import Family, Labels, gauge
from slurmscope.recorder.recorder import Recorder
from slurmscope.up.up import OwnCollectors
from tests.fakes.exporters import open_readings

WANTED = gauge("slurm_nodes", "Nodes.")
OTHER = gauge("slurm_other", "Something else.")
JOBS = gauge("slurm_jobs", "Jobs by state.", "state")


@dataclass
class Kept(Recorder):
    """Keep what is recorded."""

    families: list[tuple[float, str, dict[Labels, object]]] = field(default_factory=list)

    def record_families(self, at_seconds: float, families: Iterable[Family]) -> None:
        self.families += [(at_seconds, family.metric.name, dict(family.samples)) for family in families]


@dataclass(frozen=True)
class NoOptions:
    """Have nothing to set."""

    unused: bool = setting(False, "")


def collector(name: str, *metrics: object, needs: str) -> EnabledCollector:
    made = tuple(metric for metric in (WANTED, OTHER, JOBS) if metric in metrics)

    def collect(options: object, **readings: object) -> Iterator[Family]:
        return (Family(metric, {("PENDING",): 7.0} if metric is JOBS else {(): 1.0}) for metric in made)

    made_collector = Collector(
        name=name, role=Role.CLUSTER, help="", needs=(needs,), metrics=made, collect=collect, options=NoOptions
    )
    return EnabledCollector(collector=made_collector, options=NoOptions())


def fail() -> object:
    raise SourceError("away")


def make(*collectors: EnabledCollector, closed: list[bool] | None = None) -> OwnCollectors:
    readings = OpenFeatures(
        Running(
            readings=(
                SharedReading("good", lambda: 1, interval_seconds=0),
                SharedReading("bad", fail, interval_seconds=0),
            ),
            close=lambda: (closed if closed is not None else []).append(True),
        )
    )
    return OwnCollectors(readings, collectors, metrics={"slurm_nodes", "slurm_jobs"}, wall_clock=lambda: 42.0)


def test_only_recorded_metrics_are_collected() -> None:
    asked: list[str] = []
    readings = open_readings(
        *(SharedReading(name, partial(asked.append, name), interval_seconds=0) for name in ("wanted", "other"))
    )
    collectors = (collector("a", WANTED, OTHER, needs="wanted"), collector("b", OTHER, needs="other"))
    kept = Kept()
    OwnCollectors(readings, collectors, metrics={"slurm_nodes"}, wall_clock=lambda: 42.0).record(
        kept, deadline_seconds=5.0
    )
    assert ["wanted"] == asked
    assert [(42.0, "slurm_nodes", {(): 1.0})] == kept.families


def test_state_without_jobs_is_recorded_as_zero() -> None:
    kept = Kept()
    make(collector("jobs", JOBS, needs="good")).record(kept, deadline_seconds=5.0)
    assert [(42.0, "slurm_jobs", {("RUNNING",): 0.0, ("PENDING",): 7.0})] == kept.families


def test_queue_that_cannot_be_read_is_not_recorded_as_zeros() -> None:
    kept = Kept()
    make(collector("jobs", JOBS, needs="bad")).record(kept, deadline_seconds=5.0)
    assert [] == kept.families


def test_a_reading_that_fails_leaves_a_gap() -> None:
    kept = Kept()
    make(collector("a", WANTED, needs="bad")).record(kept, deadline_seconds=5.0)
    assert [] == kept.families


def test_closing_ends_what_runs_in_the_background() -> None:
    closed: list[bool] = []
    make(closed=closed).close()
    assert [True] == closed
