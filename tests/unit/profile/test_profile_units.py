# SPDX-License-Identifier: Apache-2.0
"""Slurm's own samples become base units; what cannot be true is left out. Expected numbers are worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.profile.events import ProfileSeries, Sample, SampledField
from slurmscope.profile.feature import NODE_WIDE, TASKS
from slurmscope.profile.steps import QUANTITIES, add_up, in_slurms_unit, measure


def sample(series: ProfileSeries = ProfileSeries.TASKS, /, **fields: tuple[float, float]) -> Sample:
    """Return a sample, of task 3 if of a task, with a value and a sum for each field."""
    known = {name: SampledField(*both) for name, both in fields.items()}
    return Sample(series=series, task="3" if series is ProfileSeries.TASKS else "", fields=known)


def test_task_is_measured_in_base_units() -> None:
    given_fields = sample(
        CPUTime=(1.5, 30.0),
        CPUUtilization=(150.0, 900.0),
        RSS=(2048.0, 9999.0),
        VMSize=(4096.0, 9999.0),
        Pages=(7.0, 9999.0),
        ReadMB=(0.5, 2.0),
        WriteMB=(0.0, 0.25),
    )

    assert (
        {
            ("task_cpu_seconds", "3"): 30.0,
            ("task_busy_cores", "3"): 1.5,
            ("task_resident_bytes", "3"): 2097152.0,
            ("task_virtual_bytes", "3"): 4194304.0,
            ("task_major_faults", "3"): 7.0,
            ("task_read_bytes", "3"): 2097152.0,
            ("task_write_bytes", "3"): 262144.0,
        },
        0,
    ) == measure(given_fields)


@pytest.mark.parametrize(
    ("raw", "hertz"),
    [(2445, 2.445e9), (2_445_000, 2.445e9), (99_999, 9.9999e10), (100_000, 1e8)],
)
def test_frequency_is_in_megahertz_or_kilohertz(raw: float, hertz: float) -> None:
    measured, wrong = measure(sample(CPUFrequency=(raw, raw)))

    assert pytest.approx(hertz) == measured["task_cpu_frequency_hertz", "3"]
    assert 0 == wrong


def test_frequency_that_slurm_does_not_know_is_left_out() -> None:
    assert ({}, 0) == measure(sample(CPUFrequency=(0, 0)))


@pytest.mark.parametrize(
    ("sampler", "received"),
    [("acct_gather_interconnect/ofed", 3 * 1048576.0), ("acct_gather_interconnect/sysfs", 3 * 65536.0)],
)
def test_network_plugin_with_wrong_megabytes_is_corrected(sampler: str, received: float) -> None:
    measured, _ = measure(replace(sample(ProfileSeries.NETWORK, InMB=(1, 3), PacketsIn=(10, 30)), sampler=sampler))

    assert {("network_receive_bytes", ""): received, ("network_receive_packets", ""): 30.0} == measured


def test_file_system_is_measured() -> None:
    measured, _ = measure(sample(ProfileSeries.FILESYSTEM, Reads=(1, 5), ReadMB=(1, 2), Writes=(0, 6), WriteMB=(0, 3)))

    assert {
        ("filesystem_reads", ""): 5.0,
        ("filesystem_read_bytes", ""): 2097152.0,
        ("filesystem_writes", ""): 6.0,
        ("filesystem_write_bytes", ""): 3145728.0,
    } == measured


def test_each_power_sensor_has_its_name() -> None:
    measured, _ = measure(sample(ProfileSeries.ENERGY, Power=(400, 4000), GPU0Power=(90, 900), Temperature=(50, 500)))

    assert {("power_watts", "node"): 400.0, ("power_watts", "GPU0"): 90.0} == measured


def test_gpu_fields_are_used_only_if_slurm_accounts_gpus() -> None:
    fields = {"GPUMemMB": (2.0, 2.0), "GPUUtilization": (150.0, 150.0)}

    assert ({}, 0) == measure(sample(**fields))
    assert {("task_gpu_memory_bytes", "3"): 2097152.0, ("task_gpu_utilization_ratio", "3"): 1.5} == measure(
        replace(sample(**fields), has_gpus=True)
    )[0]


@pytest.mark.parametrize(
    ("name", "value", "total"),
    [
        ("CPUTime", math.inf, 1.0),
        ("CPUTime", 1.0, math.nan),
        ("CPUTime", -1.0, 1.0),
        ("CPUTime", 1.0, 1e13),
        ("RSS", 2.0**41, 0.0),  # 2 PiB
        ("GPUMemMB", 93870543587936.0, 0.0),  # seen on Slurm 26.05 without GPUs
        ("GPUUtilization", 4.6e-310, 0.0),  # seen as well
        ("GPUUtilization", 1e300, 0.0),
        ("CPUFrequency", 2.0**63, 0.0),
    ],
)
def test_value_that_cannot_be_true_costs_only_itself(name: str, value: float, total: float) -> None:
    both = replace(sample(**{name: (value, total), "Pages": (1.0, 1.0)}), has_gpus=True)

    assert ({("task_major_faults", "3"): 1.0}, 1) == measure(both)
    assert in_slurms_unit(both, name) is None
    assert 1.0 == in_slurms_unit(both, "Pages")


def test_unknown_field_is_left_out() -> None:
    unknown = sample(Novelty=(1.0, 1.0))

    assert ({}, 0) == measure(unknown)
    assert in_slurms_unit(unknown, "Novelty") is None


def test_every_quantity_has_a_metric() -> None:
    assert {quantity.name for quantity in QUANTITIES.values()} == {*TASKS, *NODE_WIDE}


@given(st.sampled_from(sorted(QUANTITIES, key=str)), st.floats(), st.floats(), st.booleans())
def test_every_measured_number_is_finite_and_positive(
    field: tuple[ProfileSeries, str], value: float, total: float, has_gpus: bool
) -> None:
    measured, wrong = measure(replace(sample(field[0], **{field[1]: (value, total)}), has_gpus=has_gpus))

    assert len(measured) + wrong <= 1
    assert all(math.isfinite(number) and number >= 0 for number in measured.values())


def test_differences_are_added_up_field_by_field() -> None:
    first = add_up(sample(CPUTime=(1.5, 1.5), RSS=(8.0, 8.0), Novelty=(1.0, 1.0)), None)
    second = add_up(sample(CPUTime=(2.0, 2.0), Novelty=(3.0, 3.0)), first)

    expected = {"CPUTime": SampledField(2.0, 3.5), "RSS": SampledField(8.0, 8.0), "Novelty": SampledField(3.0, 4.0)}
    assert expected == second.fields


@pytest.mark.parametrize("value", [math.inf, -1.0, 1e300, 1e-300])
def test_difference_that_cannot_be_true_is_not_added(value: float) -> None:
    wrong = add_up(sample(CPUTime=(value, value)), sample(CPUTime=(1.0, 5.0)))

    assert ({}, 1) == measure(wrong)
    assert {("task_cpu_seconds", "3"): 7.0} == measure(add_up(sample(CPUTime=(2.0, 2.0)), wrong))[0]


@given(st.lists(st.floats(), max_size=20))
def test_sum_of_any_differences_never_falls(values: list[float]) -> None:
    added, before = None, 0.0
    for value in values:
        added = add_up(sample(CPUTime=(value, value)), added)
        assert before <= added.fields["CPUTime"].total < math.inf
        before = added.fields["CPUTime"].total
