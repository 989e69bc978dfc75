# SPDX-License-Identifier: Apache-2.0
"""Check that collectors are recorded, and that a failing source costs its own samples only."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from slurmscope.errors import SourceError
from slurmscope.metrics.collector import Collector, Role
from slurmscope.metrics.family import Family, gauge
from slurmscope.services.collecting import EnabledCollector
from slurmscope.services.readings import SharedReading
from slurmscope.services.recording import OwnCollectors
from slurmscope.services.wiring import Wiring
from slurmscope.settings import setting

WANTED = gauge("slurm_nodes", "Nodes.")
OTHER = gauge("slurm_other", "Something else.")


@dataclass
class Kept:
    """Keep what is recorded."""

    families: list[tuple[float, str, str]] = field(default_factory=list)

    def record_families(self, at_seconds: float, families: Iterable[Family], *, node: str = "") -> None:
        self.families += [(at_seconds, family.metric.name, node) for family in families]


@dataclass(frozen=True)
class NoOptions:
    """Have nothing to set."""

    unused: bool = setting(False, help="")


def collector(name: str, *metrics: object, needs: str) -> EnabledCollector:
    made = tuple(metric for metric in (WANTED, OTHER) if metric in metrics)

    def collect(options: object, **readings: object) -> Iterator[Family]:
        return (Family(metric, {(): 1.0}) for metric in made)

    made_collector = Collector(
        name=name, role=Role.CLUSTER, help="", needs=(needs,), metrics=made, collect=collect, options=NoOptions
    )
    return EnabledCollector(collector=made_collector, options=NoOptions())


def fail() -> object:
    raise SourceError("away")


def make(*collectors: EnabledCollector, closed: list[bool] | None = None) -> OwnCollectors:
    readings = {
        "good": SharedReading("good", lambda: 1, interval_seconds=0),
        "bad": SharedReading("bad", fail, interval_seconds=0),
    }
    wiring = Wiring(readings=readings, close=lambda: (closed if closed is not None else []).append(True))
    return OwnCollectors(wiring, collectors, wanted={"slurm_nodes"}, node="n1", wall_clock=lambda: 42.0)


def test_only_what_is_worth_recording_is_asked_for() -> None:
    own = make(collector("a", WANTED, OTHER, needs="good"), collector("b", OTHER, needs="bad"))
    assert ("a",) == own.names
    kept = Kept()
    own.record(kept, deadline_seconds=5.0)
    assert [(42.0, "slurm_nodes", "n1")] == kept.families


def test_a_reading_that_fails_leaves_a_gap() -> None:
    kept = Kept()
    make(collector("a", WANTED, needs="bad")).record(kept, deadline_seconds=5.0)
    assert [] == kept.families


def test_closing_ends_what_runs_in_the_background() -> None:
    closed: list[bool] = []
    make(closed=closed).close()
    assert [True] == closed
