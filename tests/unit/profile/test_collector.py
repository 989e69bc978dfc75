# SPDX-License-Identifier: Apache-2.0
"""Profiled steps become series."""

from __future__ import annotations

from slurmscope.exporter.collector import NoOptions
from slurmscope.metrics.write import Format, write
from slurmscope.profile.events import Profile, ProfiledStep, StepKey
from slurmscope.profile.feature import COLLECTOR, collect

PROFILE = Profile(
    steps=(
        ProfiledStep(
            key=StepKey(12, "0", "n1"),
            last_sample_seconds=1700000012,
            measured={
                ("task_cpu_seconds", "0"): 30.5,
                ("task_cpu_seconds", "1"): 31.5,
                ("task_resident_bytes", "1"): 2048.0,
                ("power_watts", "node"): 400.0,
                ("network_receive_bytes", ""): 7.0,
            },
        ),
        ProfiledStep(key=StepKey(12, "batch", "n1")),
    ),
    events={"sample": 5},
    rejected={"sender": 1},
    lost=2,
    push_errors=3,
)


def page(profile: Profile) -> list[str]:
    """Return the samples of a page."""
    text = b"".join(write(collect(NoOptions(), profile=profile), Format.TEXT)).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_steps_and_tasks_are_labelled() -> None:
    step = 'slurm_job="12",slurm_node="n1",step="0"'

    assert [
        f'slurm_profile_task_cpu_seconds_total{{{step},task="0"}} 30.5',
        f'slurm_profile_task_cpu_seconds_total{{{step},task="1"}} 31.5',
        f'slurm_profile_task_resident_bytes{{{step},task="1"}} 2048.0',
        f'slurm_profile_power_watts{{{step},sensor="node"}} 400.0',
        f"slurm_profile_network_receive_bytes_total{{{step}}} 7.0",
        f"slurm_profile_last_sample_timestamp_seconds{{{step}}} 1700000012",
        'slurmscope_profile_events_total{event="sample"} 5',
        'slurmscope_profile_rejected_total{reason="sender"} 1',
        "slurmscope_profile_lost_total 2",
        "slurmscope_profile_push_errors_total 3",
    ] == page(PROFILE)


def test_agent_that_receives_nothing_has_no_series() -> None:
    assert [] == page(Profile())


def test_every_family_is_declared_once() -> None:
    families = [family.metric for family in collect(NoOptions(), profile=PROFILE)]

    assert list(COLLECTOR.metrics) == families
