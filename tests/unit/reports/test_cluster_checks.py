# SPDX-License-Identifier: Apache-2.0
"""Equal job IDs of several clusters are never added up without a word."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from slurmscope.accounting.settings import AccountingSettings
from slurmscope.core.errors import CommandFailed, ConfigError
from slurmscope.http.client.address import parse_address
from slurmscope.prometheus.settings import Matcher, PrometheusSettings
from slurmscope.reports.sources import (
    check_controller,
    find_active_clusters,
    find_mixed_clusters,
    require_cluster_label,
    require_one_cluster,
)

URL = parse_address("http://127.0.0.1:9090")
PLAIN = PrometheusSettings(url=URL)
LABELLED = PrometheusSettings(url=URL, cluster_label="cluster")
MATCHED = PrometheusSettings(url=URL, matchers=(Matcher("cluster", "alpha"),))


@pytest.mark.parametrize(
    ("settings", "read", "archived", "is_mixed"),
    [
        (PLAIN, ["alpha", "beta"], [], True),
        (PLAIN, ["alpha"], ["alpha", "beta"], True),
        (PLAIN, ["alpha"], ["alpha"], False),
        (PLAIN, [], [], False),
        (LABELLED, ["alpha", "beta"], ["alpha", "beta"], False),
        # A portal for each cluster, each with a matcher of its own.
        (MATCHED, ["alpha"], ["alpha", "beta"], False),
        (MATCHED, ["alpha", "beta"], [], True),
        (PrometheusSettings(), ["alpha", "beta"], [], False),
    ],
)
def test_clusters_that_cannot_be_told_apart_are_found(
    settings: PrometheusSettings, read: list[str], archived: list[str], is_mixed: bool
) -> None:
    found = find_mixed_clusters(settings, read, archived)
    assert ("jobs of alpha, beta may have equal IDs" in found, bool(found)) == (is_mixed, is_mixed)


def test_cluster_that_is_no_longer_read_is_not_active() -> None:
    week = 7 * 86400
    checkpoints = {"new": str(week + 1000), "late": "1000", "gone": "999", "odd": "x"}
    assert ("late", "new") == find_active_clusters(checkpoints, week + 1000.0)


def test_several_named_clusters_need_a_label() -> None:
    two = AccountingSettings(clusters=("alpha", "beta"))
    with pytest.raises(ConfigError, match=r"job IDs of alpha, beta repeat.*prometheus\.cluster-label"):
        require_cluster_label(PLAIN, two)
    for settings in (LABELLED, PrometheusSettings()):
        require_cluster_label(settings, two)
    require_cluster_label(PLAIN, AccountingSettings(clusters=("alpha",)))


@pytest.mark.parametrize("clusters", [("alpha", "beta"), ("all",)])
def test_recorder_takes_one_cluster(clusters: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="records the jobs of one cluster"):
        require_one_cluster(AccountingSettings(clusters=clusters))
    require_one_cluster(AccountingSettings(clusters=("alpha",)))
    require_one_cluster(AccountingSettings())


def test_controller_of_another_cluster_is_asked_by_its_name() -> None:
    calls: list[tuple[str, tuple[str, ...]]] = []

    def run(command: str, arguments: Sequence[str]) -> bytes:
        calls.append((command, tuple(arguments)))
        return b"ClusterName             = Beta\nPrivateData             = none\n"

    assert check_controller(run, "beta").is_good
    assert [("scontrol", ("-M", "beta"))] == [(command, arguments[:2]) for command, arguments in calls]


def test_controller_of_a_third_cluster_at_the_address_of_another_is_reported() -> None:
    """As where a host was set up anew: pages read nothing from it."""
    found = check_controller(lambda *_: b"ClusterName = gamma\nPrivateData = none\n", "beta")
    assert (False, "the controller that slurmdbd names for beta is that of gamma") == (found.is_good, found.message)


def test_controller_that_does_not_answer_is_reported_with_advice() -> None:
    def run(_: str, __: Sequence[str]) -> bytes:
        raise CommandFailed("scontrol", "'beta' can't be reached now")

    found = check_controller(run, "beta")

    assert ("controller of beta", False) == (found.name, found.is_good)
    assert "can't be reached now" in found.message
    assert "slurmctld" in found.advice
