# SPDX-License-Identifier: Apache-2.0
"""The doctor of the portal checks every dependency once, explains what is missing, and changes nothing."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from slurmscope.archive.checkpoints import Checkpoints
from slurmscope.archive.election import Election
from slurmscope.archive.engine import Database
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.check import Check
from slurmscope.core.config import load
from slurmscope.portal.checks import check_progress, examine_portal
from slurmscope.portal.settings import portal_sections
from slurmscope.reporter.admin_comments import CHANGED_CHECKPOINT
from slurmscope.reporter.reporter import CLUSTER_CHECKPOINT
from slurmscope.reporter.retention import ReporterSettings
from slurmscope.reports.sources import open_archive
from tests.contracts.schema_version import set_version
from tests.fakes.prometheus_server import FakePrometheus, failure, vector
from tests.fakes.reports import make_report
from tests.fakes.scripted_server import scripted_server

RHYTHM = ReporterSettings()


def examine(folder: Path, **flags: object) -> dict[str, Check]:
    """Examine a machine whose commands of Slurm are those in the folder."""
    settings: Mapping[str, object] = {
        "slurm.bin-path": str(folder),
        "archive.url": str(folder / "archive.db"),
        **{name.replace("_", "."): value for name, value in flags.items()},
    }
    config = load(tuple(portal_sections()), flags=settings, environment={})
    return {check.name: check for check in examine_portal(config, {})}


def write_command(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_everything_unreachable_is_reported_with_advice(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent" / "archive.db")
    checks = examine(tmp_path, archive_url=absent, prometheus_url="http://127.0.0.1:9")

    assert {"archive", "Slurm commands", "accounting", "coordinators", "time series"} == {
        name for name, check in checks.items() if not check.is_good
    }
    assert all(check.advice for check in checks.values() if not check.is_good)
    assert "127.0.0.1:9" in checks["time series"].message


def test_commands_that_are_missing_are_explained_by_their_folder(tmp_path: Path) -> None:
    checks = examine(tmp_path)

    assert all("--slurm.bin-path" in checks[name].advice for name in ("accounting", "Slurm commands"))


def test_archive_that_the_portal_will_create_is_not_missing(tmp_path: Path) -> None:
    assert examine(tmp_path)["archive"].is_good


def test_folder_that_the_unit_will_make_is_not_missing(tmp_path: Path) -> None:
    # Whether this machine has the folder or not.
    assert examine(tmp_path, archive_url="sqlite:////var/lib/slurmscope/never.db")["archive"].is_good
    assert not examine(tmp_path, archive_url=f"sqlite:///{tmp_path}/missing/never.db")["archive"].is_good


def test_reporter_that_catches_up_is_not_behind(tmp_path: Path) -> None:
    with closing(Database(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db"))) as database:
        checkpoints = Checkpoints(database)
        checkpoints.write_checkpoint(CLUSTER_CHECKPOINT + "lab", "1700000000")
        stop = threading.Event()

        def catch_up() -> None:
            for step in itertools.count(1):
                if stop.wait(0.05):
                    return
                checkpoints.write_checkpoint(CLUSTER_CHECKPOINT + "lab", str(1_700_000_000 + step))

        reporter = threading.Thread(target=catch_up)
        reporter.start()
        try:
            check = examine(tmp_path)["reporter"]
        finally:
            stop.set()
            reporter.join()

    assert (True, "") == (check.is_good, check.advice)
    assert check.message.startswith("catching up: read until ")


def test_measured_node_that_slurm_does_not_know_is_reported(tmp_path: Path) -> None:
    write_command(tmp_path, "sinfo", "printf 'n1\\nn2\\n'")
    write_command(tmp_path, "squeue", "")
    names = vector(({"slurm_node": "n1"}, (1000.0, "1")), ({"slurm_node": "n2.example"}, (1000.0, "1")))
    counts = [vector(({}, (1000.0, "2")))] * 3
    with scripted_server(FakePrometheus([*counts, names]).handle) as url:
        check = examine(tmp_path, prometheus_url=url)["node names"]

    assert (False, "Slurm does not know the measured nodes n2.example") == (check.is_good, check.message)
    assert "--node.name" in check.advice


@pytest.mark.parametrize(
    ("running", "is_good", "words"),
    [
        ("printf '2:59 n1\\n'", True, "no job has run for minutes"),
        ("printf '3:00 n[1-7]\\nodd\\n3:00 n[\\n'", False, "but jobs run on n1, n2, n3, n4, n5 …"),
        ("exit 1", False, "no job is measured now"),
    ],
)
def test_no_measured_job_is_a_fault_if_jobs_run(tmp_path: Path, running: str, is_good: bool, words: str) -> None:
    write_command(tmp_path, "sinfo", "echo n1")
    write_command(tmp_path, "squeue", running)
    with scripted_server(FakePrometheus([vector()]).handle) as url:
        check = examine(tmp_path, prometheus_url=url)["node agents"]

    assert is_good == check.is_good
    assert words in check.message


def test_archive_is_not_created(tmp_path: Path) -> None:
    examine(tmp_path)

    assert [] == list(tmp_path.iterdir())


def test_archive_of_another_release_is_reported(tmp_path: Path) -> None:
    with closing(open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db"))) as archive:
        archive.save([make_report()])
        set_version(archive, 99)
    before = (tmp_path / "archive.db").read_bytes()

    check = examine(tmp_path)["archive"]

    assert not check.is_good
    assert "schema 99, and this release supports only schema 1" in check.message
    assert "docs/portal.md" in check.advice
    assert before == (tmp_path / "archive.db").read_bytes()


def test_unreachable_archive_has_one_line_with_all_its_hosts(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as one, closing(socket.create_server(("127.0.0.1", 0))) as two:
        ports = [server.getsockname()[1] for server in (one, two)]
    url = f"postgresql://u@127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/d"
    config = load(
        tuple(portal_sections()),
        flags={"slurm.bin-path": str(tmp_path), "archive.url": url},
        environment={},
    )

    (check,) = (check for check in examine_portal(config, {}) if check.name == "archive")

    assert not check.is_good
    assert url in check.message
    assert all(f"port {port} failed: Connection refused" in check.message for port in ports)


def test_commands_that_answer_are_good(tmp_path: Path) -> None:
    write_command(tmp_path, "sacct", "exit 0")
    write_command(tmp_path, "sacctmgr", "case $2 in configuration) echo 'PrivateData = none';; esac")

    checks = examine(tmp_path)

    assert checks["coordinators"].is_good
    assert (True, "0 jobs ended in the last six hours") == (
        checks["accounting"].is_good, checks["accounting"].message,
    )  # fmt: skip


def test_clusters_that_cannot_be_listed_are_reported(tmp_path: Path) -> None:
    write_command(tmp_path, "sacct", "exit 0")
    write_command(tmp_path, "sacctmgr", "case $2 in configuration) echo 'PrivateData = none';; *) exit 1;; esac")

    check = examine(tmp_path, accounting_clusters="all")["accounting"]

    assert not check.is_good
    assert "sacctmgr" in check.message


def test_clusters_without_a_label_are_reported_before_the_first_start(tmp_path: Path) -> None:
    checks = examine(tmp_path, accounting_clusters=("alpha", "beta"), prometheus_url="http://127.0.0.1:9")

    assert not checks["clusters"].is_good


def test_archive_check_shows_the_progress_of_the_reporter(tmp_path: Path) -> None:
    with closing(Database(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db"))) as database:
        Checkpoints(database).write_checkpoint(CLUSTER_CHECKPOINT + "lab", "1700000000")

    checks = examine(tmp_path)

    assert (True, "sqlite answers") == (checks["archive"].is_good, checks["archive"].message)
    assert not checks["reporter"].is_good
    assert checks["reporter"].message.startswith("jobs that ended before 2023-11-14 22:13:20 UTC are archived, ")


def test_every_cluster_has_its_own_lines(tmp_path: Path) -> None:
    write_command(tmp_path, "sacct", "case $* in *--clusters=beta*) exit 1;; esac")
    write_command(tmp_path, "sacctmgr", "case $2 in configuration) echo 'PrivateData = none';; esac")
    with closing(Database(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db"))) as database:
        Checkpoints(database).write_checkpoint(f"{CLUSTER_CHECKPOINT}alpha", str(int(time.time())))

    checks = examine(tmp_path, **{"accounting.clusters": ["alpha", "beta"], "prometheus.url": "http://127.0.0.1:9"})

    assert (True, True) == (checks["reporter of alpha"].is_good, checks["accounting of alpha"].is_good)
    assert (False, False) == (checks["reporter of beta"].is_good, checks["accounting of beta"].is_good)
    assert "no job has been archived yet" == checks["reporter of beta"].message
    assert not checks["clusters"].is_good
    assert checks["clusters"].message.startswith("jobs of alpha, beta may have equal IDs")
    assert "prometheus.cluster-label" in checks["clusters"].advice


def test_clusters_whose_series_are_told_apart_are_good(tmp_path: Path) -> None:
    with closing(Database(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db"))) as database:
        Checkpoints(database).write_checkpoint(f"{CLUSTER_CHECKPOINT}alpha", str(int(time.time())))
    checks = examine(tmp_path, **{"accounting.clusters": ["alpha", "beta"], "prometheus.cluster-label": "cluster"})

    assert (True, "alpha, beta have jobs here, and their series are distinguished") == (
        checks["clusters"].is_good, checks["clusters"].message,
    )  # fmt: skip
    assert "clusters" not in examine(tmp_path)


def test_process_that_archives_jobs_is_named(tmp_path: Path) -> None:
    write_command(tmp_path, "scontrol", "echo 'ClusterName = alpha'; echo 'PrivateData = none'")
    with closing(Database(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db"))) as database:
        with closing(Election(database, "reporter of alpha", wall_clock=lambda: 1_700_000_000.0)) as election:
            election.hold_lock()
            during = examine(tmp_path)["election"]
        after = examine(tmp_path)["election"]

    expected = f"reporter of alpha: {socket.gethostname()}, process {os.getpid()}, since 2023-11-14 22:13:20 UTC"
    assert (True, expected) == (during.is_good, during.message)
    assert (True, "reporter of alpha: none now") == (after.is_good, after.message)


@pytest.mark.parametrize(("release", "is_good"), [("slurm-wlm 22.05.8", False), ("slurm-wlm 25.05.1", True)])
def test_sacctmgr_that_changed_a_comment_is_reported(tmp_path: Path, release: str, is_good: bool) -> None:
    write_command(tmp_path, "sacctmgr", f"case $1 in --version) echo '{release}';; esac")
    with closing(Database(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db"))) as database:
        Checkpoints(database).write_checkpoint(f"{CHANGED_CHECKPOINT}alpha", "slurm-wlm 22.05.8")

    check = examine(tmp_path, **{"reporter.admin-comment": True})["AdminComment"]

    assert (is_good, not is_good) == (check.is_good, "alpha: slurm-wlm 22.05.8" in check.message)
    assert is_good == (not check.advice)
    assert "AdminComment" not in examine(tmp_path)


def test_sacctmgr_that_fails_is_no_fault_of_the_archive(tmp_path: Path) -> None:
    write_command(tmp_path, "sacctmgr", "echo 'no library' >&2; exit 127")
    with closing(Database(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db"))) as database:
        Checkpoints(database).write_checkpoint(f"{CHANGED_CHECKPOINT}alpha", "slurm-wlm 22.05.8")

    checks = examine(tmp_path, **{"reporter.admin-comment": True})

    assert (True, False) == (checks["archive"].is_good, checks["AdminComment"].is_good)
    assert "no library" in checks["AdminComment"].message


def test_open_settings_are_reported(tmp_path: Path) -> None:
    checks = examine(tmp_path, **{"portal.listen-address": "0.0.0.0:8080"})

    assert not checks["settings"].is_good
    assert "gives full access" in checks["settings"].message


def test_no_prometheus_is_a_choice_and_no_fault(tmp_path: Path) -> None:
    checks = examine(tmp_path)

    assert checks["time series"].is_good
    assert "node agents" not in checks


def test_measured_nodes_are_counted(tmp_path: Path) -> None:
    fake = FakePrometheus([vector(({}, (1000.0, "64")))])
    with scripted_server(fake.handle) as url:
        checks = examine(tmp_path, prometheus_url=url, prometheus_matchers=['cluster="a b"'])

    assert (True, True) == (checks["time series"].is_good, checks["node agents"].is_good)
    assert "jobs on 64 nodes are measured now" == checks["node agents"].message
    assert [
        'count(count by (slurm_node) (jobs_cpu_seconds_total{cluster="a b"}))',
        'count(jobs_cpu_seconds_total{cluster="a b"} and jobs_cpu_seconds_total{cluster="a b"} offset 60000ms)',
        (
            'count(increase(jobs_cpu_seconds_total{cluster="a b"}[60000ms]) and '
            'jobs_cpu_seconds_total{cluster="a b"} offset 60000ms)'
        ),
        'min by (instance) (up{cluster="a b",job="slurm-nodes"})',
        'min by (instance) (up{cluster="a b",job="slurm"})',
        'count(slurm_nodes{cluster="a b"})',
        'count(instance:slurm_nodes:sum{cluster="a b"})',
        "vector(time())",
    ] == [query.form["query"] for query in fake.queries]


@pytest.mark.parametrize(("frequent", "is_good"), [("90", True), ("45", True), ("44", False)])
def test_scrape_interval_shorter_than_configured_is_reported(tmp_path: Path, frequent: str, is_good: bool) -> None:
    fake = FakePrometheus([vector(({}, (1000.0, count))) for count in ("64", "90", frequent)])
    with scripted_server(fake.handle) as url:
        check = examine(tmp_path, prometheus_url=url)["scrape interval"]

    assert f"{frequent} of 90 series of jobs have two samples within 60 seconds" == check.message
    assert (is_good, not is_good) == (check.is_good, "prometheus.scrape-interval" in check.advice)


def test_prometheus_without_jobs_is_distinguished_from_an_unreachable_one(tmp_path: Path) -> None:
    with scripted_server(FakePrometheus([vector()]).handle) as url:
        checks = examine(tmp_path, prometheus_url=url)

    assert (True, False) == (checks["time series"].is_good, checks["node agents"].is_good)
    assert "scrape slurmscope node" in checks["node agents"].advice


def test_refusal_of_prometheus_is_quoted(tmp_path: Path) -> None:
    with scripted_server(FakePrometheus([failure(400, "bad_data", "parse error here")]).handle) as url:
        checks = examine(tmp_path, prometheus_url=url)

    assert not checks["time series"].is_good
    assert "parse error here" in checks["time series"].message


@pytest.mark.parametrize("others", ["0", "64"])
def test_matcher_that_no_series_has_is_reported(tmp_path: Path, others: str) -> None:
    answers = [vector(), vector(({}, (1000.0, others))) if others != "0" else vector()]
    with scripted_server(FakePrometheus(answers).handle) as url:
        checks = examine(tmp_path, prometheus_url=url, prometheus_matchers=("cluster=hpc",))

    assert (others == "0") == checks["labels"].is_good
    assert "cluster=hpc" in checks["labels"].message
    assert (others == "64") == ("external_labels" in checks["labels"].advice)


def test_advice_for_a_partial_answer_is_about_what_is_behind_the_server(tmp_path: Path) -> None:
    partial = vector(warnings=["remote_read: connection refused"])
    with scripted_server(FakePrometheus([partial]).handle) as url:
        check = examine(tmp_path, prometheus_url=url)["time series"]

    assert not check.is_good
    assert "remote_read: connection refused" in check.message
    assert "docs/scaling.md" in check.advice


@pytest.mark.parametrize(
    ("until_seconds", "is_good"), [(9_880, True), (9_880 - 3600, True), (9_880 - 3661, False), (None, False)]
)
def test_archive_that_is_an_hour_behind_is_reported(until_seconds: int | None, is_good: bool) -> None:
    # At 10,000 s, jobs that ended until 9,880 s are due: their last samples have two minutes to arrive.
    check = check_progress(until_seconds, 10_000.0, RHYTHM)

    assert (is_good, not is_good) == (check.is_good, bool(check.advice))
