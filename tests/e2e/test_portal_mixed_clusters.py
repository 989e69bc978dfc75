# SPDX-License-Identifier: Apache-2.0
"""A portal of several clusters whose series cannot be distinguished says so, in its log and on every page."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

import pytest

from slurmscope.core.errors import CommandTimedOut
from slurmscope.http.client.address import parse_address
from slurmscope.portal.checks import MixedClusters
from slurmscope.prometheus.settings import PrometheusSettings
from tests.fakes.reporting import FakeAccounting
from tests.fakes.reports import make_record
from tests.fakes.slurm_scripts import make_commands
from tests.processes import PATIENCE_SECONDS, running, until

MIXED = "jobs of alpha, beta may have equal IDs"


def flags_of(folder: Path) -> tuple[str, ...]:
    scripts = {"sacctmgr": "case $5 in cluster) printf 'alpha\\nbeta\\n';; esac", "sacct": "exit 1"}
    commands = make_commands(folder / "bin", scripts)
    return (
        "--portal.listen-address", "127.0.0.1:0", "--portal.mode", "local", "--slurm.bin-path", str(commands),
        "--archive.url", f"{folder}/archive.db", "--prometheus.url", "http://127.0.0.1:9",
    )  # fmt: skip


@pytest.mark.parametrize("reporter", ["--reporter", "--no-reporter"])
def test_portal_warns_of_clusters_that_it_cannot_tell_apart(tmp_path: Path, reporter: str) -> None:
    flags = (*flags_of(tmp_path), "--accounting.clusters", "all", reporter)
    with running("portal", *flags, wait_for="msg=listening") as portal:
        until(lambda: any(MIXED in line for line in portal.log))

        def page() -> str:
            with urllib.request.urlopen(portal.addresses[0], timeout=PATIENCE_SECONDS) as answer:
                return str(answer.read().decode())

        until(lambda: MIXED in page())
        assert "prometheus.cluster-label" in page()


def test_clusters_of_the_archive_are_logged_once_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    """Another portal may measure them from a Prometheus of its own."""
    accounting, now = FakeAccounting([make_record(cluster="alpha")]), int(time.time())
    checkpoints = {"alpha": str(now), "gone": str(now - 30 * 86_400)}
    settings = PrometheusSettings(url=parse_address("http://127.0.0.1:9"))
    mixed = MixedClusters(settings, accounting.clusters, lambda: checkpoints)
    mixed.refresh()
    assert [] == caplog.records
    checkpoints["beta"] = str(now)
    for error in (None, None, CommandTimedOut(["sacctmgr"], "was killed")):
        accounting.error = error
        mixed.refresh()

    (record,) = caplog.records
    assert "numbers may be wrong" == record.message
    assert [] == [*mixed.problems()]


def test_portal_with_named_clusters_needs_the_label(tmp_path: Path) -> None:
    named = ("--accounting.clusters", "alpha", "--accounting.clusters", "beta")
    with running("portal", *flags_of(tmp_path), *named, wait_for="prometheus.cluster-label") as portal:
        assert portal.process.wait(PATIENCE_SECONDS)
        assert any("job IDs of alpha, beta repeat" in line for line in portal.log)


def test_new_archive_is_created_also_where_slurm_does_not_answer(tmp_path: Path) -> None:
    flags = ("--portal.listen-address", "127.0.0.1:0", "--portal.mode", "local", "--slurm.bin-path", str(tmp_path))
    # Long before the second round.
    archive = ("--archive.url", f"{tmp_path}/archive.db", "--reporter.interval", "1h")
    with running("portal", *flags, *archive, wait_for="msg=listening"):
        until((tmp_path / "archive.db").exists)
