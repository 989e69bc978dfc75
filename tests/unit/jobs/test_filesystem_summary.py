# SPDX-License-Identifier: Apache-2.0
"""The use of file systems is summed over the run of a job."""

from __future__ import annotations

from slurmscope.jobs.findings import judge
from slurmscope.jobs.series import Measured
from slurmscope.jobs.summarize import MAX_FILESYSTEMS
from slurmscope.jobs.summary import FilesystemSummary
from tests.fakes.measured import curve, measure_nodes, summed
from tests.fakes.reports import make_record


def _spikes(offset: float) -> float:
    """Return a rate with a spike, and higher ones at both ends that are extrapolated."""
    return {30.0: 9e6, 90.0: 8e6, 120.0: 4e6, 7200.0: 9e6}.get(offset, 1e6)


def test_short_curve_has_the_highest_of_its_points_as_peak() -> None:
    short = curve(("work",), lambda offset: offset, last=180.0)
    measured = Measured(totals={"filesystem_read": {("work",): 1.0}}, curves={"filesystem_read": (short,)})

    (work,) = summed(make_record(), measured).io.filesystems

    assert 180.0 == work.peak_read_bytes


def test_use_of_file_systems_is_summed_over_the_run() -> None:
    measured = Measured(
        totals={
            "filesystem_read": {("work",): 1e6, ("",): 5.0},
            "filesystem_write": {("work",): 0.0, ("home",): 2e3},
            "filesystem_metadata": {("work",): 150.0, ("home",): 0.5},
        },
        curves={"filesystem_read": (curve(("work",), _spikes),)},
    )

    io = summed(make_record(), measured).io

    assert (
        FilesystemSummary(name="home", write_bytes=7200 * 2e3, metadata_operations=3600.0),
        FilesystemSummary(
            name="work",
            read_bytes=7200 * 1e6,
            write_bytes=0.0,
            metadata_operations=1_080_000.0,
            peak_read_bytes=4e6,
        ),
    ) == io.filesystems
    assert 1_083_600.0 == io.metadata_operations
    assert io.read_bytes is None


def test_metadata_storm_is_found_where_the_file_system_counts_requests() -> None:
    storm = summed(make_record(), Measured(totals={"filesystem_metadata": {("work",): 150.0}}))
    calm = summed(make_record(), Measured(totals={"filesystem_metadata": {("work",): 99.0}}))

    assert ["metadata_storm"] == [found.rule for found in judge(storm) if found.rule == "metadata_storm"]
    assert not [found for found in judge(calm) if found.rule == "metadata_storm"]


def test_file_systems_without_measurements_are_unknown() -> None:
    io = summed(make_record(), measure_nodes({"n1": 1.0})).io

    assert (None, ()) == (io.metadata_operations, io.filesystems)


def test_number_of_file_systems_is_bounded() -> None:
    many: dict[tuple[str, ...], float] = {(f"fs{number:03}",): 1.0 for number in range(100)}

    assert MAX_FILESYSTEMS == len(summed(make_record(), Measured(totals={"filesystem_read": many})).io.filesystems)
