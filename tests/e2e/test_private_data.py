# SPDX-License-Identifier: Apache-2.0
"""Jobs that PrivateData hides are no empty cluster and no ended jobs; they are read when they become visible."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import bcrypt
import pytest

from lab import ALICE, SlurmLab
from tests.fakes.browser import Page
from tests.fakes.secured_server import basic_auth
from tests.processes import AS_NOBODY, PATIENCE_SECONDS, Exporter, run_slurmscope, running, serving, until, values

HIDDEN = "PrivateData hides the jobs of others from the user nobody"


@contextmanager
def private_data(lab: SlurmLab, *, is_dbd: bool) -> Iterator[None]:
    """Hide jobs from ordinary users of squeue, or of sacct too."""
    files = [lab.folder / "etc" / name for name in (("slurm.conf", "slurmdbd.conf") if is_dbd else ("slurm.conf",))]
    texts = [file.read_text(encoding="utf-8") for file in files]
    try:
        for file, text in zip(files, texts, strict=True):
            file.write_text(f"{text}\nPrivateData=jobs\n", encoding="utf-8")
        _load_again(lab, is_dbd=is_dbd)
        lab.wait_for(lambda: "PrivateData             = jobs" in lab.run("scontrol", "show", "config"))
        yield
    finally:
        for file, text in zip(files, texts, strict=True):
            file.write_text(text, encoding="utf-8")
        _load_again(lab, is_dbd=is_dbd)


def _load_again(lab: SlurmLab, *, is_dbd: bool) -> None:
    if is_dbd:
        lab.kill("slurmdbd")
        lab.start_daemon("slurmdbd")
    lab.run("scontrol", "reconfigure")


@contextmanager
def operator(lab: SlurmLab) -> Iterator[None]:
    """Make nobody an operator, by the command that our messages suggest."""
    lab.run("sacctmgr", "--immediate", "add", "user", "nobody", "account=root", "adminlevel=operator")
    try:
        yield
    finally:
        lab.run("sacctmgr", "--immediate", "delete", "user", "nobody")


@pytest.fixture
def folder(clean_lab: SlurmLab) -> Path:
    """Return a folder for the archive of nobody."""
    folder = clean_lab.folder / "work" / "private-data"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    for file in folder.iterdir():
        file.unlink()
    return folder


def _open_portal(lab: SlurmLab, folder: Path) -> AbstractContextManager[Exporter]:
    return running(
        "portal",
        *("--portal.listen-address", "127.0.0.1:0", "--portal.mode", "local"),
        *("--archive.url", str(folder / "archive.db"), "--reporter.interval", "1s"),
        *("--slurm.bin-path", str(lab.bin_path)),
        environment=lab.environment,
        wait_for="msg=listening",
        prefix=AS_NOBODY,
    )


def get(portal: Exporter, path: str) -> str:
    """Return a page; that of an unknown job too."""
    try:
        with urllib.request.urlopen(portal.addresses[0].rstrip("/") + path, timeout=PATIENCE_SECONDS) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return str(error.read().decode())


def listed(portal: Exporter) -> dict[int, str]:
    """Return the state of each job that the portal lists."""
    return {row["job_id"]: row["state"] for row in json.loads(get(portal, "/api/v2/jobs"))["jobs"]}


def test_portal_says_what_hides_jobs_and_reads_them_when_they_become_visible(clean_lab: SlurmLab, folder: Path) -> None:
    lab = clean_lab
    job = lab.submit(ALICE, script="sleep 600")
    lab.wait_state(job, {"RUNNING"})
    with _open_portal(lab, folder) as portal:
        until(lambda: listed(portal).get(job) == "RUNNING")
        portal.end()

    with private_data(lab, is_dbd=True):
        lab.run("scancel", str(job))
        lab.wait_for(lambda: not lab.run("squeue", "--noheader", f"--job={job}").strip())
        with _open_portal(lab, folder) as portal:
            until(lambda: "those shown as running may have ended" in Page(get(portal, "/")).text)
            text = Page(get(portal, "/")).text
            assert HIDDEN in text
            assert "Running jobs unknown" in text
            assert "RUNNING" == listed(portal)[job]
            assert HIDDEN in Page(get(portal, f"/jobs/{job}")).text

            with operator(lab):
                until(lambda: listed(portal)[job] == "CANCELLED")
                # Pages report the failed lookup of a job until the next one succeeds.
                until(lambda: get(portal, "/jobs/999999") and HIDDEN not in Page(get(portal, "/")).text)


def test_doctor_of_the_portal_names_the_right_that_is_missing(clean_lab: SlurmLab, folder: Path) -> None:
    flags = ("--slurm.bin-path", str(clean_lab.bin_path), "--archive.url", str(folder / "archive.db"))
    with private_data(clean_lab, is_dbd=True):
        done = run_slurmscope("doctor", "portal", *flags, environment=clean_lab.environment, prefix=AS_NOBODY)

    lines = done.stdout.splitlines()
    assert 1 == done.returncode
    assert any(line.startswith("failed  PrivateData") and HIDDEN in line for line in lines)
    assert any(line.startswith("failed  accounting") and HIDDEN in line for line in lines)


def test_right_that_is_unknown_while_slurmdbd_is_down_hides_jobs(clean_lab: SlurmLab) -> None:
    lab = clean_lab
    flags = ("--slurm.bin-path", str(lab.bin_path), "--slurm.poll-limit=1")
    with private_data(lab, is_dbd=False):
        lab.kill("slurmdbd")
        try:
            with serving("cluster", *flags, environment=lab.environment, prefix=AS_NOBODY) as exporter:
                page = exporter.get()[1]
                assert 0 == values(page, "slurmscope_collector_success")["jobs",]
                assert {} == values(page, "slurm_jobs")
                until(lambda: any("it is not known whether PrivateData hides jobs" in line for line in exporter.log))
        finally:
            lab.start_daemon("slurmdbd")


def test_agent_shows_jobs_that_private_data_hides_only_to_clients_with_a_password(
    clean_lab: SlurmLab, tmp_path: Path
) -> None:
    lab = clean_lab
    secret = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    (tmp_path / "web.yml").write_text(json.dumps({"basic_auth_users": {"agents": secret}}))
    job = str(lab.submit(ALICE, script="sleep 600"))
    lab.wait_state(int(job), {"RUNNING"})

    def jobs(agent: Exporter, **headers: str) -> set[str]:
        status, page = agent.get(headers=headers)
        assert 200 == status
        assert values(page, "jobs_on_node"), "the page is there, whatever it hides"
        return {labels[0] for labels in values(page, "jobs_info")}

    with (
        serving("node", environment=lab.environment) as open_agent,
        serving("node", "--web.config.file", str(tmp_path / "web.yml"), environment=lab.environment) as closed_agent,
    ):
        until(lambda: job in jobs(open_agent))
        with private_data(lab, is_dbd=False):
            assert not jobs(open_agent)
            assert ALICE not in open_agent.get()[1]
            assert job in jobs(closed_agent, Authorization=basic_auth("secret"))
            assert 401 == closed_agent.get()[0]
        until(lambda: job in jobs(open_agent))
