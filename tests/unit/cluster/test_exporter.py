# SPDX-License-Identifier: Apache-2.0
"""Check that collectors, intervals and older metric names refer to readings of the cluster exporter that exist."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from slurmscope.cli.roles import all_collectors, feature_metrics
from slurmscope.exporter.collector import Role
from slurmscope.exporter.feature import OpenFeatures
from slurmscope.http.server.app import Audience
from tests.fakes.exporters import load_role, open_role
from tests.fakes.slurm_scripts import make_commands

USER_LABELS = {"user", "username", "jobid", "account"}


def test_every_default_collector_has_its_readings() -> None:
    open_role("cluster").require(collector for collector in all_collectors(Role.CLUSTER) if collector.is_default)


@pytest.mark.parametrize(
    ("flags", "seconds"),
    [
        ({}, {"jobs": 10, "diag": 30, "completions": 60, "licenses": 180, "limits": 300, "shares": 600, "config": 600}),
        ({"slurm.slow-interval": "10m"}, {"jobs": 10, "diag": 60, "licenses": 360, "limits": 600, "shares": 1200}),
        ({"slurm.slow-interval": "10s"}, {"jobs": 10, "diag": 10, "licenses": 10, "limits": 10, "shares": 20}),
        ({"slurm.poll-limit": "1h"}, {"jobs": 3600, "shares": 3600, "traces": 5}),
    ],
)
def test_slow_readings_keep_their_proportions_and_none_is_faster_than_the_limit(
    flags: dict[str, object], seconds: dict[str, float]
) -> None:
    readings = open_role("cluster", load_role("cluster", flags)).readings

    assert seconds == {name: readings[name].interval_seconds for name in seconds}


def test_values_are_kept_for_three_intervals_and_targets_forever() -> None:
    readings = open_role("cluster").readings

    assert (300, 900, 1800) == tuple(readings[name].keep_seconds for name in ("jobs", "limits", "shares"))
    assert float("inf") == readings["node_targets"].keep_seconds


def test_older_names_are_those_of_the_replaced_exporter() -> None:
    older = {metric.name for metric in feature_metrics(Role.CLUSTER) if metric.is_compat}

    assert {
        "job_scrape_errors", "slurm_account_collect_error", "slurm_account_scrape_error", "slurm_diag_scrape_duration",
        "slurm_diag_scrape_error", "slurm_fairshare_collect_error", "slurm_fairshare_scrape_duration",
        "slurm_job_scrape_duration", "slurm_job_scrape_error", "slurm_lic_scrape_error", "slurm_limit_scrape_duration",
        "slurm_node_scrape_duration", "slurm_node_scrape_error",
    } == older  # fmt: skip


def open_readings(folder: Path, scontrol: str, **settings: str) -> OpenFeatures:
    """Return the readings of a cluster whose scontrol runs a script."""
    bin_path = str(make_commands(folder / "bin", {"scontrol": scontrol}))
    flags = {f"slurm.{name.replace('_', '-')}": value for name, value in settings.items()}
    config = load_role("cluster", {"slurm.bin-path": bin_path, **flags})
    return open_role("cluster", config)


@pytest.mark.parametrize("scontrol", ["exit 1", "echo garbage", "sleep 60"], ids=["fails", "is garbled", "is slow"])
def test_unknown_private_data_hides_all_that_it_could_hide(tmp_path: Path, scontrol: str) -> None:
    readings = open_readings(tmp_path, scontrol, timeout="1s")

    assert USER_LABELS <= readings.hidden_labels(time.monotonic() + 0.2, Audience.ADMITTED)


def test_known_private_data_hides_only_what_it_names(tmp_path: Path) -> None:
    readings = open_readings(tmp_path, "printf 'PrivateData = accounts\n'")

    assert {"account"} == readings.hidden_labels(time.monotonic() + 30, Audience.ADMITTED)


def test_ignored_private_data_hides_nothing_and_is_not_read(tmp_path: Path) -> None:
    readings = open_readings(tmp_path, "exit 1", private_data="ignore")

    assert not readings.hidden_labels(time.monotonic() + 30, Audience.ADMITTED)
    assert 0 == readings.readings["config"].attempts


def test_private_data_is_known_when_other_sources_use_up_the_deadline(tmp_path: Path) -> None:
    script = "case $1 in ping) sleep 60;; *) printf 'PrivateData = none\n';; esac"
    readings = open_readings(tmp_path, script, timeout="3s")
    until = time.monotonic() + 2

    readings.request(("controllers",))

    assert not readings.hidden_labels(until, Audience.ADMITTED)
    assert readings.read(("controllers",), until)["controllers"].error


def test_private_data_is_read_again_soon_after_a_failure(tmp_path: Path) -> None:
    script = f"[ -e {tmp_path}/up ] && printf 'PrivateData = none\n'"
    readings = open_readings(tmp_path, script, poll_limit="0.1s")
    assert readings.hidden_labels(time.monotonic() + 30, Audience.ADMITTED)

    (tmp_path / "up").touch()
    give_up = time.monotonic() + 30
    while readings.hidden_labels(time.monotonic() + 5, Audience.ADMITTED) and time.monotonic() < give_up:
        time.sleep(0.05)

    assert not readings.hidden_labels(time.monotonic() + 5, Audience.ADMITTED)
