# SPDX-License-Identifier: Apache-2.0
"""Two clusters with a slurmctld each, equal node names and equal job IDs: each is shown from its own controller."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import ALICE, SlurmLab
from lab.second_cluster import SecondCluster, run_second_cluster
from tests.processes import Exporter, get_as, run_slurmscope, running, until

pytestmark = pytest.mark.scaling

PATIENCE_SECONDS = 120
TWIN = "twin"
REASON = "fan of the twin"
CPUS = {"lab": 1, TWIN: 3}
COLUMNS = ("Reason", "PriorityLong", "Name")


@dataclass(frozen=True, kw_only=True)
class Site:
    """Hold both clusters, a job ID that is pending in both, and one that has ended in both."""

    lab: SlurmLab
    twin: SecondCluster
    archive: Path
    pending: int
    ended: int

    @property
    def node(self) -> str:
        """Return the name of a node that both clusters have."""
        (name,) = self.twin.nodes
        return name

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the flags of a portal and of its doctor."""
        return (
            *("--portal.listen-address", "127.0.0.1:0", "--portal.mode", "proxy", "--portal.proxy-peers", "127.0.0.1"),
            *("--portal.admins", "root", "--archive.url", str(self.archive), "--accounting.clusters", "lab"),
            *("--accounting.clusters", TWIN),
            *("--reporter.interval", "1s", "--slurm.bin-path", str(self.lab.bin_path)),
        )

    def serve(self) -> AbstractContextManager[Exporter]:
        """Run a portal on a host of the first cluster."""
        return running("portal", *self.flags, environment=self.lab.environment, wait_for="msg=listening")

    def examine(self) -> list[str]:
        """Return what the doctor prints about controllers of other clusters."""
        done = run_slurmscope("doctor", "portal", *self.flags, environment=self.lab.environment)
        return [line for line in done.stdout.splitlines() if " controller of " in line]

    def count_states(self, cluster: str) -> dict[str, int]:
        """Return the number of nodes in each state, as sinfo of the cluster reports."""
        lines = self.lab.run("sinfo", "-M", cluster, "--noheader", "--Node", "--format=%N %T").splitlines()
        return dict(Counter(line.split()[1] for line in set(lines) if not line.startswith("CLUSTER:")))

    def queue(self, cluster: str, job: int, *columns: str) -> list[str]:
        """Return columns of one job, as squeue of the cluster prints them."""
        wanted = ",".join(f"{column}:|" for column in columns)
        answer = self.lab.run("squeue", "-M", cluster, "--noheader", f"--jobs={job}", f"--Format={wanted}")
        return answer.splitlines()[-1].split("|")[: len(columns)]


def read(portal: Exporter, path: str) -> Any:
    """Return the JSON of an API path, None if it does not exist yet."""
    status, body = get_as(portal, "root", path)
    return json.loads(body) if status == 200 else None


def read_states(portal: Exporter, cluster: str) -> Any:
    """Return the number of nodes in each state, as the portal shows them."""
    return read(portal, f"/api/v2/cluster?cluster={cluster}")["nodes_by_state"]


def explain(portal: Exporter, cluster: str, job: int) -> list[str]:
    """Return what the portal shows of a pending job, in the order of the columns of squeue."""
    shown = read(portal, f"/api/v2/jobs/{cluster}/{job}/waiting")
    assert cluster == shown["cluster"]
    return [shown["reason"], str(shown["priority"]), shown["name"]]


def list_ended(lab: SlurmLab, cluster: str) -> list[str]:
    """Return the names of completed jobs, as slurmdbd lists them."""
    of_all = ("--allusers", "-X", "--starttime=now-1hours", "--state=COMPLETED", "--endtime=now")
    return lab.run("sacct", "-M", cluster, "--noheader", "--parsable2", *of_all, "--format=JobName").splitlines()


@pytest.fixture(scope="module")
def site(slurm_lab: SlurmLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Start the second cluster, end a job in both, and drain the only node of the second."""
    lab = slurm_lab
    lab.reset()
    job = lab.submit(ALICE, "--hold", "--job-name=in-lab", script="true")
    with run_second_cluster(lab, TWIN, first_job_id=job) as twin:
        # A name that looks like the line with which squeue -M begins.
        same = twin.client.submit(ALICE, "--hold", f"--job-name=CLUSTER: {TWIN}", script="true")
        ended = {
            client.submit(ALICE, f"--cpus-per-task={CPUS[name]}", f"--job-name=ended-{name}", script="true")
            for name, client in (("lab", lab), (TWIN, twin.client))
        }
        assert ({job}, {job + 1}) == ({same}, ended)
        for name in ("lab", TWIN):
            # slurmctld sends what it knows of a new job to slurmdbd every few seconds, also after the job has ended.
            lab.wait_for(lambda name=name: f"ended-{name}" in list_ended(lab, name))  # type: ignore[misc]
        lab.run("scontrol", "-M", TWIN, "update", f"NodeName={twin.nodes[0]}", "State=DRAIN", f"Reason={REASON}")
        lab.run("scontrol", "-M", TWIN, "release", str(job))
        made = Site(
            lab=lab, twin=twin, archive=tmp_path_factory.mktemp("twin") / "archive.db", pending=job, ended=job + 1
        )
        # The scheduler has considered the released job.
        lab.wait_for(lambda: made.queue(TWIN, job, "Reason")[0] not in {"JobHeldUser", "None"})
        yield made
    lab.cancel_all()


@pytest.fixture(scope="module")
def portal(site: Site) -> Iterator[Exporter]:
    with site.serve() as exporter:
        until(lambda: read(exporter, f"/api/v2/jobs/{TWIN}/{site.pending}/waiting"), PATIENCE_SECONDS)
        yield exporter


def test_cluster_page_and_nodes_are_those_of_the_named_cluster(site: Site, portal: Exporter) -> None:
    for name in ("lab", TWIN):
        # The portal reads every half minute; a test before this one may have restarted the controller.
        until(lambda name=name: site.count_states(name) == read_states(portal, name), PATIENCE_SECONDS)  # type: ignore[misc]
        assert [] == read(portal, f"/api/v2/cluster?cluster={name}")["problems"]
    twin, lab = (get_as(portal, "root", path)[1] for path in (f"/cluster?cluster={TWIN}", "/cluster"))
    assert (True, False) == (REASON in twin, REASON in lab)
    for name in ("lab", TWIN):
        shown = read(portal, f"/api/v2/nodes/{name}/{site.node}")
        line = site.lab.run("scontrol", "-M", name, "--oneliner", "show", "node", site.node)
        assert (name, f"Reason={REASON}" in line) == (shown["cluster"], shown["reason"] == REASON)
        assert ("DRAIN" in line) == (shown["state"] == "drained")
    assert 300 == get_as(portal, "root", f"/nodes/{site.node}")[0]


def test_pending_job_is_explained_from_its_own_cluster(site: Site, portal: Exporter) -> None:
    job = site.pending
    assert 300 == get_as(portal, ALICE, f"/jobs/{job}")[0]
    for name in ("lab", TWIN):
        # Slurm computes priorities again, and the portal reads them every half minute.
        until(lambda name=name: explain(portal, name, job) == site.queue(name, job, *COLUMNS), PATIENCE_SECONDS)  # type: ignore[misc]

    def compare_fairshare() -> bool:
        factors = site.lab.run("sprio", "-M", TWIN, "--noheader", f"--jobs={job}", "--format=%F").split()
        tables = read(portal, f"/api/v2/jobs/{TWIN}/{job}/waiting")["priorities"]
        rows = {row["factor"]: row["own"] for table in tables for row in table["rows"]}
        return rows.get("fairshare") == float(factors[-1]) > 0

    until(compare_fairshare, PATIENCE_SECONDS)
    assert f"scontrol -M lab release {job}" in get_as(portal, ALICE, f"/jobs/lab/{job}")[1]


def test_ended_jobs_with_equal_ids_keep_their_own_numbers(site: Site, portal: Exporter) -> None:
    for name, cpus in CPUS.items():
        path = f"/api/v2/jobs/{name}/{site.ended}"
        until(lambda path=path: read(portal, path), PATIENCE_SECONDS)  # type: ignore[misc]
        record = read(portal, path)["summary"]["record"]
        assert (name, f"ended-{name}", cpus) == (record["cluster"], record["name"], record["cpus"])


def test_controller_that_is_down_costs_only_its_own_numbers(site: Site) -> None:
    assert [f"ok      controller of {TWIN}: it answers"] == site.examine()
    site.twin.stop_controller()
    try:
        assert [f"failed  controller of {TWIN}: scontrol ended"] == [
            line.partition(" with")[0] for line in site.examine()
        ]
        with site.serve() as exporter:
            nodes_problem = f"Slurm nodes of {TWIN} cannot be read: "
            until(lambda: nodes_problem in get_as(exporter, "root", f"/cluster?cluster={TWIN}")[1], PATIENCE_SECONDS)
            assert read_states(exporter, TWIN) is None
            until(lambda: site.count_states("lab") == read_states(exporter, ""), PATIENCE_SECONDS)
            assert nodes_problem not in get_as(exporter, "root", "/cluster")[1]
            assert [] == read(exporter, "/api/v2/cluster")["problems"]
            # Without the state, a node of the other cluster is not shown in its place. It is known by an archived job.
            path = f"/api/v2/nodes/{TWIN}/{site.node}"
            until(lambda: read(exporter, path), PATIENCE_SECONDS)
            assert (TWIN, None) == (read(exporter, path)["cluster"], read(exporter, path)["state"])
    finally:
        site.twin.start_controller()
        site.lab.wait_for(lambda: {"drained": 1} == site.count_states(TWIN))
