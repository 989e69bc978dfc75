# SPDX-License-Identifier: Apache-2.0
"""The page of a profiled job has Slurm's names and units, and no impossible values."""

from __future__ import annotations

from slurmscope.metrics.family import Samples
from slurmscope.profile.events import ProfiledStep, ProfileSeries, Sample, SampledField, StepKey
from slurmscope.profile.service import pushed_families


def page(*samples: Sample) -> dict[str, Samples]:
    """Return the samples of the page of one step, by name."""
    step = ProfiledStep(
        key=StepKey(12, "0", "n1"), samples={(sample.series, sample.task): sample for sample in samples}
    )
    return {family.metric.name: family.samples for family in pushed_families([step], "h")}


def test_file_system_and_task_do_not_overwrite_each_other() -> None:
    task = Sample(series=ProfileSeries.TASKS, task="1", fields={"ReadMB": SampledField(1.5, 9.0)})
    lustre = Sample(series=ProfileSeries.FILESYSTEM, fields={"ReadMB": SampledField(2.5, 9.0)})

    assert {("0", "1"): 1.5, ("0", ""): 2.5} == page(task, lustre)["ReadMB"]


def test_wrong_megabytes_are_corrected() -> None:
    """16 of sysfs are 1."""
    fields = {"InMB": SampledField(16.0, 99.0), "PacketsIn": SampledField(5.0, 99.0)}
    network = Sample(series=ProfileSeries.NETWORK, sampler="acct_gather_interconnect/sysfs", fields=fields)

    assert ({("0", ""): 1.0}, {("0", ""): 5.0}) == (page(network)["InMB"], page(network)["PacketsIn"])


def test_impossible_values_and_odd_names_are_left_out() -> None:
    fields = {name: SampledField(5.0, 5.0) for name in ("Power", "GPU0Power", "CPU-1Power", "1Power")}
    energy = Sample(series=ProfileSeries.ENERGY, fields=fields)
    task = Sample(series=ProfileSeries.TASKS, task="1", fields={"CPUTime": SampledField(float("inf"), 1.0)})

    assert {"Power", "GPU0Power", "slurmscope_profile_pushed"} == page(energy, task).keys()
