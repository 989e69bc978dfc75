# SPDX-License-Identifier: Apache-2.0
"""A real job gets the right efficiency and findings in every form, out of a real Prometheus and a real MariaDB."""

from __future__ import annotations

import email
import email.policy
import io
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pypdf
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session

from lab import ALICE, SlurmLab
from lab.ports import free_port
from lab.prometheus import run_prometheus
from tests.e2e import half_idle_job
from tests.processes import run_slurmscope, serving, until

CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: nodes
    static_configs: [{{targets: ["{address}"]}}]
"""
# Far above the least that is suggested, or there would be no line for less.
ASKED_MIB, SUGGESTED = 1024, "512M"
HELD_MIB = 48
BUSY_SECONDS = 12
RULES = """
[rules]
min-run-seconds = 5
[rules.memory-over-requested]
min-unused-bytes = 0
free-bytes-per-core = 0
"""
EXPECTED_FINDINGS = {"memory_over_requested"}
# One core of four is busy: the first where it is busy all the time, the other where the start of the job shows.
OF_CORES = {"serial_code", "cpu_idle"}


@dataclass(frozen=True, kw_only=True)
class Reported:
    """Hold a job that has ended, what it says of itself, and how to ask for its report."""

    job: int
    told: dict[str, float]
    flags: tuple[str, ...]
    lab: SlurmLab

    def report(self, *arguments: str) -> str:
        done = run_slurmscope("report", str(self.job), *arguments, *self.flags, environment=self.lab.environment)
        assert (0, "") == (done.returncode, done.stderr)
        return done.stdout


@pytest.fixture(scope="module")
def reported(slurm_lab: SlurmLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reported]:
    """Run the job under the eyes of a node agent and a Prometheus, and grant access to accounting."""
    lab = slurm_lab
    lab.reset()
    folder = lab.folder / "work" / "half-idle"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    shutil.copy(half_idle_job.__file__, folder / "half_idle_job.py")
    private = tmp_path_factory.mktemp("reports")
    password = private / "password"
    database = ("--accounting.host", str(lab.layout.database_socket), "--accounting.password-file", str(password))
    granted = run_slurmscope("database", "grant", *database, environment=lab.environment)
    assert (0, "") == (granted.returncode, granted.stderr)
    with (
        serving("node") as agent,
        run_prometheus(private / "prometheus", CONFIG.format(address=agent.addresses[0])) as prometheus,
    ):
        job = lab.submit(
            ALICE, "--ntasks=1", "--cpus-per-task=4", f"--mem={ASKED_MIB}M", "--time=30", "--job-name=half <b>idle</b>",
            script=f"exec python3 {folder}/half_idle_job.py {folder}/told {BUSY_SECONDS} {HELD_MIB}",
        )  # fmt: skip
        lab.wait_state(job, {"COMPLETED"}, timeout=240)
        last = f'jobs_info{{slurm_job="{job}",has_ended="true"}}'
        until(lambda: prometheus.query(last))
        ended = ("sacct", "-n", "-X", "-P", "-j", str(job), "--format=State")
        until(lambda: lab.run(*ended).strip() == "COMPLETED")
        rules = private / "rules.toml"
        rules.write_text(RULES, encoding="utf-8")
        flags = (
            "--prometheus.url", prometheus.url, "--prometheus.scrape-interval", "1s", *database,
            "--archive.url", str(private / "none.db"),
            "--config.file", str(rules),
        )  # fmt: skip
        yield Reported(job=job, told=json.loads((folder / "told").read_text("utf-8")), flags=flags, lab=lab)
    run_slurmscope("database", "revoke", *database, environment=lab.environment)


def test_efficiency_is_what_the_job_itself_and_accounting_say(reported: Reported) -> None:
    summary = json.loads(reported.report("--format", "json"))["summary"]
    used, asked = summary["cpu"]["time"]["used"], summary["cpu"]["time"]["requested"]
    assert reported.told["cpu_seconds"] == pytest.approx(used, rel=0.1)
    elapsed, cpu_time = reported.lab.run(
        "sacct", "-n", "-X", "-P", "-j", str(reported.job), "--format=ElapsedRaw,CPUTimeRAW"
    ).strip().split("|")  # fmt: skip
    assert (float(elapsed), float(cpu_time)) == (summary["run_seconds"], asked)
    assert 4 * float(elapsed) == asked


def test_memory_is_what_the_job_held(reported: Reported) -> None:
    memory = json.loads(reported.report("--format", "json"))["summary"]["memory"]
    assert ASKED_MIB << 20 == memory["requested_bytes"]
    # The job's own memory and that of three interpreters.
    assert HELD_MIB << 20 <= memory["working_peak_bytes"] <= (HELD_MIB + 60) << 20
    assert memory["working_peak_bytes"] <= memory["charged_peak_bytes"] * 1.05


def test_findings_are_the_same_in_every_form(reported: Reported) -> None:
    told = json.loads(reported.report("--format", "json"))
    rules = {finding["rule"] for finding in told["findings"]}
    assert rules >= EXPECTED_FINDINGS
    assert rules & OF_CORES, rules
    titles = [finding["title"] for finding in told["findings"] if finding["rule"] in EXPECTED_FINDINGS | OF_CORES]
    text = " ".join(reported.report("--full").split())
    page = reported.report("--format", "html")
    for title in titles:
        assert title in text
        assert title in page
    # The command line in the text has both options as well.
    assert "+#SBATCH --cpus-per-task=" in text
    assert f"+#SBATCH --mem={SUGGESTED}" in text
    assert "<b>idle" not in page


def test_pdf_holds_facts_findings_and_charts(reported: Reported, tmp_path: Path) -> None:
    reported.report("--format", "pdf", "--output", str(tmp_path / "report.pdf"))
    document = pypdf.PdfReader(tmp_path / "report.pdf")
    text = " ".join(" ".join(page.extract_text() for page in document.pages).split())
    told = json.loads(reported.report("--format", "json"))
    assert str(reported.job) in text
    for finding in told["findings"]:
        assert finding["title"] in text
    # Findings are about both; of the others, flat ones and details are left out.
    drawn = {
        chart["title"]
        for chart in told["charts"]
        if chart["name"] in {"cpu", "memory"} or (moves(chart) and chart["name"] not in {"cpu_split", "cpu_core"})
    }
    assert len(drawn) >= 2
    assert [] == [title for title in drawn if title not in text]


def moves(chart: dict[str, Any]) -> bool:
    """Return whether the values of a chart move by more than half of its scale."""
    values = [value for line in chart["lines"] for value in line["values"] if value is not None]
    scale = max([1.0 if chart["unit"] == "ratio" else 0.0, chart["reference"] or 0.0, *values])
    return bool(values) and max(values) - min(values) > 0.5 * scale


def test_text_for_older_mailers_ends_with_their_word(reported: Reported) -> None:
    assert "WARNING=true" == reported.report("--format", "seed").splitlines()[-1]


def test_running_job_is_reported_while_it_runs(reported: Reported) -> None:
    lab = reported.lab
    job = lab.submit(ALICE, "--ntasks=1", "--cpus-per-task=1", "--mem=50M", script="sleep 300")
    lab.wait_state(job, {"RUNNING"})
    known = ("sacct", "-n", "-X", "-P", "-j", str(job), "--format=State")
    until(lambda: lab.run(*known).strip() == "RUNNING")
    done = run_slurmscope("report", str(job), *reported.flags, environment=lab.environment)
    assert (0, "") == (done.returncode, done.stderr)
    assert re.search(r"RUNNING", done.stdout)
    lab.cancel_all()


class Mailbox:
    """Take every mail."""

    def __init__(self) -> None:
        self.mails: list[bytes] = []

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802 - its name
        """Keep a mail."""
        assert isinstance(envelope.content, bytes)
        self.mails.append(envelope.content)
        return "250 kept"


def test_slurm_can_mail_the_report(reported: Reported) -> None:
    mailbox, port = Mailbox(), free_port()
    server = Controller(mailbox, hostname="127.0.0.1", port=port)
    server.start()
    try:
        done = run_slurmscope(
            "mail", "-s", f"Slurm Job_id={reported.job} Name=x Ended, Run time 00:00:31, COMPLETED, ExitCode 0", ALICE,
            *reported.flags, "--mail.server", f"127.0.0.1:{port}", "--mail.domain", "example.org",
            environment=reported.lab.environment,
        )  # fmt: skip
        assert (0, "") == (done.returncode, done.stderr)
    finally:
        server.stop()
    (raw,) = mailbox.mails
    mail = email.message_from_bytes(raw, policy=email.policy.default)
    assert f"{ALICE}@example.org" == mail["To"]
    plain = mail.get_body(("plain",))
    page = mail.get_body(("html",))
    assert plain is not None
    assert page is not None
    assert "WARNING=true" == plain.get_content().rstrip().splitlines()[-1]
    assert "<html" in page.get_content()
    (attached,) = mail.iter_attachments()
    assert pypdf.PdfReader(io.BytesIO(attached.get_content())).pages
