# SPDX-License-Identifier: Apache-2.0
"""Check that collectors, intervals and older metric names refer to readings of the cluster exporter that exist."""

from __future__ import annotations

import time
from dataclasses import fields
from pathlib import Path

import pytest

from slurmscope.cluster.exporter import DURATIONS, ERRORS, ClusterReadings, IntervalSettings, cluster_sections
from slurmscope.core.config import load
from slurmscope.exporter.collector import Role, all_collectors
from tests.fakes.slurm_scripts import make_commands

USER_LABELS = {"user", "username", "jobid", "account"}


@pytest.fixture
def readings() -> ClusterReadings:
    """Return the readings with default settings."""
    return ClusterReadings(load(cluster_sections(), flags={}, environment={}), {})


def test_every_collector_has_its_readings(readings: ClusterReadings) -> None:
    readings.require(all_collectors(Role.CLUSTER))


def test_every_reading_has_an_interval_and_every_interval_a_reading(readings: ClusterReadings) -> None:
    assert {field.name for field in fields(IntervalSettings)} == readings.readings.keys()


def test_older_names_belong_to_readings(readings: ClusterReadings) -> None:
    assert {*DURATIONS, *ERRORS} <= readings.readings.keys()


def open_readings(folder: Path, scontrol: str, **settings: str) -> ClusterReadings:
    """Return the readings of a cluster whose scontrol runs a script."""
    bin_path = str(make_commands(folder / "bin", {"scontrol": scontrol}))
    flags = {f"slurm.{name.replace('_', '-')}": value for name, value in settings.items()}
    config = load(cluster_sections(), flags={"slurm.bin-path": bin_path, **flags}, environment={})
    return ClusterReadings(config, {})


@pytest.mark.parametrize("scontrol", ["exit 1", "echo garbage", "sleep 60"], ids=["fails", "is garbled", "is slow"])
def test_unknown_private_data_hides_all_that_it_could_hide(tmp_path: Path, scontrol: str) -> None:
    readings = open_readings(tmp_path, scontrol, timeout="1s")

    assert USER_LABELS <= readings.hidden_labels(time.monotonic() + 0.2)


def test_known_private_data_hides_only_what_it_names(tmp_path: Path) -> None:
    readings = open_readings(tmp_path, "printf 'PrivateData = accounts\n'")

    assert {"account"} == readings.hidden_labels(time.monotonic() + 30)


def test_ignored_private_data_hides_nothing_and_is_not_read(tmp_path: Path) -> None:
    readings = open_readings(tmp_path, "exit 1", private_data="ignore")

    assert not readings.hidden_labels(time.monotonic() + 30)
    assert 0 == readings.readings["config"].attempts


def test_private_data_is_known_when_other_sources_use_up_the_deadline(tmp_path: Path) -> None:
    script = "case $1 in ping) sleep 60;; *) printf 'PrivateData = none\n';; esac"
    readings = open_readings(tmp_path, script, timeout="3s")
    until = time.monotonic() + 2

    readings.read(("controllers",), until)

    assert not readings.hidden_labels(until)


def test_private_data_is_read_again_soon_after_a_failure(tmp_path: Path) -> None:
    script = f"[ -e {tmp_path}/up ] && printf 'PrivateData = none\n'"
    readings = open_readings(tmp_path, script, poll_limit="0.1s")
    assert readings.hidden_labels(time.monotonic() + 30)

    (tmp_path / "up").touch()
    give_up = time.monotonic() + 30
    while readings.hidden_labels(time.monotonic() + 5) and time.monotonic() < give_up:
        time.sleep(0.05)

    assert not readings.hidden_labels(time.monotonic() + 5)
