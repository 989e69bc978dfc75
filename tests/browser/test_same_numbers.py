# SPDX-License-Identifier: Apache-2.0
"""One job of each kind has the same numbers in list, page, API, CSV, PDF, HTML, mail and terminal."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from typing import Any

import httpx
import msgspec
import pytest
from pypdf import PdfReader

from slurmscope.jobs.report import JobReport
from slurmscope.mail.mail import make_mail
from tests.browser.demo_jobs import list_jobs
from tests.processes import until

PATIENCE_SECONDS = 120.0
ALONE, TASK, PART = "[0-9]+", "[0-9]+_[0-9]+", r"[0-9]+\+[0-9]+"
KINDS = {
    "oom": ("state=OUT_OF_MEMORY", ALONE),
    "timeout": ("state=TIMEOUT", ALONE),
    "failed": ("state=FAILED", ALONE),
    "cancelled": ("state=CANCELLED", ALONE),
    "node failed": ("state=NODE_FAIL", ALONE),
    "completed": ("state=COMPLETED", ALONE),
    "critical": ("worst=critical&state=COMPLETED", ALONE),
    "serial": ("rule=serial_code", ALONE),
    "several nodes": ("state=COMPLETED&nodes_min=2", ALONE),
    "files": ("rule=small_files", ALONE),
    "gpu": ("rule=gpu_idle", ALONE),
    "stuck": ("rule=gpu_stuck", ALONE),
    "task": ("state=COMPLETED", TASK),
    "part": ("state=COMPLETED", PART),
}
"""Lists, and the form of the ID; of each, the first measured job that has ended: running ones change meanwhile."""
RATIOS = ("cpu_ratio", "memory_ratio", "gpu_ratio", "time_ratio")


@pytest.fixture(scope="module")
def chosen(demo: str) -> dict[str, dict[str, Any]]:
    """Return the row of one job of each kind, as the API gives it."""
    found: dict[str, dict[str, Any]] = {}

    def find() -> bool:
        for kind, (query, form) in KINDS.items():
            rows = [row for row in list_jobs(demo, f"{query}&limit=500") if row["cpu_ratio"] is not None]
            rows = [row for row in rows if row["end_seconds"] is not None and re.fullmatch(form, row["shown_id"])]
            if rows:
                found[kind] = rows[0]
        return set(KINDS) <= set(found)

    until(find, PATIENCE_SECONDS)
    return found


def percent(ratio: float) -> str:
    """Write a share as people do: whole from ten, else with a digit."""
    number = 100 * ratio
    if 0 < number < 0.1:
        return "<0.1 %"
    return f"{number:.0f} %" if number >= 9.95 or not number else f"{number:.1f} %"


def fetch(demo: str, path: str) -> httpx.Response:
    return httpx.get(demo + path, timeout=PATIENCE_SECONDS, trust_env=False).raise_for_status()


def plain(html: str) -> str:
    """Return the visible words of a page, as far as numbers are concerned."""
    text = re.sub(
        r"<(script|style|svg class=\"(?:bar|spark|swatch))\b.*?</(?:script|style|svg)>", " ", html, flags=re.DOTALL
    )
    return squeeze(re.sub(r"<[^>]+>", " ", text).replace("&lt;", "<"))


def squeeze(text: str) -> str:
    return " ".join(text.split())


def read_documents(demo: str, row: dict[str, Any]) -> dict[str, str]:
    """Return each document about a job, as one line of text."""
    shown_id = row["shown_id"]
    report = msgspec.json.decode(fetch(demo, f"/api/v2/jobs/{shown_id}").content, type=JobReport)
    mail = make_mail(report, sender="slurm@example.org", recipient="ada@example.org")
    page, body = fetch(demo, f"/jobs/{shown_id}").text, mail.get_body(("html",))
    listed = re.search(
        rf'<tr>\s*<th scope="row" title="{re.escape(shown_id)}">.*?</tr>',
        fetch(demo, f"/jobs?user={row['user']}&name={row['name']}&state={row['state']}").text,
        re.DOTALL,
    )
    assert body is not None
    assert listed is not None
    argv = [sys.executable, "-m", "slurmscope", "report", shown_id, "--portal.url", demo]
    pdf = PdfReader(io.BytesIO(fetch(demo, f"/jobs/{shown_id}/report.pdf").content))
    return {
        "list": plain(listed[0]),
        "page": plain(page),
        "text": squeeze(fetch(demo, f"/jobs/{shown_id}/report.txt").text),
        "html": plain(fetch(demo, f"/jobs/{shown_id}/report.html").text),
        "pdf": squeeze(" ".join(sheet.extract_text() for sheet in pdf.pages)),
        "mail": squeeze(str(mail.get_body(("plain",)).get_content())),  # type: ignore[union-attr]
        "mail in HTML": plain(str(body.get_content())),
        "terminal": squeeze(subprocess.run(argv, capture_output=True, text=True, check=True).stdout),
        "terminal in full": squeeze(
            subprocess.run([*argv, "--full"], capture_output=True, text=True, check=True).stdout
        ),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_documents_of_a_job_have_the_same_numbers(demo: str, chosen: dict[str, dict[str, Any]], kind: str) -> None:
    row = chosen[kind]
    documents = read_documents(demo, row)
    for name in (name for name in RATIOS if row[name] is not None):
        # The API rounds to four digits, so that 99.497 % may be 99 % or 100 %: but the same everywhere.
        possible = {percent(row[name] + rounded) for rounded in (-5e-5, 0.0, 5e-5)}
        shown = {of: {number for number in possible if number in text} for of, text in documents.items()}
        assert set.intersection(*shown.values()), (name, row[name], shown)
    assert [] == [name for name, text in documents.items() if row["shown_id"] not in text]


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_a_list_have_the_numbers_of_the_api(demo: str, chosen: dict[str, dict[str, Any]], kind: str) -> None:
    row = chosen[kind]
    text = fetch(demo, f"/jobs?format=csv&user={row['user']}&name={row['name']}&state={row['state']}").text
    (found,) = (line for line in csv.DictReader(io.StringIO(text)) if line["shown_id"] == row["shown_id"])
    for name in (*RATIOS, "run_seconds", "nodes", "cpus", "gpus", "core_seconds", "wasted_core_seconds"):
        expected = row[name]
        assert expected == (None if found[name] == "" else float(found[name])), name
    assert row["state"] == found["state"]
    report = fetch(demo, f"/api/v2/jobs/{row['shown_id']}").json()
    assert row["cpu_ratio"] == pytest.approx(report["summary"]["cpu"]["time"]["ratio"], abs=1e-3)
    assert row["run_seconds"] == report["summary"]["run_seconds"]
