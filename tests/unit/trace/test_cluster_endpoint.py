# SPDX-License-Identifier: Apache-2.0
"""Check the wiring of tracing in the cluster exporter: settings, privileges, page and series."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from slurmscope.core.config import Config
from slurmscope.core.errors import ConfigError
from slurmscope.exporter.feature import OpenFeatures
from slurmscope.http.server.address import parse_networks
from slurmscope.http.server.request import HttpRequest
from slurmscope.trace.settings import NodeTraceSettings, TraceLimits, TraceSettings, limits_of, parse_rate
from slurmscope.trace.tokens import rotate_keys
from tests.fakes.exporters import load_role, open_role
from tests.fakes.slurm_scripts import make_commands

CONFIG = "PrivateData             = none\nSlurmUser               = root(0)"
ROW = r"4711\0371000\037ada\037physics\037RUNNING\037n1\0372\037cpu=2,mem=1G,node=1"
BODY = b'{"job_id": 4711, "pid": 7, "mem": 5, "hostname": "n1"}'


def configure(folder: Path, settings: dict[str, object] | None = None) -> Config:
    scripts = {
        "scontrol": f"cat <<'END'\n{CONFIG}\nEND",
        "squeue": f"printf '{ROW}\\n'",
        "sinfo": r"printf 'n1\037n1\n'",
    }
    flags: dict[str, object] = {
        "slurm.bin-path": str(make_commands(folder / "bin", scripts)),
        "trace.enabled": True,
        "trace.plain-networks": ("127.0.0.0/8",),
        **(settings or {}),
    }
    return load_role("cluster", flags)


def post(readings: OpenFeatures, body: bytes = BODY) -> int:
    headers = {"content-type": "application/json"}
    request = HttpRequest(method="POST", path="/trace", headers=headers, peer="127.0.0.1", body=body)
    return readings.routes()["/trace"].answer(request).status


def test_sample_becomes_a_series_of_the_next_page(tmp_path: Path) -> None:
    readings = open_role("cluster", configure(tmp_path))
    assert not readings.is_receiving()
    assert 204 == post(readings)
    traces = readings.read(("traces",), time.monotonic() + 30)["traces"].value
    assert ["n1"] == [process.host for process in traces.processes]  # type: ignore[attr-defined]
    assert traces.has_allocations  # type: ignore[attr-defined]
    assert 404 == post(readings, BODY.replace(b"4711", b"4712"))


def test_process_is_back_with_its_next_sample_after_a_reload(tmp_path: Path) -> None:
    config = configure(tmp_path)

    def count(readings: OpenFeatures) -> int:
        traces = readings.read(("traces",), time.monotonic() + 30)["traces"].value
        return len(traces.processes)  # type: ignore[attr-defined]

    before = open_role("cluster", config)
    assert (204, 1) == (post(before), count(before))
    assert 0 == count(open_role("cluster", config))
    after = open_role("cluster", config)
    assert (204, 1) == (post(after), count(after))


def test_allocations_are_left_to_the_collector_of_all_jobs(tmp_path: Path) -> None:
    readings = open_role("cluster", configure(tmp_path, {"collector.job_info.enabled": True}))
    traces = readings.read(("traces",), time.monotonic() + 30)["traces"].value
    assert not traces.has_allocations  # type: ignore[attr-defined]


def test_limits_of_jobs_and_users_follow_from_that_of_all_processes() -> None:
    assert TraceLimits() == limits_of(TraceSettings())
    assert TraceLimits(
        rate=5.0, processes=100_000, processes_per_job=4_000, processes_per_user=20_000, posts_per_job=200,
        posts_per_user=2_000,
    ) == limits_of(NodeTraceSettings(rate=5.0, processes=100_000))  # fmt: skip
    least = limits_of(TraceSettings(processes=1))
    assert (1, 1, 10, 100) == (
        least.processes_per_job, least.processes_per_user, least.posts_per_job, least.posts_per_user
    )  # fmt: skip


def test_tracing_is_off_by_default() -> None:
    assert "/trace" not in open_role("cluster").routes()
    assert not TraceSettings().enabled
    assert () == TraceSettings().plain_networks


def test_key_file_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "trace.key"
    rotate_keys(path)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        open_role("cluster", configure(tmp_path, {"trace.key-file": str(path)}))


def test_paths_of_metrics_and_traces_differ(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="already the path of the metrics"):
        open_role("cluster", configure(tmp_path, {"trace.path": "/metrics"}))


def test_rate_of_zero_is_the_default_as_in_the_older_exporter() -> None:
    assert (10.0, 10.0, 90.0) == (parse_rate("0"), parse_rate("10"), parse_rate("1m30s"))


@pytest.mark.parametrize("text", ["127.0.0.1", "10.0.0.1/8", "network", "10.0.0.0/40"])
def test_network_needs_a_mask_that_fits(text: str) -> None:
    with pytest.raises(ValueError, match=r"127\.0\.0\.0/8"):
        parse_networks(text)
