# SPDX-License-Identifier: Apache-2.0
"""Job scripts are shown to their owners, escaped, with what to check in them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurmscope.core.errors import CommandFailed
from slurmscope.jobs.script import EnvironmentVariable, JobScript, ScriptFinding
from slurmscope.portal.settings import PortalSettings
from tests.fakes.browser import Page, PortalClient
from tests.fakes.portal_backend import FakeBackend, OtherCluster, make_backend
from tests.fakes.reports import make_record, make_report
from tests.fakes.two_clusters import make_two_clusters
from tests.fakes.waiting import make_queue

SCRIPT = JobScript(
    text="#!/bin/sh\n\t<script>alert(1)</script>\x1b[31m\nexport KEY=x\n",
    findings=(ScriptFinding(title="No <time> limit", advice="Set it.", line=2),),
    environment=(EnvironmentVariable(name="SLURM_NTASKS", value="<8>"), EnvironmentVariable(name="AWS_KEY")),
)


@pytest.fixture
def backend(backend: FakeBackend) -> FakeBackend:
    backend.scripts["4711"] = SCRIPT
    return backend


def test_owner_sees_the_script_and_what_to_check(ada: PortalClient) -> None:
    page = Page(ada.get("/jobs/4711/script").text)
    text = " ".join(" ".join(page.texts).split())

    assert "Line 2: No <time> limit Set it." in text
    assert "1 #!/bin/sh 2 <script>alert(1)</script>\\u001b[31m 3 export KEY=x" in text
    assert "SLURM_NTASKS <8> AWS_KEY not shown" in text
    assert "script" not in {tag for tag, attributes in page.elements if "src" not in attributes}


def test_header_of_the_owner_knows_the_options_in_the_script(backend: FakeBackend) -> None:
    backend.scripts["4711"] = JobScript(text="#!/bin/sh\n#SBATCH --gres=tmpfs:1G\n./a\n")
    path = "/api/v2/jobs/4711"

    def options(user: str) -> object:
        return PortalClient(backend.make_app(), user).get(path).json()["summary"]["record"]["script_options"]

    assert ("--gres=tmpfs:1G", None) == (options("ada"), options("sue"))
    backend.script_error = CommandFailed(["sacct"], "slurmdbd is down")
    assert options("ada") is None


def test_link_is_on_the_page_of_the_owner_alone(backend: FakeBackend) -> None:
    def links(user: str) -> set[str | None]:
        page = Page(PortalClient(backend.make_app(), user).get("/jobs/4711").text)
        return {attributes.get("href") for tag, attributes in page.elements if tag == "a"}

    assert "/jobs/4711/script" in links("ada")
    assert "/jobs/4711/script" not in links("sue") | links("cora")
    backend.scripts.clear()
    assert "/jobs/4711/script" not in links("ada")


def test_link_depends_on_what_the_cluster_of_the_job_stores() -> None:
    backend = make_backend(make_two_clusters())
    backend.scripts, backend.waiting = {"4711": SCRIPT}, make_queue(cluster="alpha")
    backend.others = {"beta": OtherCluster()}
    # The portal's own cluster is alpha; no controller of gamma is read.
    backend.archive.save([make_report(make_record(4711, cluster="gamma"))])

    def has_link(cluster: str) -> bool:
        page = Page(PortalClient(backend.make_app(), "ada").get(f"/jobs/{cluster}/4711").text)
        return f"/jobs/{cluster}/4711/script" in page.links

    backend.storing = {""}
    assert [True, False, False] == [has_link(cluster) for cluster in ("alpha", "beta", "gamma")]
    backend.storing = {"beta"}
    assert [False, True, False] == [has_link(cluster) for cluster in ("alpha", "beta", "gamma")]


def test_script_that_is_not_stored_is_explained(ada: PortalClient) -> None:
    assert "Slurm has not stored the script of this job." in ada.get("/jobs/4720/script").text
    assert 404 == ada.get("/api/v2/jobs/4720/script").status_code


def test_staff_see_scripts_if_the_settings_allow_it_and_are_audited(backend: FakeBackend) -> None:
    assert 404 == PortalClient(backend.make_app(), "sue").get("/jobs/4711/script").status_code
    assert [] == backend.audited

    backend.settings = replace(backend.settings, scripts="staff")
    assert 200 == PortalClient(backend.make_app(), "sue").get("/jobs/4711/script").status_code
    assert [("sue", "/jobs/{shown_id}/script", "script of job 4711")] == backend.audited
    assert 404 == PortalClient(backend.make_app(), "cora").get("/jobs/4711/script").status_code


def test_scripts_can_be_disabled(backend: FakeBackend) -> None:
    backend.settings = PortalSettings(scripts="off")

    for path in ("/jobs/4711/script", "/api/v2/jobs/4711/script"):
        assert 404 == PortalClient(backend.make_app(), "ada").get(path).status_code


def test_accounting_that_fails_is_reported(backend: FakeBackend, ada: PortalClient) -> None:
    backend.script_error = CommandFailed(["sacct"], "slurmdbd is down")
    answer = ada.get("/jobs/4711/script")

    assert (503, "10") == (answer.status_code, answer.headers["retry-after"])
    assert "could not be read from Slurm's accounting" in " ".join(Page(answer.text).texts)


def test_api_returns_the_script_as_stored(ada: PortalClient) -> None:
    answer = ada.get("/api/v2/jobs/4711/script").json()

    assert SCRIPT.text == answer["text"]
    assert [{"name": "SLURM_NTASKS", "value": "<8>"}, {"name": "AWS_KEY", "value": None}] == answer["environment"]
