# SPDX-License-Identifier: Apache-2.0
"""Known rates of a Lustre exporter arrive, per account and program, through a real Prometheus and VictoriaMetrics."""

from __future__ import annotations

import grp
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from lab import ALICE, BOB, CAROL, SlurmLab
from lab.prometheus import Server, run_prometheus, run_victoria_metrics
from lab.users import find_user
from tests.fakes.lustre_exporter import READ, STATS, WRITE, FakeLustreExporter, serve_page
from tests.processes import Exporter, serving, until

MB = 1e6
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: lustre
    static_configs: [{{targets: ["{address}"]}}]
"""
SERVERS: dict[str, Callable[[Path, str], AbstractContextManager[Server]]] = {
    "prometheus": run_prometheus,
    "victoria": run_victoria_metrics,
}
LONG = "sleep 600"
JOB_READ, JOB_WRITE = "cluster_job_read_throughput_bytes", "cluster_job_write_throughput_bytes"
PROGRAM_READ, PROGRAM_WRITE = "cluster_proc_read_throughput_bytes", "cluster_proc_write_throughput_bytes"


@pytest.fixture
def lustre() -> FakeLustreExporter:
    return FakeLustreExporter()


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, lustre: FakeLustreExporter, tmp_path: Path) -> Iterator[Server]:
    with (
        serve_page(lustre) as address,
        SERVERS[request.param](tmp_path / "server", CONFIG.format(address=address)) as server,
    ):
        yield server


def export(lab: SlurmLab, server: Server) -> list[str]:
    return [
        "--collector.disable-defaults", "--collector.lustre", "--prometheus.url", server.url,
        "--collector.lustre.range", "20s", "--slurm.poll-limit", "1s", "--slurm.bin-path", str(lab.bin_path),
    ]  # fmt: skip


def wait_for(exporter: Exporter, name: str, expected: Mapping[Any, float]) -> None:
    """Wait until all rates are within 2 % of the known ones, and there are no others."""
    seen: dict[tuple[str, ...], float] = {}

    def is_reached() -> bool:
        seen.clear()
        seen.update(exporter.values(name))
        return seen == pytest.approx(dict(expected), rel=0.02)

    try:
        until(is_reached, patience_seconds=120)
    except AssertionError as error:
        raise AssertionError(f"{name}: {seen} instead of {dict(expected)}") from error


def test_rates_are_those_of_the_page_while_jobs_start_and_end(
    clean_lab: SlurmLab, lustre: FakeLustreExporter, server: Server
) -> None:
    alice, bob = find_user(ALICE), find_user(BOB)
    group = {user.name: _group_name(user.gid) for user in (alice, bob)}
    first, second = clean_lab.submit(ALICE, script=LONG), clean_lab.submit(CAROL, "-A", "chemistry", script=LONG)
    for job in (first, second):
        clean_lab.wait_state(job, {"RUNNING"})
    for target, rate in (("work-OST0000", 60 * MB), ("work-OST0001", 40 * MB), ("home-OST0000", 10 * MB)):
        lustre.grow(READ, str(first), target, rate)
    lustre.grow(READ, f"{second}:{find_user(CAROL).uid}:n1", "work-OST0001", 7 * MB)
    lustre.grow(WRITE, f"cp.{alice.uid}", "work-OST0000", 5 * MB)
    lustre.grow(WRITE, f"my.tool.{bob.uid}@n1.example.org", "home-OST0000", 3 * MB)
    lustre.grow(WRITE, "999999999", "work-OST0000", 2 * MB)
    lustre.grow(WRITE, "nodot", "work-OST0000", 1 * MB)
    lustre.grow(WRITE, "cp.4111111", "work-OST0000", 4 * MB)
    lustre.grow(STATS, str(first), "work-MDT0000", 300.0, "open")
    lustre.grow(STATS, str(first), "work-MDT0000", 100.0, "close")
    lustre.grow(STATS, str(first), "work-OST0000", 9.0, "punch")

    with serving("cluster", *export(clean_lab, server), environment=clean_lab.environment) as exporter:
        wait_for(exporter, JOB_READ, {("physics", ALICE): 110 * MB, ("chemistry", CAROL): 7 * MB})
        wait_for(exporter, JOB_WRITE, {("unknown", "unknown"): 2 * MB})
        programs = {
            ("cp", group[ALICE], ALICE): 5 * MB,
            ("my.tool", group[BOB], BOB): 3 * MB,
            ("cp", "unknown", "unknown"): 4 * MB,
        }
        wait_for(exporter, PROGRAM_WRITE, programs)
        wait_for(exporter, "cluster_job_metadata_operations", {("physics", ALICE, "work-MDT0000"): 400.0})
        unknown = {("work", "job"): 2 * MB, ("work", "user"): 4 * MB, ("work", "text"): 1 * MB}
        none = {("home", "job"): 0.0, ("home", "user"): 0.0, ("home", "text"): 0.0}
        wait_for(exporter, "cluster_filesystem_unknown_write_bytes_per_second", {**unknown, **none})
        wait_for(
            exporter,
            "cluster_filesystem_top_job_read_bytes_per_second",
            {
                ("work", str(first), "physics", ALICE, "debug"): 100 * MB,
                ("work", str(second), "chemistry", CAROL, "debug"): 7 * MB,
                ("home", str(first), "physics", ALICE, "debug"): 10 * MB,
            },
        )
        assert {(): 1.0} == exporter.values("cluster_exporter_scrape_ok")

        third = clean_lab.submit(BOB, script=LONG)
        clean_lab.wait_state(third, {"RUNNING"})
        lustre.grow(READ, str(third), "work-OST0000", 20 * MB)
        reads = {("physics", ALICE): 110 * MB, ("chemistry", CAROL): 7 * MB, ("chemistry", BOB): 20 * MB}
        wait_for(exporter, JOB_READ, reads)

        # The job has ended, and what its node had cached is still written.
        clean_lab.run("scancel", str(first))
        clean_lab.wait_state(first, {"CANCELLED"})
        wait_for(exporter, JOB_READ, reads)
        for target in ("work-OST0000", "work-OST0001", "home-OST0000"):
            lustre.grow(READ, str(first), target, 0.0)
        wait_for(exporter, JOB_READ, {("chemistry", CAROL): 7 * MB, ("chemistry", BOB): 20 * MB})
        assert {(): 1.0} == exporter.values("cluster_exporter_scrape_ok")


def test_two_servers_with_the_same_target_count_once(
    clean_lab: SlurmLab, lustre: FakeLustreExporter, tmp_path: Path
) -> None:
    job = clean_lab.submit(ALICE, script=LONG)
    clean_lab.wait_state(job, {"RUNNING"})
    lustre.grow(READ, str(job), "work-OST0000", 50 * MB)
    with serve_page(lustre) as one, serve_page(lustre) as other:
        config = CONFIG.format(address=f'{one}", "{other}')
        with (
            run_prometheus(tmp_path / "server", config) as server,
            serving("cluster", *export(clean_lab, server), environment=clean_lab.environment) as exporter,
        ):
            until(lambda: 2 == len(server.query(f"irate({READ}[20s])")))
            wait_for(exporter, JOB_READ, {("physics", ALICE): 50 * MB})


def test_server_that_stops_leaves_the_last_good_rates_and_says_so(
    clean_lab: SlurmLab, lustre: FakeLustreExporter, tmp_path: Path
) -> None:
    job = clean_lab.submit(ALICE, script=LONG)
    clean_lab.wait_state(job, {"RUNNING"})
    lustre.grow(READ, str(job), "work-OST0000", 50 * MB)
    with ExitStack() as stack:
        with serve_page(lustre) as address, run_prometheus(tmp_path / "one", CONFIG.format(address=address)) as server:
            flags = [*export(clean_lab, server), "--prometheus.timeout", "5s"]
            serving_jobs = serving("cluster", *flags, "--collector.jobs", environment=clean_lab.environment)
            exporter = stack.enter_context(serving_jobs)
            wait_for(exporter, JOB_READ, {("physics", ALICE): 50 * MB})

        until(lambda: {(): 0.0} == exporter.values("cluster_exporter_scrape_ok"))

        assert {("physics", ALICE): 50 * MB} == pytest.approx(exporter.values(JOB_READ), rel=0.02)
        assert {("jobs",): 1.0, ("lustre",): 0.0} == exporter.values("slurmscope_collector_success")
        assert exporter.values("slurm_jobs")[("RUNNING",)] >= 1


def _group_name(gid: int) -> str:
    return grp.getgrgid(gid).gr_name
