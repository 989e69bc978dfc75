# SPDX-License-Identifier: Apache-2.0
"""Check what is said where a package is not installed, and that the terminal's report needs none."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import sys
sys.modules["jinja2"] = sys.modules["typst"] = None
from slurmscope.jobs.record import JobRecord
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.summary import JobSummary
from slurmscope.jobs.render.{module} import {function}

record = JobRecord(
    cluster="lab", job_id=1, name="x", user="ada", account="a", partition="p", state="COMPLETED", submit_seconds=1
)
print({function}(JobReport(summary=JobSummary(record=record, run_seconds=0.0), made_seconds=2)))
"""


def _run(module: str, function: str) -> subprocess.CompletedProcess[str]:
    program = _PROGRAM.format(module=module, function=function)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("module", "function"), [("html", "render_html"), ("pdf", "render_pdf")])
def test_a_missing_package_names_the_extra(module: str, function: str) -> None:
    done = _run(module, function)

    assert f"MissingExtraError: a report in {module.upper()} needs the extra 'reports'" in done.stderr


@pytest.mark.parametrize(("module", "function"), [("text", "render_text"), ("json", "render_json")])
def test_text_and_json_need_no_package(module: str, function: str) -> None:
    done = _run(module, function)

    assert (0, "") == (done.returncode, done.stderr)
