# SPDX-License-Identifier: Apache-2.0
"""Check that collectors, intervals and older metric names refer to readings of the cluster exporter that exist."""

from __future__ import annotations

from dataclasses import fields

import pytest

from slurmscope.config import load
from slurmscope.metrics.collector import Role
from slurmscope.services.cluster.readings import (
    DURATIONS,
    ERRORS,
    ClusterReadings,
    IntervalSettings,
    cluster_sections,
)
from slurmscope.services.exporter.settings import all_collectors


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
