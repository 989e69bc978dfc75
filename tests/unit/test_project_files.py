# SPDX-License-Identifier: Apache-2.0
"""The files that hosting sites read are valid, and name commands that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from slurmscope.cli import slurmscope

ROOT = Path(__file__).parents[2]
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*-*.yml"))
WORKFLOW = ROOT / ".github" / "workflows" / "test.yml"


def load(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_issue_form_has_what_the_hosting_site_requires(form: Path) -> None:
    content = load(form)
    fields = [field for field in content["body"] if field["type"] != "markdown"]

    assert {"name", "description", "labels", "body"} == set(content)
    assert {"input", "textarea"} >= {field["type"] for field in fields}
    assert len(fields) == len({field["id"] for field in fields}) == len({f["attributes"]["label"] for f in fields})


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_issue_form_asks_for_a_doctor_command_that_exists(form: Path) -> None:
    (field,) = (field for field in load(form)["body"] if field.get("id") == "doctor")
    roles = re.findall(r"\b(cluster|node|portal)\b", field["attributes"]["description"])

    assert "Output of slurmscope doctor ROLE --json" == field["attributes"]["label"]
    assert field["validations"]["required"]
    assert ["cluster", "node", "portal"] == roles
    for role in roles:
        assert "--json" in CliRunner().invoke(slurmscope, ["doctor", role, "--help"]).output


def test_workflow_runs_the_test_command_of_the_readme() -> None:
    jobs = load(WORKFLOW)["jobs"]
    (command,) = re.findall(r"(?m)^(make test)\b", (ROOT / "README.md").read_text(encoding="utf-8"))

    assert command == jobs["test"]["steps"][-1]["run"]
    assert "debian:12" == jobs["test"]["container"]["image"]


def test_workflow_tries_the_oldest_python_that_is_supported() -> None:
    (oldest,) = re.findall(r'requires-python = ">=(.*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert oldest == load(WORKFLOW)["jobs"]["minimal"]["strategy"]["matrix"]["python"][0]


def test_there_is_a_form_for_missing_and_for_wrong_numbers() -> None:
    assert ["metric-missing", "wrong-number"] == [form.stem for form in FORMS]


def test_workflow_pins_actions_and_gives_strangers_no_privileges() -> None:
    jobs = load(WORKFLOW)["jobs"]
    uses = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]

    assert uses
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in uses)
    privileged = {name for name, job in jobs.items() if "--privileged" in str(job.get("container"))}
    assert {"test"} == privileged
    assert "github.event_name == 'push'" == jobs["test"]["if"]


def test_units_that_share_a_state_folder_agree_on_its_mode() -> None:
    texts = [unit.read_text(encoding="utf-8") for unit in sorted((ROOT / "deploy").glob("*.service"))]
    modes = {re.findall(r"(?m)^StateDirectoryMode=(.*)$", text)[0] for text in texts if "\nStateDirectory=" in text}
    assert {"0700"} == modes


def test_every_file_has_a_license() -> None:
    """As the REUSE specification has it; the tool is the one that its authors publish."""
    found = subprocess.run(
        [sys.executable, "-m", "reuse", "lint", "--lines"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (0, "") == (found.returncode, found.stdout)
