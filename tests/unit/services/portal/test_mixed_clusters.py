# SPDX-License-Identifier: Apache-2.0
"""A portal of several clusters whose series cannot be distinguished says so, in its log and on every page."""

from __future__ import annotations

import urllib.request
from pathlib import Path

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


def test_portal_warns_of_clusters_that_it_cannot_tell_apart(tmp_path: Path) -> None:
    with running("portal", *flags_of(tmp_path), "--accounting.clusters", "all", wait_for="msg=listening") as portal:
        until(lambda: any(MIXED in line for line in portal.log))

        def page() -> str:
            with urllib.request.urlopen(portal.addresses[0], timeout=PATIENCE_SECONDS) as answer:
                return str(answer.read().decode())

        until(lambda: MIXED in page())
        assert "prometheus.cluster-label" in page()


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
