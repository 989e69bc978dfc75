# SPDX-License-Identifier: Apache-2.0
"""``slurmscope report -M NAME`` chooses one of several clusters with the same job ID, on this host and in a portal."""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurmscope.archive.settings import ArchiveSettings
from slurmscope.reports.sources import open_archive
from tests.fakes.browser import PortalClient
from tests.fakes.command_line import run_here
from tests.fakes.portal_backend import make_backend
from tests.fakes.reports import START, make_record, make_report
from tests.fakes.scripted_server import read_whole_request, scripted_server
from tests.fakes.slurm_scripts import make_commands
from tests.fakes.two_clusters import make_job_and_array, make_two_clusters

FEDERATED = (2 << 26) + 7
CHOOSE = "slurmscope: job 4711 exists in several clusters: alpha, beta; choose one with -M, such as -M alpha\n"


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Return the flags of an archive with jobs of two clusters; sacct knows no further ones."""
    folder = tmp_path_factory.mktemp("clusters")
    archive = open_archive(ArchiveSettings(url=f"sqlite:///{folder}/archive.db", timeout=60.0))
    archive.save([*make_two_clusters(), *make_job_and_array()])
    archive.close()
    slurm = make_commands(folder / "bin", {"sacct": "exit 0"})
    return ("--archive.url", f"{folder}/archive.db", "--slurm.bin-path", str(slurm))


@pytest.fixture
def portal(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """Return the flags of a portal with jobs of two clusters."""
    token = tmp_path / "token"
    token.write_text("slsc_x\n")
    token.chmod(0o600)
    with scripted_server(serve_portal) as url:
        yield ("--portal.url", url, "--portal.token-file", str(token), "--slurm.bin-path", str(tmp_path))


def serve_portal(connection: socket.socket) -> None:
    """Answer one request as the portal does for ada."""
    path = read_whole_request(connection).line.split()[1]
    answer = PortalClient(make_backend([*make_two_clusters(), *make_job_and_array()]).make_app(), "ada").get(path)
    head = f"HTTP/1.1 {answer.status_code} X\r\nContent-Length: {len(answer.content)}\r\n\r\n"
    connection.sendall(head.encode() + answer.content)


@pytest.fixture(params=["archived", "portal"])
def flags(request: pytest.FixtureRequest) -> tuple[str, ...]:
    found: tuple[str, ...] = request.getfixturevalue(request.param)
    return found


def test_id_of_several_clusters_needs_a_choice(flags: tuple[str, ...]) -> None:
    several = run_here("report", "4711", *flags)
    assert (2, "", CHOOSE) == (several.returncode, several.stdout, several.stderr)
    for cluster in ("alpha", "beta"):
        done = run_here("report", "4711", "-M", cluster.upper(), *flags)
        assert (0, "") == (done.returncode, done.stderr)
        assert f"Job 4711: on-{cluster}" in done.stdout


def test_id_of_one_cluster_needs_none(flags: tuple[str, ...]) -> None:
    assert "Job 4713: only" in run_here("report", "4713", *flags).stdout
    missing = run_here("report", "4713", "--clusters", "alpha", *flags)
    assert "job 4713 was not found, or you may not see it; check the job ID and -M alpha\n" in missing.stderr


def test_table_has_the_cluster_if_there_are_several(flags: tuple[str, ...]) -> None:
    both = run_here("report", "4711,4713", *flags).stdout.splitlines()
    assert ["Job", "Cluster"] == both[0].split()[:2]
    assert [["4711", "alpha"], ["4711", "beta"], ["4713", "beta"]] == sorted(line.split()[:2] for line in both[1:4])
    assert re.fullmatch(r"The report of one job: slurmscope report 471[13] -M (alpha|beta)", both[-1])
    one = run_here("report", "4711,4713", "-M", "beta", *flags).stdout.splitlines()
    assert re.fullmatch(r"The report of one job: slurmscope report 471[13] -M beta", one[-1])
    assert ["Job", "Name"] == one[0].split()[:2]
    assert ["4711", "4713"] == sorted(line.split()[0] for line in one[1:3])


def test_array_of_several_clusters_needs_a_choice(flags: tuple[str, ...]) -> None:
    assert "array 4800 exists in several clusters: alpha, beta; choose" in run_here("report", "4800", *flags).stderr
    done = run_here("report", "4800", "-M", "beta", *flags)
    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("Array 4800 on beta: ")
    command = done.stdout.splitlines()[-1].removeprefix("The report of one task: slurmscope ").split()
    assert ["report", "4800_0", "-M", "beta"] == command
    assert "Job 4800_0" in run_here(*command, *flags).stdout


def test_id_of_a_job_and_an_array_needs_a_choice(flags: tuple[str, ...]) -> None:
    several = run_here("report", "6000", *flags)
    assert (2, "", CHOOSE.replace("4711", "6000")) == (several.returncode, several.stdout, several.stderr)
    assert "Job 6000: plain-on-alpha" in run_here("report", "6000", "-M", "alpha", *flags).stdout
    assert run_here("report", "6000", "-M", "beta", *flags).stdout.startswith("Array 6000 on beta: array-on-beta")


def test_last_job_is_that_of_the_chosen_cluster(tmp_path: Path) -> None:
    """A federated job was requeued from beta to alpha, where its newest run is."""
    me = pwd.getpwuid(os.getuid()).pw_name
    archive = open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db", timeout=60.0))
    archive.save(
        [
            make_report(make_record(FEDERATED, cluster=cluster, name=f"on-{cluster}", user=me, submit_seconds=submit))
            for cluster, submit in (("beta", START), ("alpha", START + 1000))
        ]
    )
    archive.close()
    slurm = make_commands(tmp_path / "bin", {"sacct": "exit 0"})
    flags = ("--archive.url", f"{tmp_path}/archive.db", "--slurm.bin-path", str(slurm))
    names = [run_here("report", "last", *chosen, *flags).stdout.split()[2] for chosen in ((), ("-M", "beta"))]
    assert ["on-alpha", "on-beta"] == names


@pytest.mark.parametrize("name", ["a/b", "..", "", "alpha,beta", "-x", "a b", "\x1b[31m"])
def test_invalid_name_of_a_cluster_is_refused(archived: tuple[str, ...], name: str) -> None:
    done = run_here("report", "4713", f"--clusters={name}", *archived)
    if name:
        assert 2 == done.returncode
        assert "is not the name of a cluster" in done.stderr
        assert "\x1b" not in done.stderr
    else:
        assert "Job 4713: only" in done.stdout


def test_link_names_the_cluster(archived: tuple[str, ...], portal: tuple[str, ...]) -> None:
    local = run_here("report", "4713", "--mail.portal-url", "https://jobs.example.org", *archived).stdout
    assert "https://jobs.example.org/jobs/beta/4713" in " ".join(local.split())
    there = run_here("report", "4711", "-M", "beta", *portal).stdout
    assert f"{portal[1]}/jobs/beta/4711" in " ".join(there.split())
    site = ("--mail.portal-url", "https://jobs.example.org")
    there = run_here("report", "4711", "-M", "beta", *site, *portal).stdout
    assert "https://jobs.example.org/jobs/beta/4711" in " ".join(there.split())
