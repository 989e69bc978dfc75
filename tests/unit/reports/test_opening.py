# SPDX-License-Identifier: Apache-2.0
"""Reports use what slurmscope up records on this host, unless there is a Prometheus."""

from __future__ import annotations

from pathlib import Path

from slurmscope.core.config import Config, load
from slurmscope.jobs.series import NODE_LABEL, Aggregation, JobSpan, SeriesQuery
from slurmscope.reports.settings import command_sections
from slurmscope.reports.sources import open_recorded
from tests.fakes.recorded_samples import CPU, JOB, START, make_recorder, sample


def _config(**flags: object) -> Config:
    return load(command_sections(), flags=flags, environment={})


def test_recorded_samples_are_read_while_another_process_records(tmp_path: Path) -> None:
    wanted = SeriesQuery(metric=CPU, how=Aggregation.TOTAL, by=(NODE_LABEL,), cluster="lab")
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\necho ClusterName = lab; echo PrivateData = none\n")
    scontrol.chmod(0o755)
    with make_recorder(tmp_path) as recorder:
        for index in range(5):
            recorder.record(START + 15 * index, [sample(30.0 * index)])
        file, interval = str(recorder_file(tmp_path)), "15s"
        flags = {"recorder.file": file, "recorder.interval": interval, "slurm.bin-path": str(tmp_path)}
        series = open_recorded(_config(**flags), {})
        assert series is not None
        totals = series.read_totals(wanted, [JobSpan(JOB, START, START + 60)], until=float("inf"))

    # From 0 to 120 s of CPU time in a minute.
    assert [120.0] == list(totals.by_job[JOB].values())


def test_prometheus_comes_first_and_a_missing_file_is_no_error(tmp_path: Path) -> None:
    path = str(recorder_file(tmp_path))
    assert open_recorded(_config(**{"recorder.file": path}), {}) is None

    make_recorder(tmp_path).close()
    assert open_recorded(_config(**{"recorder.file": path}), {}) is not None
    assert open_recorded(_config(**{"recorder.file": path, "prometheus.url": "http://localhost:9090"}), {}) is None


def recorder_file(folder: Path) -> Path:
    """Return the file of the recorder in a folder."""
    return folder / "recorder.db"
