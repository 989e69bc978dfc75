# SPDX-License-Identifier: Apache-2.0
"""Check the metrics of recording."""

from collections import Counter
from dataclasses import dataclass, field

from slurmscope.recorder.recorder import Recorder
from slurmscope.up.up import RECORDING_METRICS, recording_families


@dataclass
class Recorded(Recorder):
    """Have recorded something."""

    recorded: int = 12
    dropped: Counter[str] = field(default_factory=lambda: Counter(late=3))


def test_every_reason_and_outcome_is_reported_from_the_start() -> None:
    told = {family.metric: dict(family.samples) for family in recording_families(Recorded(), {"failed": 2})}
    assert set(RECORDING_METRICS) == told.keys()
    samples, dropped, scrapes = (told[metric] for metric in RECORDING_METRICS)
    assert {(): 12.0} == samples
    assert {("late",): 3.0, ("not_finite",): 0.0, ("too_many",): 0.0, ("too_long",): 0.0, ("foreign",): 0.0} == dropped
    assert {("good",): 0.0, ("failed",): 2.0, ("skipped",): 0.0} == scrapes


def test_scrapes_are_not_reported_without_targets() -> None:
    assert 2 == len(list(recording_families(Recorded())))
