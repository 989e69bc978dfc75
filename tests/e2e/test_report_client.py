# SPDX-License-Identifier: Apache-2.0
"""Users on a login node read their jobs from the portal, known by munge, and nothing of others."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab import ALICE, BOB, SlurmLab
from lab.users import find_user
from slurmscope.http.client.address import parse_address
from slurmscope.slurm.munge import make_payload
from tests.processes import PATIENCE_SECONDS, as_user, running, until

SCRIPT = "#SBATCH --ntasks=2\nexport OMP_NUM_THREADS=4\nsleep 1\n#SBATCH --mem=1G\n"


@dataclass(frozen=True, kw_only=True)
class LoginNode:
    """Run slurmscope report as users of the lab, with or without its portal."""

    lab: SlurmLab
    url: str
    folder: Path

    def report(self, user: str, *arguments: str, is_local: bool = False) -> subprocess.CompletedProcess[str]:
        """Run the command as a user who has no rights on the archive."""
        person = find_user(user)
        source = ("--slurm.bin-path", str(self.lab.bin_path)) if is_local else ("--portal.url", self.url)
        return subprocess.run(
            [*as_user(person.uid, person.gid), sys.executable, "-m", "slurmscope", "report", *arguments, *source],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            env={**self.lab.environment, "HOME": f"/nonexistent/{user}", "TZ": "JST-9"},
            check=False,
        )

    def sign(self, user: str, payload: str) -> str:
        """Make a munge credential of a user."""
        socket_path = f"--socket={self.lab.layout.munge_socket}"
        return self.lab.run("munge", socket_path, "--string", payload, user=user).strip()

    def get(self, path: str, credential: str) -> tuple[int, dict[str, object]]:
        """Send a request with a credential."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Munge {credential}"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@pytest.fixture(scope="module")
def login_node(slurm_lab: SlurmLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginNode]:
    """Run a portal over the lab that knows users by munge."""
    slurm_lab.reset()
    folder = tmp_path_factory.mktemp("client")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with running(
        "portal",
        *("--portal.listen-address", address, "--portal.mode", "proxy", "--portal.proxy-peers", "127.0.0.1"),
        *("--portal.munge", "--mail.portal-url", f"http://{address}", "--archive.url", str(folder / "archive.db")),
        *("--reporter.interval", "1s", "--slurm.bin-path", str(slurm_lab.bin_path)),
        environment=slurm_lab.environment,
        wait_for="msg=listening",
    ):
        yield LoginNode(lab=slurm_lab, url=f"http://{address}", folder=folder)


@pytest.fixture(scope="module")
def job(login_node: LoginNode) -> int:
    """Run a job of alice to its end, and wait until the portal lists it."""
    number = login_node.lab.submit(ALICE, "--time=5", "--job-name=clienttest", script=SCRIPT)
    login_node.lab.wait_state(number, {"COMPLETED"}, timeout=PATIENCE_SECONDS)
    until(lambda: f"\n{number} " in "\n" + login_node.report(ALICE, "me", "--state", "COMPLETED").stdout)
    return number


def test_user_reads_the_last_job_and_lists_without_any_configuration_but_the_address(
    login_node: LoginNode, job: int
) -> None:
    last = login_node.report(ALICE, "last", "--full")
    listed = login_node.report(ALICE, "me", "--since", "1h", "-f", "json")

    assert (0, "") == (last.returncode, last.stderr)
    assert f"Job {job}: clienttest" in last.stdout
    assert " JST\n" in last.stdout
    (row,) = [row for row in json.loads(listed.stdout)["jobs"] if row["job_id"] == job]
    assert (ALICE, "COMPLETED") == (row["user"], row["state"])


def test_report_of_the_portal_says_what_slurm_says(login_node: LoginNode, job: int) -> None:
    record = json.loads(login_node.report(ALICE, str(job), "-f", "json").stdout)["summary"]["record"]
    told = login_node.lab.run(
        "sacct", "-XnP", "-j", str(job), "--format=JobName,User,State,ExitCode,AllocCPUS,ElapsedRaw"
    ).strip()

    run_seconds = record["end_seconds"] - record["start_seconds"]
    assert told == f"{record['name']}|{record['user']}|{record['state']}|0:0|{record['cpus']}|{run_seconds}"


def test_job_of_another_user_does_not_exist(login_node: LoginNode, job: int) -> None:
    foreign, absent = login_node.report(BOB, str(job)), login_node.report(BOB, "4000000000")

    assert (2, "") == (foreign.returncode, foreign.stdout)
    assert foreign.stderr == absent.stderr.replace("4000000000", str(job))
    assert str(job) not in login_node.report(BOB, "me").stdout
    assert str(job) not in login_node.report(BOB, f"{job - 1}-{job + 1}").stdout


def test_credential_is_good_once_and_for_this_portal_alone(login_node: LoginNode, job: int) -> None:
    payload = make_payload(parse_address(login_node.url))
    credential = login_node.sign(ALICE, payload)

    assert (200, ALICE) == ((answer := login_node.get("/api/v2/me", credential))[0], answer[1]["name"])
    assert 401 == login_node.get("/api/v2/me", credential)[0]
    other = login_node.sign(ALICE, make_payload(parse_address("https://other.example.org")))
    assert 401 == login_node.get("/api/v2/me", other)[0]
    assert 401 == login_node.get("/api/v2/me", "MUNGE:AwQDAAA:")[0]
    assert 404 == login_node.get(f"/api/v2/jobs/{job}", login_node.sign(BOB, payload))[0]


def test_script_that_slurmdbd_stored_is_shown_to_its_owner_alone(login_node: LoginNode, job: int) -> None:
    for is_local in (False, True):
        shown = login_node.report(ALICE, str(job), "--script", is_local=is_local)
        assert (0, "") == (shown.returncode, shown.stderr)
        assert "    3  export OMP_NUM_THREADS=4\n" in shown.stdout
        assert "Line 5: An option after the first command is ignored." in shown.stdout
        assert "4 threads without --cpus-per-task." in shown.stdout
        assert "Nothing starts the 2 tasks." in shown.stdout
        assert "HOME" in shown.stdout.partition("may be secret")[2]
        assert "No time limit" not in shown.stdout  # it was on the command line
        hidden = login_node.report(BOB, str(job), "--script", is_local=is_local)
        assert (2, "") == (hidden.returncode, hidden.stdout)
        assert "OMP_NUM_THREADS" not in hidden.stderr


def test_user_without_a_portal_reads_own_jobs_from_accounting(login_node: LoginNode, job: int) -> None:
    last = login_node.report(ALICE, "last", is_local=True)

    assert (0, "") == (last.returncode, last.stderr)
    assert f"Job {job}: clienttest" in last.stdout
    assert str(job) not in login_node.report(BOB, "me", is_local=True).stdout
